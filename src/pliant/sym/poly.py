"""Polynomials over the atoms of integer expressions: the canonical form of + - *.

An atom is any integer node that is not a sum, difference, product, negation or literal. A polynomial maps monomials (sorted tuples of
atoms, `()` for the constant) to non-zero integer coefficients, and is never mutated. `poly_of(e)` is congruent to `e` modulo 2^bits even
if intermediate results wrap, because wrapping integers are a ring. `bounds.exact` decides whether it also equals `e` as an integer.

    >>> i, n = Var("i"), Var("n"); to_expr(poly_of((n + i) * 2 - n - 3 - n), i64)
    i * 2 - 3
"""

from __future__ import annotations

from functools import reduce
from math import gcd
from typing import Any

from ..dtype import DType
from .expr import Add, Const, Expr, Mul, Neg, Sub, free_vars
from .hash_consing import memo_of
from .text import text

Mono = tuple[Expr, ...]  # a product of atoms, sorted
Poly = dict[Mono, int]  # monomial -> coefficient
Key = tuple[Any, ...]  # a sort key

MAX_TERMS = 64  # a product with more terms stays unexpanded, to bound the size of polynomials


def order(e: Expr) -> Key:
    """A deterministic sort key made of names and structure, not of addresses; the age of variables breaks ties."""
    memo = memo_of(e)
    key: Key | None = memo.get("order")
    if key is None:
        ages = tuple(sorted(v.payload[1] for v in free_vars(e)))
        key = memo["order"] = (text(e), str(e.dtype), str(getattr(e.payload, "name", "")), ages)
    return key


def mono_order(m: Mono) -> Key:
    """Returns a sort key of monomials: high degrees first, then by their atoms."""
    return (-len(m), *(order(a) for a in m))


def times(a: Mono, b: Mono) -> Mono:
    """Returns the product of two monomials, with sorted atoms."""
    if not a or not b:
        return a or b
    return tuple(sorted(a + b, key=order))


def without(m: Mono, part: Mono) -> Mono | None:
    """Returns `m / part`, or None if the monomial `part` does not divide `m`."""
    rest = list(m)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def constant(value: int) -> Poly:
    """Returns the constant polynomial of this value."""
    return {(): value} if value else {}


def add(a: Poly, b: Poly, scale: int = 1) -> Poly:
    """Returns the polynomial a + scale * b."""
    result = dict(a)
    for m, c in b.items():
        total = result.get(m, 0) + scale * c
        if total:
            result[m] = total
        else:
            result.pop(m, None)
    return result


def scale(a: Poly, by: int) -> Poly:
    """Returns the polynomial by * a."""
    return {m: c * by for m, c in a.items()} if by else {}


def multiply(a: Poly, b: Poly) -> Poly:
    """Returns the product of two polynomials."""
    result: Poly = {}
    for m, c in a.items():
        for n, d in b.items():
            key = times(m, n)
            result[key] = result.get(key, 0) + c * d
    return {m: c for m, c in result.items() if c}


def reduce_coefficients(p: Poly, dtype: DType) -> Poly:
    """Returns `p` with coefficients modulo 2^bits, those nearest to zero, so that a - b has the coefficient -1 in u8 too.

    A constant is wrapped into the range of the dtype instead.
    """
    half, whole = 1 << (dtype.bits - 1), 1 << dtype.bits
    if all(-half <= c < half for c in p.values()):
        return p
    if len(p) == 1 and () in p:
        return constant(dtype.wrap(p[()]))  # a literal keeps its value in the dtype's range
    reduced = {m: (c + half) % whole - half for m, c in p.items()}
    return {m: c for m, c in reduced.items() if c}


def poly_of(e: Expr) -> Poly:
    """The polynomial of an integer expression (memoized); atoms are not simplified."""
    if type(e) not in RING:
        return {(e,): 1}
    if e.memo is not None and "poly" in e.memo:
        return e.memo["poly"]  # type: ignore[no-any-return]
    stack = [e]  # iterative, because sums may be deep
    while stack:
        node = stack[-1]
        missing = [a for a in node.args if type(a) in RING and (a.memo is None or "poly" not in a.memo)]
        if missing:
            stack.extend(missing)
            continue
        poly = memo_of(node)["poly"] = reduce_coefficients(_poly(node), node.dtype)
        stack.pop()
    return poly


RING = frozenset((Const, Add, Sub, Mul, Neg))  # the nodes that polynomials expand; all others are atoms


def _poly(e: Expr) -> Poly:
    """Returns the polynomial of a node from those of its operands; a node that is no sum or product is an atom."""
    kind = type(e)
    if kind is Const:
        return constant(e.payload)
    if kind is Add:
        return add(poly_of(e.args[0]), poly_of(e.args[1]))
    if kind is Sub:
        return add(poly_of(e.args[0]), poly_of(e.args[1]), -1)
    if kind is Neg:
        return scale(poly_of(e.args[0]), -1)
    if kind is Mul:
        a, b = poly_of(e.args[0]), poly_of(e.args[1])
        if len(a) * len(b) <= MAX_TERMS:
            return multiply(a, b)
    return {(e,): 1}


def to_expr(p: Poly, dtype: DType) -> Expr:
    """The expression of a polynomial: positive terms first, then by degree; the constant last (first if it alone is positive)."""
    terms = sorted(((c < 0, mono_order(m), m, c) for m, c in p.items() if m), key=lambda t: t[:2])
    rest = p.get((), 0)
    result: Expr | None = None
    if rest > 0 and terms and terms[0][0]:  # 3 - n
        result, rest = Const(rest, dtype), 0
    for _, _, m, c in terms:
        product = reduce(Mul, m) if len(m) > 1 else m[0]
        if result is None:
            result = product if c == 1 else Neg(product) if c == -1 else Mul(product, Const(c, dtype))
        else:
            sized = product if abs(c) == 1 else Mul(product, Const(abs(c), dtype))
            result = Add(result, sized) if c > 0 else Sub(result, sized)
    if result is None:
        return Const(rest, dtype)
    if rest:
        result = Add(result, Const(rest, dtype)) if rest > 0 else Sub(result, Const(-rest, dtype))
    return result


def quotient(p: Poly, d: Poly) -> Poly | None:
    """The q with p = d * q, or None if `d` does not divide `p`.

    (h + 2) * (w + 2) is h*w + h*2 + w*2 + 4 once it is expanded; divided by w + 2 it is h + 2 again.
    """
    if not d:
        return None
    lead = min(d, key=mono_order)  # a monomial order compatible with products: if d divides p, its leading term divides that of p
    result: Poly = {}
    while p:
        top = min(p, key=mono_order)
        part = without(top, lead)
        if part is None or p[top] % d[lead]:
            return None
        term: Poly = {part: p[top] // d[lead]}
        result, p = add(result, term), add(p, multiply(d, term), -1)
    return result


def atoms(p: Poly) -> list[Expr]:
    """Returns the atoms of a polynomial, each once, sorted."""
    return sorted({a for m in p for a in m}, key=order)


def content(p: Poly) -> int:
    """The greatest common divisor of the coefficients of the non-constant terms (0 when there are none)."""
    return gcd(*(c for m, c in p.items() if m))


def replace(p: Poly, atom: Expr, by: Poly) -> Poly:
    """Returns `p` with an atom replaced by a polynomial."""
    result: Poly = {}
    for m, c in p.items():
        power = m.count(atom)
        term: Poly = {tuple(a for a in m if a is not atom): c}
        for _ in range(power):
            term = multiply(term, by)
        result = add(result, term)
    return result
