"""From an error record to the error that a user reads.

Compiled code leaves a code, the index of a check site and up to six values; the interface's table knows what the site is about.

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
    """The error that a compiled function's answer stands for; what a Python function has raised is itself."""
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
    found = interface.sites[site]
    what = _filled(found.message, values)
    if found.kind == "check":
        return Error(
            what,
            where=found.place or where,
            note="" if found.place is None else "here",
            notes=_also(found.place, where, "in this call"),
            help=found.help,
        )
    return ShapeError(what, where=where, note="in this call", notes=_also(where, found.place, "stated here"), help=found.help)


def _outside(call: Outside, found: int, where: Span | None) -> BaseException:
    from .foreign_calls import raised

    error = raised(found) if call.kind == "host" else None
    return error or Error(f"the function `{call.name}` answered code {found}", where=where, note="in this call")


def _also(first: Span | None, second: Span | None, note: str) -> list[tuple[Span, str]]:
    return [(second, note)] if first is not None and second is not None else []


def _filled(message: str, values: Sequence[int]) -> str:
    """The message with its numbered places filled in; the texts of others are never read as formats."""
    for number, value in enumerate(values):
        message = message.replace(f"{{{number}}}", str(value))
    return message
