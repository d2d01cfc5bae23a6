"""Counterexamples: a point where a polynomial is negative, which spares the search for a proof that it never is.

Points are tried only if the facts are nothing but ranges and divisors of variables, so that every choice of values within them is
allowed: the smallest values, some slightly larger ones that differ from variable to variable, and large ones.

    refuted(poly_of(n - m), Facts())            # n = 0, m = 1
"""

from __future__ import annotations

from . import expr as E
from .expr import Const, Expr, Var
from .facts import Facts
from .poly import Poly
from .walk import depth

_POINTS = 5  # the number of points in `_variable`
_DEEP = 60  # deeper expressions are not evaluated, to stay clear of Python's recursion limit


def refuted(p: Poly, facts: Facts) -> bool:
    """True if a sample point shows that `p` is negative for some values that the facts allow; False says nothing.

    Facts other than ranges and divisors of variables are not sampled: then it is always False.
    """
    if facts.inequalities or facts.equal or facts.known or facts.products:
        return False
    if not all(isinstance(e, Var) for known in (facts.ranges, facts.multiples) for e in known):
        return False
    for k in range(_POINTS):
        value = _poly_at(p, k, facts)
        if value is None:
            return False
        if value < 0:
            return True
    return False


def _poly_at(p: Poly, k: int, facts: Facts) -> int | None:
    """Returns the value of a polynomial at sample point number `k`; None if an atom cannot be evaluated there."""
    total = 0
    for m, c in p.items():
        for atom in m:
            value = _at(atom, k, facts) if depth(atom) <= _DEEP else None
            if value is None:
                return None
            c *= value
        total += c
    return total


def _at(e: Expr, k: int, facts: Facts) -> int | None:
    """Returns the value of an expression at sample point number `k`; None if it cannot be evaluated."""
    if type(e) is Const:
        return int(e.payload)
    cache = facts.cache("points")
    if (k, e) not in cache:
        cache.put((k, e), _variable(e, k, facts) if isinstance(e, Var) else _computed(e, k, facts))
    value: int | None = cache[k, e]
    return value


def _computed(e: Expr, k: int, facts: Facts) -> int | None:
    """Returns the value of an operation at sample point number `k`; None if it cannot be evaluated."""
    kind = type(e)
    if kind not in E._FOLD and kind not in (E.Neg, E.Select):
        return None
    values = [_at(a, k, facts) for a in e.args]
    if any(v is None for v in values) or e.args[-1].dtype.is_float:
        return None
    if kind is E.Select:
        return values[1] if values[0] else values[2]
    value = -values[0] if kind is E.Neg else E._FOLD[kind](*values)  # type: ignore[operator, arg-type]
    return e.dtype.wrap(int(value)) if e.dtype.is_int else int(value)


def _variable(v: Var, k: int, facts: Facts) -> int | None:
    """A value that the variable may have at point `k`; variables of different age get different values.

    None if it is no integer, or if its range is empty.
    """
    if not v.dtype.is_int:
        return None
    lo, hi = facts.range_of(v)
    step = facts.multiple_of(v)
    first, last = -(-lo // step), hi // step
    if first > last:
        return None  # the range is empty
    age = int(v.payload[1])
    wanted = (0, 1 + age % 3, 3 - age % 3, 20 + age % 7 * 5, 1000 - age % 5 * 99)[k]
    return min(first + wanted, last) * step
