"""Symbolic bounds: the least and the greatest value of an expression while loop variables run; for region inference.

`upper(e, facts, over)` is an expression without the variables `over` that is never below `e`; `lower` is one that is never above it. In
sums, each variable is replaced by the end of its range that the sign of its coefficient selects. Quotients, minima and maxima are
monotone. A known condition such as `i*4 + j < n` is a bound too. Any other expression gets its constant bounds.

    >>> n, i, j = Dim("n"), Var("i"), Var("j"); f = Facts().with_loop(i, n).with_loop(j, 4)
    >>> upper(i * 4 + j, f, (i, j))
    n * 4 - 1
"""

from __future__ import annotations

from collections.abc import Collection

from . import expr as E
from .bounds import exact, int_range, poly_interval
from .expr import Const, Expr, FloorDiv, Max, Min, Select, Var, free_vars
from .facts import Facts
from .poly import Poly, add, atoms, multiply, poly_of, replace, to_expr
from .simplify import simplify


def upper(e: Expr, facts: Facts, over: Collection[Var]) -> Expr:
    """The least upper bound found for `e` that is free of the variables `over`."""
    return _free_of(over, _extreme(simplify(e, facts), facts, frozenset(over), True), facts)


def lower(e: Expr, facts: Facts, over: Collection[Var]) -> Expr:
    """The greatest lower bound found for `e` that is free of the variables `over`."""
    return _free_of(over, _extreme(simplify(e, facts), facts, frozenset(over), False), facts)


def _free_of(over: Collection[Var], e: Expr, facts: Facts) -> Expr:
    """`e` simplified; without the facts if an equality among them would bring the variables back."""
    simple = simplify(e, facts)
    return simple if free_vars(simple).isdisjoint(over) else simplify(e)


def _extreme(e: Expr, facts: Facts, over: frozenset[Var], up: bool) -> Expr:
    """Returns an upper (`up`) or lower bound of `e` that is free of the variables `over` (memoized)."""
    if free_vars(e).isdisjoint(over):
        return e
    key = ("extreme", e, over, up)
    cache = facts.cache("region")
    bound: Expr | None = cache.get(key)
    if bound is None:
        cache.put(key, _constant(e, facts, up))  # ends the recursion if a range depends on itself
        bound = cache.put(key, _find(e, facts, over, up))
    return bound


def _constant(e: Expr, facts: Facts, up: bool) -> Expr:
    """Returns the constant upper (`up`) or lower bound of `e` that the facts give."""
    return Const(int_range(e, facts)[up], e.dtype)


def _find(e: Expr, facts: Facts, over: frozenset[Var], up: bool) -> Expr:
    """Returns an upper (`up`) or lower bound of a node that is free of the variables `over`, by the kind of node."""
    kind = type(e)
    if isinstance(e, Var):
        end = facts.ends.get(e, (None, None))[up]
        return _constant(e, facts, up) if end is None else _extreme(simplify(end, facts), facts, over, up)
    if kind is Min or kind is Max:
        a, b = (_extreme(x, facts, over, up) for x in e.args)
        return kind(a, b)
    if kind is Select and free_vars(e.args[0]).isdisjoint(over):
        return Select(e.args[0], *(_extreme(x, facts, over, up) for x in e.args[1:]))
    if kind is Select:
        under = (facts.with_condition(e.args[0]), facts.with_condition(E.Not(e.args[0])))
        a, b = (_extreme(x, f, over, up) for x, f in zip(e.args[1:], under, strict=True))
        return Max(a, b) if up else Min(a, b)
    if kind is FloorDiv and int_range(e.args[1], facts)[0] > 0 and free_vars(e.args[1]).isdisjoint(over):
        return FloorDiv(_extreme(e.args[0], facts, over, up), e.args[1])
    if kind is E.FloorMod and up and int_range(e.args[1], facts)[0] > 0 and free_vars(e.args[1]).isdisjoint(over):
        most: Expr = E.Sub(e.args[1], Const(1, e.dtype))
        return Min(most, _extreme(e.args[0], facts, over, up)) if int_range(e.args[0], facts)[0] >= 0 else most
    if poly_of(e) != {(e,): 1}:
        return _sum(e, facts, over, up)
    return _constant(e, facts, up)


