"""Simplification of floor division and remainder of sums, as tiling and fusing of loops produce them.

With a divisor d > 0 and a dividend d*q + r: (d*q + r) // d = q + r // d and (d*q + r) % d = r % d. With g dividing d and
0 <= s < g: (g*x + s) // d = x // (d/g) and (g*x + s) % d = g * (x % (d/g)) + s. These hold for integers, so neither the dividend nor the
rest of it may wrap; only a remainder by a power of two does not need that.

    >>> i, j = Var("i"), Var("j"); simplify((i * 4 + j) // 4, Facts().with_range(j, 0, 3).with_range(i, 0, 99))
    i
"""

from __future__ import annotations

from math import gcd

from ..dtype import DType
from .bounds import exact, int_range, multiple, poly_interval
from .expr import Const, Expr, FloorDiv, FloorMod
from .facts import EMPTY, Facts
from .inequality import nonneg
from .poly import Mono, Poly, add, constant, content, poly_of, reduce_coefficients, times, to_expr, without
from .walk import fold_up


def joined_quotients(e: Expr) -> Expr:
    """The same value with (x // a + k) // c as (x + a*k) // (a*c): shorter to read, but it no longer contains x // a."""
    joined: Expr = fold_up(e, "joined quotients", lambda node, args: _joined(node.with_args(tuple(args))))
    return joined


def _joined(e: Expr) -> Expr:
    """Rewrites (x // a + b) // c at one node to (x + a*b) // (a*c); returns `e` unchanged if it has another form."""
    if type(e) is not FloorDiv:
        return e
    p = poly_of(e.args[0])
    over = [m for m in p if m]
    if len(over) != 1 or p[over[0]] != 1 or len(over[0]) != 1 or type(over[0][0]) is not FloorDiv:
        return e
    (x, a), c = over[0][0].args, e.args[1]
    if not isinstance(a, Const) or not isinstance(c, Const) or a.value <= 0 or c.value <= 0:
        return e
    dividend, divisor = add(poly_of(x), constant(a.value * p.get((), 0))), a.value * c.value
    fits = divisor <= e.dtype.max and exact(dividend, e.dtype, EMPTY)
    return FloorDiv(to_expr(dividend, e.dtype), Const(divisor, e.dtype)) if fits else e


