"""From an error record to the error that a user reads.

Compiled code leaves a code, the index of a check site and up to six values; the interface's table knows what the site is about.

    failure(interface, Code.CHECK, site=0, values=(3, 4, 0, 0, 0, 0))
    # ShapeError: argument `x`: dim 1 is 3, expected 4
"""

from __future__ import annotations

from collections.abc import Sequence

from ..support.errors import CancelledError, Error, InternalError, OutOfMemoryError, ShapeError
from ..support.source import caller_span
from .ctx import Code
from .interface import Interface, Site, SiteKind


def failure(interface: Interface, code: int, site: int, values: Sequence[int]) -> Error:
    """The error that a compiled function's answer stands for."""
    where = caller_span()
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
    error = _WRITERS[interface.sites[site].kind](interface, interface.sites[site], values)
    place = interface.sites[site].place
    if interface.sites[site].kind in _OF_THE_PROGRAM:
        error.at(place, "here")
        if where is not None:
            error.places.append((where, "in this call"))
    else:
        error.at(where, "in this call")
        if place is not None:
            error.places.append((place, "declared here"))
    return error


def _expected(site: Site, value: int) -> str:
    """`4`, or `2*n = 8` when the rule is a formula."""
    return site.expected if _is_number(site.expected) else f"{site.expected} = {value}"


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdecimal()


def _rule(site: Site) -> list[str]:
    return [f"the rule is {site.rule}"] if site.rule else []


def _dim(interface: Interface, site: Site, values: Sequence[int]) -> Error:
    signature = [str(i) for i in interface.inputs if i.name == site.argument]
    facts = [f"the signature says {text}" for text in signature] + _rule(site)
    what = f"argument `{site.argument}`: dim {site.dim} is {values[0]}, expected {_expected(site, values[1])}"
    return ShapeError(what, facts=facts)


def _contract(interface: Interface, site: Site, values: Sequence[int]) -> Error:
    name = site.expected
    facts = []
    if site.argument and site.dim is not None:
        facts.append(f"`{name}` is dim {site.dim} of argument `{site.argument}`")
    elif site.argument:
        facts.append(f"`{name}` is argument `{site.argument}`")
    return ShapeError(
        f"{name} = {values[0]} is outside its contract {site.rule}",
        facts=facts,
        help=f"compile for a wider contract: dims={{{name!r}: (min, max)}}, or pad the data",
    )


def _stride(interface: Interface, site: Site, values: Sequence[int]) -> Error:
    return ShapeError(
        f"argument `{site.argument}`: the stride of dim {site.dim} is {values[0]} elements, expected {_expected(site, values[1])}",
        facts=_rule(site) or ["the program reads this argument in row-major order"],
        help=f"np.ascontiguousarray({site.argument})",
    )


def _alignment(interface: Interface, site: Site, values: Sequence[int]) -> Error:
    return ShapeError(
        f"argument `{site.argument}`: its data begins {values[0]} bytes after a multiple of {site.expected}",
        facts=_rule(site),
        help=f"{site.argument}.copy() has memory of its own, well aligned",
    )


def _match_cast(interface: Interface, site: Site, values: Sequence[int]) -> Error:
    what = f"match_cast of `{site.argument}`: dim {site.dim} is {values[0]}, expected {_expected(site, values[1])}"
    return ShapeError(what, facts=_rule(site))


def _bounds(interface: Interface, site: Site, values: Sequence[int]) -> Error:
    what = f"index {values[0]} is outside dim {site.dim} of `{site.argument}`, whose size is {values[1]}"
    return Error(what, facts=_rule(site))


def _assert(interface: Interface, site: Site, values: Sequence[int]) -> Error:
    facts = [f"found {values[0]}, expected {_expected(site, values[1])}"] if site.expected else []
    subject = f"argument `{site.argument}`: " if site.argument else ""
    return ShapeError(f"{subject}{site.rule} does not hold", facts=facts)


_WRITERS = {
    SiteKind.DIM: _dim,
    SiteKind.CONTRACT: _contract,
    SiteKind.STRIDE: _stride,
    SiteKind.ALIGNMENT: _alignment,
    SiteKind.MATCH_CAST: _match_cast,
    SiteKind.BOUNDS: _bounds,
    SiteKind.ASSERT: _assert,
}
_OF_THE_PROGRAM = (SiteKind.MATCH_CAST, SiteKind.BOUNDS)
