"""Simplification of integer comparisons, minima and maxima: decides them, or puts them into canonical form.

`a < b` becomes a statement about the polynomial b - a, with terms of equal sign on one side and common factors divided out. For an order
this requires that neither side wraps, before and after; equality only needs ring arithmetic.

    >>> i, n = Var("i"), Dim("n"); simplify(i * 4 + 3 < n * 4, Facts().with_range(i, 0, 99))
    i < n
"""

from __future__ import annotations

from ..dtype import DType
from .bounds import exact, int_range, poly_interval, poly_multiple
from .expr import FALSE, TRUE, Const, Eq, Expr, Le, Lt, Max, Min, Ne
from .facts import Facts
from .inequality import nonneg
from .poly import Poly, add, constant, content, mono_order, order, poly_of, reduce_coefficients, to_expr


def less(a: Expr, b: Expr, strict: bool, facts: Facts) -> Expr:
    """Simplifies a < b (`strict`) or a <= b: TRUE or FALSE if it is decided, else a canonical form.

    The operands are simplified integers.
    """
    (alo, ahi), (blo, bhi) = int_range(a, facts), int_range(b, facts)
    gap = 1 if strict else 0
    if ahi + gap <= blo:
        return TRUE
    if alo + gap > bhi:
        return FALSE
    d = a.dtype
    p, q = poly_of(a), poly_of(b)
    if a is b:
        return FALSE if strict else TRUE
    if not exact(p, d, facts) or not exact(q, d, facts):
        return _known(Lt(a, b) if strict else Le(a, b), facts)
    slack = add(add(q, p, -1), constant(-gap))  # the claim: slack >= 0
    if nonneg(slack, facts):
        return TRUE
    if nonneg(add(constant(-1), slack, -1), facts):
        return FALSE
    form = _order_form(slack, d, facts)
    return _known((Lt(a, b) if strict else Le(a, b)) if form is None else form, facts)


def _order_form(slack: Poly, d: DType, facts: Facts) -> Expr | None:
    """The canonical form of `slack >= 0`, or None if one of its sides might wrap."""
    g = content(slack)
    slack = add({m: c // g for m, c in slack.items() if m}, constant(slack.get((), 0) // g))
    right = {m: c for m, c in slack.items() if m and c > 0}
    left = {m: -c for m, c in slack.items() if m and c < 0}
    k = slack.get((), 0)  # left <= right + k
    if not right or (left and k > 0):
        right, strict = add(right, constant(k + 1)), True
    elif k < 0 or not left:
        left, strict = add(left, constant(-k - 1)), True
    else:
        strict = False
    if not exact(left, d, facts) or not exact(right, d, facts):
        return None
    return (Lt if strict else Le)(to_expr(left, d), to_expr(right, d))


def _known(e: Expr, facts: Facts) -> Expr:
    """Returns TRUE or FALSE if the facts decide the condition, else the condition."""
    truth = facts.known.get(e)
    return e if truth is None else TRUE if truth else FALSE


def equal(a: Expr, b: Expr, facts: Facts) -> Expr:
    """Simplifies a == b: TRUE or FALSE if it is decided, else a canonical form; the operands are simplified integers."""
    d = a.dtype
    difference = reduce_coefficients(add(poly_of(a), poly_of(b), -1), d)
    if all(not m for m in difference):
        return FALSE if difference else TRUE
    (alo, ahi), (blo, bhi) = int_range(a, facts), int_range(b, facts)
    if ahi < blo or bhi < alo:
        return FALSE
    # Both are in the dtype's range, so they are equal if and only if their integer difference is 0 modulo 2^bits; and if
    # the polynomial is within that range, it is the integer difference or misses it by 2^bits, which is not 0 either way.
    lo, hi = poly_interval(difference, facts)
    whole = 1 << d.bits
    if -whole < lo and hi < whole:
        if _never_zero(difference, facts):
            return FALSE
        if nonneg(difference, facts) and nonneg(add({}, difference, -1), facts):
            return TRUE
        g = content(difference)
        if difference.get((), 0) % g == 0:
            difference = {m: c // g for m, c in difference.items()}
    half = whole >> 1
    lead = min((m for m, c in difference.items() if m and c != -half), key=mono_order, default=())
    if difference.get(lead, 0) < 0:  # a == b and b == a have the same form
        difference = reduce_coefficients(add({}, difference, -1), d)
    right = {m: c for m, c in difference.items() if m and c > 0}
    left = {m: -c for m, c in difference.items() if m and c < 0}
    k = difference.get((), 0)
    if not left or (right and k > 0):
        left = add(left, constant(-k))
    else:
        right = add(right, constant(k))
    return _known(Eq(*sorted((to_expr(left, d), to_expr(right, d)), key=_literals_last)), facts)


def _literals_last(e: Expr) -> tuple[object, ...]:
    """Returns a sort key of an expression that puts literals last."""
    return (isinstance(e, Const), *order(e))


def _never_zero(p: Poly, facts: Facts) -> bool:
    """True if a polynomial is provably never 0."""
    lo, hi = poly_interval(p, facts)
    g = poly_multiple({m: c for m, c in p.items() if m}, facts)
    return (
        lo > 0 or hi < 0 or bool(g and p.get((), 0) % g) or nonneg(add(p, constant(-1)), facts) or nonneg(add(constant(-1), p, -1), facts)
    )


def unequal(a: Expr, b: Expr, facts: Facts) -> Expr:
    """Simplifies a != b; the operands are simplified integers."""
    same = equal(a, b, facts)
    if isinstance(same, Const):
        return FALSE if same.value else TRUE
    return Ne(*same.args)


def extreme(kind: type[Expr], a: Expr, b: Expr, facts: Facts) -> Expr:
    """Simplifies min(a, b) or max(a, b) of integers: flattened, sorted, and without operands that another one makes redundant."""
    parts = dict.fromkeys([*_flat(a, kind), *_flat(b, kind)])
    literals = [p.value for p in parts if isinstance(p, Const)]
    pick = min if kind is Min else max
    operands: list[Expr] = [p for p in parts if not isinstance(p, Const)]
    if literals:
        operands.append(Const(pick(literals), a.dtype))
    for p in list(operands):
        if any(q is not p and _beats(q, p, kind, facts) for q in operands):
            operands.remove(p)
    operands.sort(key=_literals_last)
    result = operands[0]
    for p in operands[1:]:
        result = kind(result, p)  # type: ignore[call-arg]
    return result


def _flat(e: Expr, kind: type[Expr]) -> list[Expr]:
    """Returns the operands of nested minima (or maxima, by `kind`) as a flat list."""
    return [x for a in e.args for x in _flat(a, kind)] if type(e) is kind else [e]


def _beats(q: Expr, p: Expr, kind: type[Expr], facts: Facts) -> bool:
    """True if q <= p always (min) or q >= p always (max), so that p is redundant."""
    small, large = (q, p) if kind is Min else (p, q)
    if int_range(small, facts)[1] <= int_range(large, facts)[0]:
        return True
    if (type(large) is Max and small in large.args) or (type(small) is Min and large in small.args):
        return True
    a, b = poly_of(small), poly_of(large)
    return exact(a, p.dtype, facts) and exact(b, p.dtype, facts) and nonneg(add(b, a, -1), facts)