def floordiv(a: Expr, b: Expr, facts: Facts) -> Poly | Expr:
    """Simplifies a // b to a polynomial or an expression; a division by 0 is 0. The operands are simplified already."""
    p, d = poly_of(a), a.dtype
    if isinstance(b, Const):
        c = b.value
        if c == 0:
            return {}
        if c == 1:
            return p
        if c < 0:
            return _negative_div(a, c, facts)
        if type(a) is FloorDiv and isinstance(a.args[1], Const) and a.args[1].value > 0 and a.args[1].value * c <= d.max:
            return floordiv(a.args[0], Const(a.args[1].value * c, d), facts)
        if not exact(p, d, facts):
            lo, hi = int_range(a, facts)
            return constant(lo // c) if lo // c == hi // c else FloorDiv(a, b)
        return _div_by_constant(p, c, a, facts)
    if not exact(p, d, facts) or int_range(b, facts)[0] <= 0:
        return {} if not p else FloorDiv(a, b)
    return _div_by_symbol(p, a, b, facts)


def _negative_div(a: Expr, c: int, facts: Facts) -> Poly | Expr:
    """Simplifies a // c for a negative constant c, by negating both operands."""
    p, d = poly_of(a), a.dtype
    negated = {m: -k for m, k in p.items()}
    if c == d.min or not exact(p, d, facts) or not exact(negated, d, facts):
        return FloorDiv(a, Const(c, d))
    return floordiv(to_expr(negated, d), Const(-c, d), facts)


def _div_by_constant(p: Poly, c: int, a: Expr, facts: Facts) -> Poly | Expr:
    """Simplifies p // c for a constant c > 1; `a` is the polynomial p as an expression."""
    d = a.dtype
    lo, hi = poly_interval(p, facts)
    if lo // c == hi // c:
        return constant(lo // c)
    quotient, rest = _split(p, c, facts)
    if not exact(rest, d, facts):
        return FloorDiv(a, Const(c, d))
    narrow = _narrowed(rest, c, facts)
    if narrow is not None:
        x, g, _ = narrow
        return _plus(quotient, _quotient(x, c // g, d, facts), d) if exact(x, d, facts) else FloorDiv(a, Const(c, d))
    left = to_expr(rest, d)
    inner = _peel(left, c, facts)
    return _plus(quotient, inner if inner is not None else _atom_div(left, c), d)


def _atom_div(left: Expr, c: int) -> Expr:
    """Returns the expression `left // c`, not simplified further."""
    return FloorDiv(left, Const(c, left.dtype))


def _quotient(x: Poly, c: int, d: DType, facts: Facts) -> Poly | Expr:
    """Simplifies the quotient of a polynomial by a constant."""
    return floordiv(to_expr(x, d), Const(c, d), facts)


def _plus(p: Poly, q: Poly | Expr, d: DType) -> Poly:
    """Returns the sum of a polynomial and a simplified quotient, as a polynomial."""
    return reduce_coefficients(add(p, poly_of(q) if isinstance(q, Expr) else q), d)


def _split(p: Poly, c: int, facts: Facts) -> tuple[Poly, Poly]:
    """p = c * quotient + rest, with the constant of the rest in 0..c-1; a term that c divides goes to the quotient, as n // c."""
    quotient: Poly = constant(p.get((), 0) // c)
    rest: Poly = constant(p.get((), 0) % c)
    for m, k in p.items():
        if m and k % c == 0:
            quotient = add(quotient, {m: k // c})
        elif m and _divides(c, m, k, facts) and exact({m: k}, m[0].dtype, facts):
            g = gcd(k, c)
            quotient = add(quotient, poly_of(FloorDiv(to_expr({m: k // g}, m[0].dtype), Const(c // g, m[0].dtype))))
        elif m:
            rest = add(rest, {m: k})
    return quotient, rest


def _narrowed(rest: Poly, c: int, facts: Facts) -> tuple[Poly, int, Poly] | None:
    """(x, g, s) with rest = g*x + s, g > 1 a divisor of c, 0 <= s < g; None if there is none."""
    for g in sorted({gcd(k, c) for m, k in rest.items() if m} | {c}, reverse=True):
        if g == 1:
            continue
        s = {m: k for m, k in rest.items() if m and k % g}
        k = rest.get((), 0)
        s = add(s, constant(k % g))
        lo, hi = poly_interval(s, facts)
        if lo >= 0 and hi < g:
            x = {m: k // g for m, k in rest.items() if m and k % g == 0}
            return add(x, constant(k // g)), g, s
        if -g <= lo and hi < 0:  # s is in -g..-1: borrow one g
            x = {m: k // g for m, k in rest.items() if m and k % g == 0}
            return add(x, constant(k // g - 1)), g, add(s, constant(g))
    return None


def _peel(left: Expr, c: int, facts: Facts) -> Poly | Expr | None:
    """(x // a) // c = x // (a*c), and (x % a) // c = (x // c) % (a / c) if c divides a; else None."""
    if type(left) not in (FloorDiv, FloorMod) or not isinstance(left.args[1], Const):
        return None
    x, a = left.args[0], left.args[1].value
    if a <= 0:
        return None
    if type(left) is FloorDiv:
        return floordiv(x, Const(a * c, left.dtype), facts) if a * c <= left.dtype.max else None
    if a % c:
        return None
    inner = floordiv(x, Const(c, left.dtype), facts)
    return floormod(inner if isinstance(inner, Expr) else to_expr(inner, left.dtype), Const(a // c, left.dtype), facts)


def _by_symbol(p: Poly, b: Expr, facts: Facts) -> tuple[Poly, Poly, Poly] | None:
    """(d, q, r) with p = d*q + r for the divisor's polynomial d, if it is a single term or a sum that p contains; else None."""
    d = poly_of(b)
    if not exact(d, b.dtype, facts):
        return None
    lead = max((m for m in d if m), key=len)
    quotient: Poly = {}
    rest = p
    for m, k in list(p.items()):
        part = without(m, lead) if m else None
        if part is not None and k % d[lead] == 0:
            term: Poly = {part: k // d[lead]}
            smaller = add(rest, {times(part, n): c * term[part] for n, c in d.items()}, -1)
            if len(d) == 1 or len(smaller) < len(rest):
                quotient, rest = add(quotient, term), smaller
    return d, quotient, rest


def _div_by_symbol(p: Poly, a: Expr, b: Expr, facts: Facts) -> Poly | Expr:
    """Returns p // b simplified for a symbolic divisor b > 0, else the plain floor division; `a` is the polynomial p as an expression."""
    division = _by_symbol(p, b, facts)
    if division is None:
        return FloorDiv(a, b)
    d, quotient, rest = division
    for shift in (0, 1, -1):  # r is in 0..d-1, or one d above or below
        r = add(rest, d, -shift)
        if nonneg(r, facts) and nonneg(add(add(d, constant(-1)), r, -1), facts):
            return reduce_coefficients(add(quotient, constant(shift)), a.dtype)
    if not quotient or not exact(rest, a.dtype, facts):
        return FloorDiv(a, b)
    return _plus(quotient, FloorDiv(to_expr(rest, a.dtype), b), a.dtype)


def floormod(a: Expr, b: Expr, facts: Facts) -> Poly | Expr:
    """Simplifies a % b to a polynomial or an expression; a remainder by 0 is 0. The operands are simplified already."""
    p, d = poly_of(a), a.dtype
    if isinstance(b, Const):
        c = b.value
        if c in (0, 1, -1):
            return {}
        if c < 0:
            return FloorMod(a, b)
        return _mod_by_constant(p, c, a, facts)
    if not p:
        return {}
    if not exact(p, d, facts) or int_range(b, facts)[0] <= 0:
        return FloorMod(a, b)
    division = _by_symbol(p, b, facts)
    if division is None:
        return FloorMod(a, b)
    divisor, quotient, rest = division
    for shift in (0, 1, -1):
        r = add(rest, divisor, -shift)
        if nonneg(r, facts) and nonneg(add(add(divisor, constant(-1)), r, -1), facts):
            return r
    return FloorMod(to_expr(rest, d), b) if quotient and exact(rest, d, facts) else FloorMod(a, b)


def _mod_by_constant(p: Poly, c: int, a: Expr, facts: Facts) -> Poly | Expr:
    """Simplifies p % c for a constant c > 1; `a` is the polynomial p as an expression."""
    d = a.dtype
    binary = c & (c - 1) == 0
    if multiple(a, facts) % c == 0:
        return {}
    if not (binary or exact(p, d, facts)):
        lo, hi = int_range(a, facts)
        return add(p, constant(-(lo // c * c))) if lo // c == hi // c else FloorMod(a, Const(c, d))
    rest = add({m: k % c if binary else k for m, k in p.items() if m and k % c}, constant(p.get((), 0) % c))
    rest = {m: k - c if 2 * k > c and m and binary else k for m, k in rest.items()}
    rest = {m: k for m, k in _inside_mods(rest, c).items() if not m or not _divides(c, m, k, facts)}
    if not (binary or exact(rest, d, facts)):
        return FloorMod(a, Const(c, d))
    lo, hi = poly_interval(rest, facts)
    if lo // c == hi // c:
        return add(rest, constant(-(lo // c * c)))
    if exact(rest, d, facts):
        narrow = _narrowed(rest, c, facts)
        if narrow is not None:
            x, g, s = narrow
            if exact(x, d, facts):
                inner = floormod(to_expr(x, d), Const(c // g, d), facts)
                return reduce_coefficients(add(s, poly_of(inner) if isinstance(inner, Expr) else inner, g), d)
    common = gcd(content(rest), rest.get((), 0), c)
    if common > 1 and exact(rest, d, facts):
        inner = floormod(to_expr({m: k // common for m, k in rest.items()}, d), Const(c // common, d), facts)
        return reduce_coefficients(add({}, poly_of(inner) if isinstance(inner, Expr) else inner, common), d)
    return FloorMod(to_expr(reduce_coefficients(rest, d), d), Const(c, d))


def _inside_mods(rest: Poly, c: int) -> Poly:
    """(k * (x % a) + …) % c = (k * x + …) % c if c divides k * a, for a single atom x."""
    result: Poly = {}
    for m, k in rest.items():
        if len(m) == 1 and type(m[0]) is FloorMod and isinstance(m[0].args[1], Const):
            x, a = m[0].args[0], m[0].args[1].value
            if a > 0 and k * a % c == 0 and (c & (c - 1) == 0 or (len(rest) == 1 and k == 1)):
                result = add(result, poly_of(x), k)
                continue
        result = add(result, {m: k})
    if c & (c - 1) == 0:
        result = add({m: k for m, k in result.items() if m and k % c}, constant(result.get((), 0) % c))
    return result


def _divides(c: int, m: Mono, k: int, facts: Facts) -> bool:
    """True if c divides every value of the term k * m."""
    for atom in m:
        k *= multiple(atom, facts)
    return k % c == 0


def merge(p: Poly, facts: Facts) -> Poly:
    """Merges pairs of quotient and remainder in a sum: c*(x // c) + x % c = x, and c*((x // c) % d) + x % c = x % (c*d)."""
    for m, k in p.items():
        for atom in m:
            if type(atom) is FloorMod:
                merged = _merge_mod(p, m, k, atom, facts)
            elif type(atom) is FloorDiv:
                merged = _merge_div(p, m, k, atom, facts)
            else:
                continue
            if merged is not None:
                return merge(merged, facts)
    return p


def _merge_mod(p: Poly, m: Mono, k: int, atom: Expr, facts: Facts) -> Poly | None:
    """Merges the term k * (x % d) of `p` with a term of x // d to a multiple of x; returns the new polynomial, or None without one."""
    x, d = atom.args
    if int_range(d, facts)[0] <= 0:
        return None
    others = without(m, (atom,)) or ()
    quotient = FloorDiv(x, d)
    for n, t in p.items():
        for q in n:
            if q is not quotient and not (type(q) is FloorMod and q.args[0] is quotient):
                continue
            factor = {without(n, (q,)) or (): t}
            if factor != {times(others, mono): k * c for mono, c in poly_of(d).items()}:
                continue
            whole: Poly | None = poly_of(x) if q is quotient else _wider_mod(x, d, q.args[1], facts)
            if whole is not None:
                rest = {mono: c for mono, c in p.items() if mono not in (m, n)}
                return add(rest, {times(others, mono): k * c for mono, c in whole.items()})
    return None


def _wider_mod(x: Expr, c: Expr, d: Expr, facts: Facts) -> Poly | None:
    """Returns x % (c * d) as a polynomial; None unless c and d are constants, d is positive and the product fits the dtype."""
    if not (isinstance(c, Const) and isinstance(d, Const) and d.value > 0 and c.value * d.value <= c.dtype.max):
        return None
    wider = floormod(x, Const(c.value * d.value, c.dtype), facts)
    return poly_of(wider) if isinstance(wider, Expr) else wider


def _merge_div(p: Poly, m: Mono, k: int, atom: Expr, facts: Facts) -> Poly | None:
    """Replaces the term c * (x // c) of `p` by x if c provably divides x; returns the new polynomial, or None if nothing changes."""
    x, d = atom.args
    if not isinstance(d, Const) or d.value <= 0 or k % d.value or multiple(x, facts) % d.value:
        return None
    rest = {mono: c for mono, c in p.items() if mono != m}
    others = without(m, (atom,)) or ()
    return add(rest, {times(others, mono): k // d.value * c for mono, c in poly_of(x).items()})
