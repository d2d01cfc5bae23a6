"""Building blocks of function definitions: literals, polynomials, bit patterns, error-free sums and products.

Everything works for f32 and f64 (error-free products: f64 only); the dtype is that of the operand. Where a second rounding does no harm,
a multiplication and an addition are a `MulAdd`: one rounding, or two in the forms without FMA. Building blocks that must be exact take
`fused`; without it they take a dozen operations.

    horner(x, (0.5, 1.0, 2.0))  ->  muladd(muladd(0.5, x, 1.0), x, 2.0)
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dtype import DType, f32, f64, u32, u64
from ..expr import Add, BitAnd, Bitcast, BitOr, Call, Const, Expr, Fma, Max, Min, Mul, MulAdd, Neg, Shl, Sub


def number(value: float, like: Expr) -> Const:
    """Returns the literal `value` in the dtype of `like`."""
    return Const(value, like.dtype)


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The polynomial in `x` by Horner's rule, the coefficient of the highest power first."""
    result: Expr = number(coefficients[0], x)
    for c in coefficients[1:]:
        result = MulAdd(result, x, number(c, x))
    return result


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The polynomial in `x` by Estrin's scheme (a balanced tree), the coefficient of the highest power first.

    It costs one more multiplication per level than Horner's rule, but has short dependence chains, whose latency is most of the time.
    """
    terms: list[Expr] = [number(c, x) for c in reversed(coefficients)]
    power = x
    while len(terms) > 1:
        odd = terms[-1:] if len(terms) % 2 else []
        terms = [MulAdd(b, power, a) for a, b in zip(terms[0::2], terms[1::2], strict=False)] + odd
        power = Mul(power, power)
    return terms[0]


def by_pairs(x: Expr, square: Expr, coefficients: Sequence[float]) -> Expr:
    """The polynomial in `x`, the coefficient of the highest power first: pairs of terms, then Horner's rule in the square.

    Half the dependence chain of Horner's rule, without extra multiplications; for callers that have the square anyway.
    """
    terms: list[Expr] = [number(c, x) for c in reversed(coefficients)]
    *pairs, last = [MulAdd(b, x, a) for a, b in zip(terms[0::2], terms[1::2], strict=False)] + (terms[-1:] if len(terms) % 2 else [])
    for pair in reversed(pairs):
        last = MulAdd(last, square, pair)
    return last


def absolute(x: Expr) -> Expr:
    """Returns the expression |x|."""
    return Call("abs", x)


def clamp(x: Expr, low: float, high: float) -> Expr:
    """Returns `x` clamped to low..high as an expression; NaN stays NaN."""
    return Min(Max(x, number(low, x)), number(high, x))


# Bit patterns: sign, exponent field, fraction.


def fraction_bits(d: DType) -> int:
    """Returns the number of fraction bits of f32 or f64, without the hidden one."""
    return 23 if d is f32 else 52


def bias(d: DType) -> int:
    """The exponent bias: the exponent field of 1.0."""
    return 127 if d is f32 else 1023


def unsigned(d: DType) -> DType:
    """The unsigned integer type that holds the bits of a float."""
    return u32 if d is f32 else u64


def bits(x: Expr) -> Expr:
    """Returns the bits of a float as an expression of the unsigned integer type of its width."""
    return Bitcast(unsigned(x.dtype), x)


def pattern(value: int, like: Expr) -> Const:
    """Returns an integer literal to combine with the bits of floats of the dtype of `like`."""
    return Const(value, unsigned(like.dtype))


def sign_bit(x: Expr) -> Expr:
    """Returns the bits of `x` with all but the sign bit cleared, as an expression."""
    return BitAnd(bits(x), pattern(1 << (x.dtype.bits - 1), x))


def signed(size: Expr, x: Expr) -> Expr:
    """`size` with the sign of `x`; `size` must not be negative unless `x` is."""
    return Bitcast(size.dtype, BitOr(bits(size), sign_bit(x)))


def whole_bias(d: DType) -> float:
    """A constant whose addition rounds to an integer n and leaves n + bias in the low bits; see `power_of_two`."""
    return 1.5 * 2.0 ** fraction_bits(d) + bias(d)


def power_of_two(t: Expr) -> Expr:
    """2^n for t = n + whole_bias: shifts the low bits into the exponent field."""
    return power_of_field(bits(t), t.dtype)


def power_of_field(field: Expr, d: DType) -> Expr:
    """The power of two whose exponent field is in the low bits of an integer; higher bits are shifted out."""
    return Bitcast(d, Shl(field, Const(fraction_bits(d), unsigned(d))))


def whole(field: Expr, d: DType, base: Expr | None = None) -> Expr:
    """The small integer `field` as a float minus `base` (which must include 2^fraction_bits): its bits become a fraction."""
    n = fraction_bits(d)
    joined = Bitcast(d, BitOr(field, Const((bias(d) + n) << n, unsigned(d))))
    return Sub(joined, Const(2.0**n, d) if base is None else base)


# Pairs (double-double arithmetic): an unevaluated sum of two floats, of which the second is small.

Pair = tuple[Expr, Expr]


def two_sum(a: Expr, b: Expr) -> Pair:
    """Returns a + b and its exact rounding error, as expressions (Knuth)."""
    s = Add(a, b)
    t = Sub(s, a)
    return s, Add(Sub(a, Sub(s, t)), Sub(b, t))


def quick_two_sum(a: Expr, b: Expr) -> Pair:
    """Returns a + b and its exact rounding error, as expressions, if |a| >= |b| (Dekker)."""
    s = Add(a, b)
    return s, Sub(b, Sub(s, a))


def two_product(a: Expr, b: Expr, fused: bool) -> Pair:
    """Returns a * b and its exact rounding error, as expressions; without `fused` only for f64 below 2^996."""
    p = Mul(a, b)
    if fused:
        return p, Fma(a, b, Neg(p))
    (a1, a0), (b1, b0) = _halves(a), _halves(b)  # Dekker's algorithm: all products of halves are exact
    return p, Add(Add(Add(Sub(Mul(a1, b1), p), Mul(a1, b0)), Mul(a0, b1)), Mul(a0, b0))


def _halves(x: Expr) -> Pair:
    """x as a sum of two numbers of at most 26 bits (Veltkamp splitting)."""
    assert x.dtype is f64
    split = 2.0**27 + 1.0
    if isinstance(x, Const):
        moved = x.value * split
        high = moved - (moved - x.value)
        return number(high, x), number(x.value - high, x)
    large = Mul(x, number(split, x))
    top = Sub(large, Sub(large, x))
    return top, Sub(x, top)


def rest_of(c: Expr, a: Expr, b: Expr, fused: bool) -> Expr:
    """Returns c - a*b without rounding error, if the difference is small: by FMA if `fused`, else by an exact product."""
    if fused:
        return Fma(Neg(a), b, c)
    p, low = two_product(a, b, fused)
    return Sub(Sub(c, p), low)


def pair_product(a: Pair, b: Pair, fused: bool) -> Pair:
    """Returns the product of two double-double pairs, to about twice the precision."""
    p, low = two_product(a[0], b[0], fused)
    return quick_two_sum(p, MulAdd(a[0], b[1], MulAdd(a[1], b[0], low)))


def pair_sum(a: Pair, b: Pair) -> Pair:
    """Returns the sum of two double-double pairs, to about twice the precision unless it cancels."""
    s, low = two_sum(a[0], b[0])
    return quick_two_sum(s, Add(low, Add(a[1], b[1])))