def _sum(e: Expr, facts: Facts, over: frozenset[Var], up: bool) -> Expr:
    """Returns the best upper or lower bound of a sum: by known inequalities, or term by term."""
    p = poly_of(e)
    if not exact(p, e.dtype, facts):
        return _constant(e, facts, up)
    candidates = [_free(add(p, h, 1 if up else -1), over) for h in facts.inequalities]
    candidates.append(_by_terms(p, e, facts, over, up))
    best = [to_expr(q, e.dtype) for q in candidates if q is not None and exact(q, e.dtype, facts)]
    if not best:
        return _constant(e, facts, up)
    result = best[-1]
    for other in best[:-1]:
        result = (Min if up else Max)(result, other)
    return result


def _free(p: Poly, over: frozenset[Var]) -> Poly | None:
    """Returns the polynomial if it does not contain the variables `over`, else None."""
    return p if all(free_vars(a).isdisjoint(over) for m in p for a in m) else None


def _by_terms(p: Poly, e: Expr, facts: Facts, over: frozenset[Var], up: bool) -> Poly | None:
    """Replaces linear variables by an end of their range, innermost first (whose ends use other variables); then the other atoms.

    None if a variable is not linear, the sign of its coefficient is not known, or it has no end. The result is an upper bound if `up`, else
    a lower one.
    """
    pending = [a for a in atoms(p) if not free_vars(a).isdisjoint(over)]
    pending.sort(key=lambda a: _depth(a, facts, over), reverse=True)
    for _ in range(16):  # ends bring in variables of outer loops; deeper nests than this get no bound
        if not pending:
            return p
        atom = pending[0]
        coefficient: Poly = {}
        for m, c in p.items():
            if m.count(atom) > 1:
                return None
            if atom in m:
                coefficient = add(coefficient, {tuple(a for a in m if a is not atom): c})
        lo, hi = poly_interval(coefficient, facts)
        if lo < 0 < hi:
            return None
        end = _end(atom, facts, over, up == (lo >= 0))
        if end is None:
            return None
        rest = {m: c for m, c in p.items() if atom not in m}
        p = add(rest, replace(multiply(coefficient, {(atom,): 1}), atom, end))
        pending = [a for a in atoms(p) if not free_vars(a).isdisjoint(over)]
        pending.sort(key=lambda a: _depth(a, facts, over), reverse=True)
    return None


def _depth(a: Expr, facts: Facts, over: frozenset[Var]) -> int:
    """The nesting depth of an atom's range: how many ranges it depends on, one inside of the other."""
    ends = facts.ends.get(a)
    if ends is None:
        return 0 if isinstance(a, Var) else 100
    inner = [v for end in ends if end is not None for v in free_vars(end) if v in over and v is not a]
    return 1 + max((_depth(v, facts, over) for v in inner), default=0)


def _end(atom: Expr, facts: Facts, over: frozenset[Var], up: bool) -> Poly | None:
    """Returns an upper (`up`) or lower bound of an atom; for a variable the end of its range as declared.

    That may contain other variables of `over`. None if the declared end may overflow.
    """
    declared = facts.ends.get(atom, (None, None))[up]
    if isinstance(atom, Var) and declared is not None and type(simplify(declared, facts)) not in (Min, Max):
        bound = poly_of(simplify(declared, facts))
        return bound if exact(bound, atom.dtype, facts) else None
    value = simplify(_extreme(atom, facts, over, up), facts)
    bound = poly_of(value)
    return bound if exact(bound, value.dtype, facts) else {(value,): 1}
