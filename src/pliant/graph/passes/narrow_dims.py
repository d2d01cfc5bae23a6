"""Narrows the contracts of dims by the conditions that every run checks, such as the contracts that callees declare.

    n = dim("n"); k = dim("k", max=64)
    def f(x: Tensor[f32, n]): return small(x)          # small(x: Tensor[f32, k])     ->     n in 0..64

Only nodes that always run count (not those inside branches and loops), and only conditions on a single dim. The argument check on entry
then makes the check, and the compiler knows tighter bounds on sizes. `attrs["narrowed"]` maps each narrowed dim to the condition that
narrowed it, for messages.
"""

from __future__ import annotations

from math import lcm

from ...sym.conditions import conjuncts
from ...sym.expr import Const, Dim, Eq, Expr, FloorMod, Le, Lt, Var, substitute
from ...sym.facts import EMPTY
from ..annotation import decide, defined_vars
from ..node import Function, Require, walk_nodes
from ..rewrite import Renamer

Range = tuple[int, int, int]  # least, most, step


def narrow_dims(function: Function) -> Function:
    """Returns the function with its dims narrowed to what its nodes require; the same object if nothing can be narrowed.

    The attribute `narrowed` says which requirement narrowed each dim.
    """
    dims = [v for v in defined_vars(p.annotation for p in function.params) if isinstance(v, Dim)]
    ranges: dict[Dim, Range] = {v: (v.min, v.max, v.multiple_of) for v in dims}
    reasons: dict[Var, Require] = {}
    for r in (r for n in function.nodes for r in n.requires):
        constraints = [_asked(c) for c in conjuncts(r.cond)]
        for a in constraints if None not in constraints else []:
            assert a is not None
            v, (low, high, step) = a
            if v not in ranges:
                continue
            before = ranges[v]
            ranges[v] = (max(before[0], low), min(before[1], high), lcm(before[2], step))
            if ranges[v] != before:
                reasons[v] = r
    narrowed: dict[Var, Expr] = {v: Dim(v.name, *ranges[v]) for v in dims if v in reasons and _some(ranges[v])}
    if not narrowed or _contradicts(function, narrowed):
        return function
    result = Renamer(dims=narrowed).function(function)
    return result.with_(attrs={**result.attrs, "narrowed": {new: reasons[v] for v, new in narrowed.items()}})


def _some(wanted: Range) -> bool:
    """True if the range is not empty; an empty one is left to the checks of the nodes, which report it at run time."""
    low, high, step = wanted
    return -(-low // step) * step <= high


def _contradicts(function: Function, narrowed: dict[Var, Expr]) -> bool:
    """True if a check can never hold in these ranges: no shape satisfies all checks then, and run time reports which one fails."""
    conditions = [r.cond for n in walk_nodes(function.nodes) for r in n.requires]
    return any(decide(substitute(c, narrowed), EMPTY) is False for c in conditions)


def _asked(e: Expr) -> tuple[Dim, Range] | None:
    """The dim and the range that a condition allows, if it has the form of a bound or a divisibility of one dim, else None."""
    most = 2**31 - 1  # the maximum of every dim: no upper bound
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
