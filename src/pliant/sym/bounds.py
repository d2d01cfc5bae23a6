"""Range analysis: constant ranges and divisibility of expressions, and whether a polynomial can wrap.

`bounds(e, facts)` always contains the value of `e`, wraparound included: if a sum might leave its dtype's range, the result is the whole
range. Integers always have both ends; floats have none (None, None); bools have 0..1. Symbolic bounds are in `sym/region.py`.

    >>> i = Var("i"); bounds(i * 4 + 3, Facts().with_range(i, 0, 7))
    Interval(lo=3, hi=31)
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import NamedTuple

from ..dtype import DType, bool_
from . import expr as E
from .expr import Const, Expr
from .facts import EMPTY, Facts
from .poly import RING, Mono, Poly, add, constant, poly_of
from .walk import depth, walk


class Interval(NamedTuple):
    """A range of integers from lo to hi, both included; None is unbounded."""

    lo: int | None
    hi: int | None


Range = tuple[int, int]  # the least and the greatest value, both included

DEEP = 60  # deeper expressions are analyzed from the leaves up, to stay clear of Python's recursion limit


def bounds(e: Expr, facts: Facts = EMPTY) -> Interval:
    """Returns the smallest range of constants that is known to contain `e`; unbounded for floats."""
    if e.dtype.is_float:
        return Interval(None, None)
    return Interval(*int_range(e, facts))


def int_range(e: Expr, facts: Facts) -> Range:
    """Returns (lo, hi), constants between which an integer or bool expression is known to be."""
    if type(e) is Const:
        return (int(e.payload), int(e.payload))
    cache = facts.caches.get("bounds")
    span: Range | None = None if cache is None else cache.get(e)
    if span is None:
        if depth(e) > DEEP:
            cache = facts.cache("bounds")
            for node in walk(e):
                if node not in cache and type(node) not in RING and not node.dtype.is_float:
                    _find_range(node, facts)
        span = _find_range(e, facts)
    return span


def _find_range(e: Expr, facts: Facts) -> Range:
    """Returns the range of a node from its kind and operands, narrowed by the facts."""
    lo, hi = _RANGES.get(type(e), _unknown)(e, facts)
    if e in facts.ranges and type(e) in _RANGES:
        low, high = facts.ranges[e]
        lo, hi = max(lo, low), min(hi, high)
    replaced = facts.equal.get(e)
    if replaced is not None and replaced is not e:
        low, high = int_range(replaced, facts)
        lo, hi = max(lo, low), min(hi, high)
    span = (lo, max(lo, hi))  # contradicting facts: the code is unreachable, so any range is right
    facts.cache("bounds").put(e, span)
    return span


def whole(d: DType) -> Range:
    """Returns the range of all values of an integer type or bool."""
    return (0, 1) if d is bool_ else (d.min, d.max)


def _unknown(e: Expr, facts: Facts) -> Range:
    """Returns the range of a node that is not analyzed, such as a variable or a load, from the facts about it."""
    if e.dtype is bool_:
        return (0, 1)
    lo, hi = facts.range_of(e)
    k = facts.multiple_of(e)
    return (lo, hi) if k == 1 else (-(-lo // k) * k, hi // k * k)


def within(r: Range, d: DType) -> Range:
    """The range after wraparound: the same if the dtype holds it, else all values of the dtype."""
    return r if d.min <= r[0] and r[1] <= d.max else (d.min, d.max)


def _product(a: Range, b: Range) -> Range:
    """Returns the range of the product of two ranges."""
    if a[0] >= 0 and b[0] >= 0:
        return (a[0] * b[0], a[1] * b[1])
    corners = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return (min(corners), max(corners))


def mono_range(m: Mono, facts: Facts) -> Range:
    """Returns the range of a product of atoms, computed as unbounded integers."""
    r = int_range(m[0], facts)
    for i, atom in enumerate(m[1:], 1):
        r = _product(r, int_range(atom, facts))
        if atom is m[i - 1] and i == 1:  # a square is not negative
            r = (max(r[0], 0), r[1])
    narrower = facts.products.get(m) if facts.products else None
    return r if narrower is None else (max(r[0], narrower[0]), min(r[1], narrower[1]))


def poly_interval(p: Poly, facts: Facts) -> Range:
    """Returns the range of a polynomial, computed as unbounded integers from the ranges of its atoms."""
    lo = hi = 0
    for m, c in p.items():
        if not m:
            lo += c
            hi += c
            continue
        low, high = mono_range(m, facts)
        if c > 0:
            lo += c * low
            hi += c * high
        else:
            lo += c * high
            hi += c * low
    return (lo, hi)


def exact(p: Poly, dtype: DType, facts: Facts) -> bool:
    """True if the integer value of `p` never leaves the dtype's range, so that an expression congruent to it equals it."""
    lo, hi = poly_interval(p, facts)
    if dtype.min <= lo and hi <= dtype.max:
        return True
    if not facts.inequalities:
        return False
    key = ("exact", dtype, frozenset(p.items()))
    cache = facts.cache("prove")
    proved: bool | None = cache.get(key)
    if proved is None:
        from .inequality import nonneg

        above = lo >= dtype.min or nonneg(add(p, constant(-dtype.min)), facts)
        proved = cache.put(key, above and (hi <= dtype.max or nonneg(add(constant(dtype.max), p, -1), facts)))
    return bool(proved)


def _ring(e: Expr, facts: Facts) -> Range:
    """The range of a sum or product: by its polynomial (which cancels terms) and by its operands (which keeps products unexpanded)."""
    d = e.dtype
    lo, hi = within(poly_interval(poly_of(e), facts), d)
    kind = type(e)
    if depth(e) > DEEP:
        return (lo, hi)
    a = int_range(e.args[0], facts)
    if kind is E.Neg:
        direct = (-a[1], -a[0])
    else:
        b = int_range(e.args[1], facts)
        direct = _product(a, b) if kind is E.Mul else (a[0] + b[0], a[1] + b[1]) if kind is E.Add else (a[0] - b[1], a[1] - b[0])
    low, high = within(direct, d)
    return (max(lo, low), min(hi, high))


