"""Converts the error record of a failed run to the exception that the user sees.

The record holds a code, the index of a check site and up to six values; the interface's table of sites has the messages.

    failure(interface, Code.CHECK, site=0, values=(3, 4, 0, 0, 0, 0))
    # ShapeError: argument `x`: dim 1 is 3, expected 4
"""

from __future__ import annotations

from collections.abc import Sequence

from ..support.errors import CancelledError, Error, InternalError, OutOfMemoryError, ShapeError
from ..support.source import Span, caller_span
from .ctx import Code
from .interface import Interface, Outside


def failure(interface: Interface, code: int, site: int, values: Sequence[int]) -> BaseException:
    """Return the exception for a compiled function's return code; for a Python function that raised, its own exception."""
    where = caller_span()
    if code == Code.OUTSIDE and 0 <= site < len(interface.calls):
        return _outside(interface.calls[site], values[0], where)
    if code == Code.CANCELLED:
        return CancelledError(f"the call of `{interface.name}` was stopped", where=where, note="in this call")
    if code == Code.NO_MEMORY:
        return OutOfMemoryError(
            f"no memory for a part of `{interface.name}` whose size is known only while it runs",
            where=where,
            note="in this call",
            facts=[f"{values[0]} bytes were asked for"],
        )
    if code != Code.CHECK or not 0 <= site < len(interface.sites):
        return InternalError(f"`{interface.name}` answered code {code}, site {site}, values {list(values)}", where=where)
    check = interface.sites[site]
    what = _filled(check.message, values)
    if check.kind == "check":
        return Error(
            what,
            where=check.place or where,
            note="" if check.place is None else "here",
            notes=_also(check.place, where, "in this call"),
            help=check.help,
        )
    return ShapeError(what, where=where, note="in this call", notes=_also(where, check.place, "stated here"), help=check.help)


def _outside(call: Outside, found: int, where: Span | None) -> BaseException:
    from .foreign_calls import raised

    error = raised(found) if call.kind == "host" else None
    return error or Error(f"the function `{call.name}` answered code {found}", where=where, note="in this call")


def _also(first: Span | None, second: Span | None, note: str) -> list[tuple[Span, str]]:
    return [(second, note)] if first is not None and second is not None else []


def _filled(message: str, values: Sequence[int]) -> str:
    """Return the message with `{0}`, `{1}`, … replaced. Not str.format: names in the message may contain other braces."""
    for number, value in enumerate(values):
        message = message.replace(f"{{{number}}}", str(value))
    return message
