"""The dims of a function set, narrowed or joined, as `compile(..., dims={"batch": 1, "n": (1, 2048), "w": "h"})` asks.

dims={"n": 8}            n is 8 everywhere, no longer a symbol
dims={"n": (1, 2048)}    the contract of n is 1..2048 (inside what its declaration admits)
dims={"w": "h"}          w is h: one symbol, and a check that they agree
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from ...dtype import i64
from ...support.errors import ShapeError
from ...support.source import caller_span
from ...sym.expr import Const, Dim, Expr, Var, free_vars
from .. import node as g
from ..rewrite import Renamer


def bind_dims(function: g.Function, dims: Mapping[str, Any]) -> g.Function:
    """The function under a narrower contract."""
    known = _dims_of(function)
    values: dict[Var, Expr] = {}
    for name, wanted in dims.items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise ShapeError(
                f"`{function.name}` has no dim `{name}`",
                where=caller_span(),
                facts=["its dims are: " + (", ".join(known) or "none")],
                help=f"did you mean `{near[0]}`?" if near else "",
            )
        values[known[name]] = _bound(known[name], wanted, known)
    return Renamer(dims=values).function(function)


def _dims_of(function: g.Function) -> dict[str, Dim]:
    found: dict[str, Dim] = {}
    for p in function.params:
        if isinstance(p.annotation, g.Tensor):
            for e in p.annotation.shape:
                found.update((v.name, v) for v in sorted(free_vars(e), key=lambda v: v.payload) if isinstance(v, Dim))
    return found


def _bound(d: Dim, wanted: Any, known: Mapping[str, Dim]) -> Expr:
    match wanted:
        case str() if wanted in known:
            return known[wanted]
        case int() if not isinstance(wanted, bool):
            _admit(d, wanted)
            return Const(wanted, i64)
        case (int() as low, int() as high) if low <= high:
            step = d.multiple_of
            _admit(d, -(-low // step) * step)
            _admit(d, high // step * step)
            return Dim(d.name, low, high, step)
    raise ShapeError(
        f"dim `{d.name}` cannot be bound to {wanted!r}",
        where=caller_span(),
        help='give a number, a range such as (1, 2048), or the name of another dim such as "h"',
    )


def _admit(d: Dim, value: int) -> None:
    if not d.min <= value <= d.max or value % d.multiple_of:
        raise ShapeError(f"dim `{d.name}` cannot be {value}", where=caller_span(), facts=[f"its declaration admits {d.contract}"])