def _floordiv(e: Expr, facts: Facts) -> Range:
    (alo, ahi), (blo, bhi) = int_range(e.args[0], facts), int_range(e.args[1], facts)
    divisors = [b for b in {blo, bhi, -1, 1} if blo <= b <= bhi and b]  # a//b is monotone in b on each side of 0
    quotients = [a // b for a in (alo, ahi) for b in divisors]
    if blo <= 0 <= bhi:
        quotients.append(0)
    return within((min(quotients), max(quotients)), e.dtype)


def _floormod(e: Expr, facts: Facts) -> Range:
    (alo, ahi), (blo, bhi) = int_range(e.args[0], facts), int_range(e.args[1], facts)
    if alo >= 0 and (blo > 0 and ahi < blo):
        return (alo, ahi)
    if blo == bhi > 0 and alo // blo == ahi // blo:
        return (alo % blo, ahi % blo)
    lo, hi = min(0, blo + 1), max(0, bhi - 1)
    if alo >= 0 and blo >= 0:
        hi = min(hi, ahi)
    return (lo, hi)


def _min(e: Expr, facts: Facts) -> Range:
    a, b = (int_range(x, facts) for x in e.args)
    return (min(a[0], b[0]), min(a[1], b[1]))


def _max(e: Expr, facts: Facts) -> Range:
    a, b = (int_range(x, facts) for x in e.args)
    return (max(a[0], b[0]), max(a[1], b[1]))


def _select(e: Expr, facts: Facts) -> Range:
    c, a, b = (int_range(x, facts) for x in e.args)
    if c[0] == c[1]:
        return a if c[0] else b
    return (min(a[0], b[0]), max(a[1], b[1]))


def _cast(e: Expr, facts: Facts) -> Range:
    if e.args[0].dtype.is_float:
        return whole(e.dtype)
    lo, hi = int_range(e.args[0], facts)
    if e.dtype is bool_:
        return (1, 1) if lo > 0 or hi < 0 else (0, 0) if lo == hi == 0 else (0, 1)
    return within((lo, hi), e.dtype)


def _bitand(e: Expr, facts: Facts) -> Range:
    a, b = (int_range(x, facts) for x in e.args)
    if a[0] < 0 and b[0] < 0:
        return whole(e.dtype)
    return (0, min(r[1] for r in (a, b) if r[0] >= 0))


def _bitor(e: Expr, facts: Facts) -> Range:
    a, b = (int_range(x, facts) for x in e.args)
    if a[0] < 0 or b[0] < 0:
        return whole(e.dtype)
    top = (1 << max(a[1], b[1]).bit_length()) - 1
    return (max(a[0], b[0]) if type(e) is E.BitOr else 0, top)


def _shift(e: Expr, facts: Facts) -> Range:
    (alo, ahi), (blo, bhi) = int_range(e.args[0], facts), int_range(e.args[1], facts)
    if blo < 0 or bhi >= e.dtype.bits:
        return whole(e.dtype)
    moved = [a << b if type(e) is E.Shl else a >> b for a in (alo, ahi) for b in (blo, bhi)]
    return within((min(moved), max(moved)), e.dtype)


def _abs(e: Expr, facts: Facts) -> Range:
    if e.payload != "abs":
        return whole(e.dtype)
    lo, hi = int_range(e.args[0], facts)
    return within((0 if lo <= 0 <= hi else min(abs(lo), abs(hi)), max(abs(lo), abs(hi))), e.dtype)


# Node class -> the function that computes its range.
_RANGES: dict[type[Expr], Callable[[Expr, Facts], Range]] = {
    E.Add: _ring,
    E.Sub: _ring,
    E.Mul: _ring,
    E.Neg: _ring,
    E.FloorDiv: _floordiv,
    E.FloorMod: _floormod,
    E.Min: _min,
    E.Max: _max,
    E.Select: _select,
    E.Cast: _cast,
    E.BitAnd: _bitand,
    E.BitOr: _bitor,
    E.BitXor: _bitor,
    E.Shl: _shift,
    E.Shr: _shift,
    E.Call: _abs,
}


def multiple(e: Expr, facts: Facts) -> int:
    """A positive number that divides the value of the integer expression `e`; 0 if the value is 0."""
    if type(e) is Const:
        return abs(int(e.payload))
    stated = facts.multiples.get(e, 1)
    p = poly_of(e)
    if p != {(e,): 1}:
        divisor = poly_multiple(p, facts)
        if not exact(p, e.dtype, facts):
            divisor &= -divisor  # only the power of two survives wrapping
            divisor = min(divisor, 1 << (e.dtype.bits - 1)) if divisor else 0
    elif type(e) in (E.Min, E.Max):
        divisor = gcd(*(multiple(a, facts) for a in e.args))
    elif type(e) is E.Select:
        divisor = gcd(*(multiple(a, facts) for a in e.args[1:]))
    elif type(e) is E.FloorMod:
        divisor = gcd(*(multiple(a, facts) for a in e.args))
    else:
        divisor = facts.multiple_of(e)
    return stated * divisor // gcd(stated, divisor) if divisor else 0


def poly_multiple(p: Poly, facts: Facts) -> int:
    """A number that divides every value of the polynomial (as an integer)."""
    result = 0
    for m, c in p.items():
        term = abs(c)
        for atom in m:
            term *= multiple(atom, facts)
        result = gcd(result, term)
        if result == 1:
            break
    return result
