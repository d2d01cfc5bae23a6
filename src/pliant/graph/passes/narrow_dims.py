"""What every run asks of a dim is part of its contract: the bounds and steps that callees declare narrow the caller's dims.

    n = dim("n"); k = dim("k", max=64)
    def f(x: Tensor[f32, n]): return small(x)          # small(x: Tensor[f32, k])     ->     n in 0..64

Only nodes that always run count (not those of branches and loops), and only conditions on one dim alone; the check is done on entry then,
and sizes are known to be smaller. `attrs["narrowed"]` keeps, by dim, the condition that narrowed it, for messages.
"""

from __future__ import annotations

from math import lcm

from ...sym.expr import Const, Dim, Eq, Expr, FloorMod, Le, Lt, Var, conjuncts, substitute
from ...sym.facts import EMPTY
from ..annotation import decide, defined_vars
from ..node import Function, Require, walk_nodes
from ..rewrite import Renamer

Range = tuple[int, int, int]  # least, most, step


def narrow_dims(function: Function) -> Function:
    """The function with its dims as narrow as its nodes need them; the same object if they are that already."""
    dims = [v for v in defined_vars(p.annotation for p in function.params) if isinstance(v, Dim)]
    found: dict[Dim, Range] = {v: (v.min, v.max, v.multiple_of) for v in dims}
    reasons: dict[Var, Require] = {}
    for r in (r for n in function.nodes for r in n.requires):
        asked = [_asked(c) for c in conjuncts(r.cond)]
        for a in asked if None not in asked else []:
            assert a is not None
            v, (low, high, step) = a
            if v not in found:
                continue
            before = found[v]
            found[v] = (max(before[0], low), min(before[1], high), lcm(before[2], step))
            if found[v] != before:
                reasons[v] = r
    narrowed: dict[Var, Expr] = {v: Dim(v.name, *found[v]) for v in dims if v in reasons and _some(found[v])}
    if not narrowed or _contradicts(function, narrowed):
        return function
    made = Renamer(dims=narrowed).function(function)
    return made.with_(attrs={**function.attrs, "narrowed": {new: reasons[v] for v, new in narrowed.items()}})


def _some(wanted: Range) -> bool:
    """Whether a value is left; if none is, the checks of the nodes say so."""
    low, high, step = wanted
    return -(-low // step) * step <= high


def _contradicts(function: Function, narrowed: dict[Var, Expr]) -> bool:
    """Whether a check can never hold in these ranges: no shape is good for all of them then, and a run says which one fails."""
    conditions = [r.cond for n in walk_nodes(function.nodes) for r in n.requires]
    return any(decide(substitute(c, narrowed), EMPTY) is False for c in conditions)


def _asked(e: Expr) -> tuple[Dim, Range] | None:
    """The dim and the values of it that a condition admits, if it is one of the plain ones."""
    most = 2**31 - 1
    match e:
        case Le(args=(Const(value=k), Dim() as v)):
            return v, (int(k), most, 1)
        case Le(args=(Dim() as v, Const(value=k))):
            return v, (0, int(k), 1)
        case Lt(args=(Const(value=k), Dim() as v)):
            return v, (int(k) + 1, most, 1)
        case Lt(args=(Dim() as v, Const(value=k))):
            return v, (0, int(k) - 1, 1)
        case Eq(args=(FloorMod(args=(Dim() as v, Const(value=k))), Const(value=0))) if k > 0:
            return v, (0, most, int(k))
    return None
