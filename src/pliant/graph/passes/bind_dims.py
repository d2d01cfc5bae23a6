"""Specializes dims: sets, narrows or equates them, for `compile(..., dims={"batch": 1, "n": (1, 2048), "w": "h"})`.

    dims={"n": 8}            n is 8 everywhere, no longer a symbol
    dims={"n": (1, 2048)}    the contract of n becomes 1..2048 (which its declaration must allow)
    dims={"w": "h"}          w is h: one symbol under both contracts, and a check that they are equal

Dims that are equated, directly or through others, become one dim: a constraint on one of them holds for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from math import lcm
from typing import Any

from ...dtype import i64
from ...support.errors import Error, ShapeError
from ...support.source import caller_span
from ...sym.expr import Const, Dim, Expr, Var, free_vars
from .. import node as g
from ..rewrite import Renamer
from ..verify import verify


def bind_dims(function: g.Function, dims: Mapping[str, Any]) -> g.Function:
    """Returns the function with its dims specialized: a number, a range (least, most), or the name of another dim that it equals.

    Raises a ShapeError for an unknown dim, or if the request contradicts the program.
    """
    known = _dims_of(function)
    leader = {name: name for name in known}
    for name, wanted in dims.items():
        for used in (name, wanted) if isinstance(wanted, str) else (name,):
            if used not in known:
                raise _unknown(function, used, known)
        if isinstance(wanted, str):
            joined, into = leader[name], leader[wanted]
            leader = {other: into if first == joined else first for other, first in leader.items()}
    values: dict[Var, Expr] = {}
    for first in dict.fromkeys(leader.values()):
        members = [name for name in known if leader[name] == first]
        constraints = {name: dims[name] for name in members if name in dims and not isinstance(dims[name], str)}
        if constraints or len(members) > 1:
            value = _joined(first, [known[name] for name in members], constraints)
            values.update((known[name], value) for name in members)
    try:
        bound = Renamer(dims=values).function(function)
        verify(bound)
    except Error as problem:
        reason = problem.__cause__ if isinstance(problem.__cause__, Error) else problem  # the error of deduction, if there is one
        what = f"`{function.name}` cannot have these dims: {reason.what}"
        raise ShapeError(what, where=caller_span(), notes=problem.places, facts=reason.facts) from None
    return bound


def _unknown(function: g.Function, name: str, known: Mapping[str, Dim]) -> ShapeError:
    """Returns the error for a name that is not a dim of the function."""
    near = get_close_matches(name, known, 1)
    return ShapeError(
        f"`{function.name}` has no dim `{name}`",
        where=caller_span(),
        facts=["its dims are: " + (", ".join(known) or "none")],
        help=f"did you mean `{near[0]}`?" if near else "",
    )


def _dims_of(function: g.Function) -> dict[str, Dim]:
    """Returns the dims in the shapes of the function's parameters, by name; those of compound expressions too."""
    dims: dict[str, Dim] = {}
    for p in function.params:
        if isinstance(p.annotation, g.Tensor):
            for e in p.annotation.shape:
                dims.update((v.name, v) for v in sorted(free_vars(e), key=lambda v: v.payload) if isinstance(v, Dim))
    return dims


def _joined(name: str, members: list[Dim], asked: Mapping[str, Any]) -> Expr:
    """Returns the dim or number that replaces the equated dims `members`: it satisfies all their contracts and the constraints `asked`.

    Raises ShapeError if a constraint is malformed or no value is left.
    """
    low, high = max(d.min for d in members), min(d.max for d in members)
    step = lcm(*(d.multiple_of for d in members))
    for who, wanted in asked.items():
        match wanted:
            case int() if not isinstance(wanted, bool):
                first = last = wanted
            case (int() as first, int() as last) if not isinstance(first, bool) and first <= last:
                pass
            case _:
                raise ShapeError(
                    f"dim `{who}` cannot be bound to {wanted!r}",
                    where=caller_span(),
                    help='give a number, a range such as (1, 2048), or the name of another dim such as "h"',
                )
        if -(-max(first, low) // step) * step > min(last, high) or first < low or last > high:
            shown = str(first) if first == last else f"{first}..{last}"
            facts = [
                f"its declaration admits {d.contract}" if d.name == who else f"it is `{d.name}`, which admits {d.contract}" for d in members
            ]
            raise ShapeError(f"dim `{who}` cannot be {shown}", where=caller_span(), facts=facts)
        low, high = first, last
    if -(-low // step) * step > high:
        facts = [f"`{d.name}` admits {d.contract}" for d in members]
        raise ShapeError(f"no value is left for dim `{name}`", where=caller_span(), facts=facts)
    return Const(low, i64) if low == high else Dim(name, low, high, step)
