"""log, log2, log10, log1p and pow.

x = 2^k * m with m in sqrt(1/2)..sqrt(2), and log x = k*ln2 + log m, where log m is a polynomial in m - 1 (f32) or a series in s = (m -
1)/(m + 1) (f64). pow, log2 and log10 need the logarithm to more digits than their own result: f32 computes it in f64, f64 as a pair.
"""

from __future__ import annotations

import math

from ...dtype import f32, f64, i32
from ..expr import Add, And, BitAnd, Bitcast, BitOr, Call, Cast, Const, Div, Eq, Expr, Lt, Mul, MulAdd, Ne, Neg, Not, Or, Select, Shr, Sub
from .build import (
    Pair,
    absolute,
    bias,
    bits,
    by_pairs,
    clamp,
    fraction_bits,
    number,
    pair_product,
    pair_sum,
    pattern,
    polynomial,
    quick_two_sum,
    rest_of,
    sign_bit,
    signed,
    two_product,
    two_sum,
    unsigned,
    whole,
)
from .exponential import EXP_64, exp_of

_SQRT_HALF = {f32: 0x3F3504F3, f64: 0x3FE6A09E667F3BCD}  # the bits of sqrt(1/2)
_UP = 2048  # larger than any -k, to make k + _UP positive
# High and low parts: a multiple of the first of ln2 by any k is exact; the pairs are correct to twice the precision.
_LN2_32 = (0.693359375, -2.12194440e-4)
_LN2_64 = (6.93147180369123816490e-1, 1.90821492927058770002e-10)
_LN2_PAIR = (float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56"))
_INVERSE_LN2 = (float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.777d0ffda0d24p-56"))
_INVERSE_LN10 = (float.fromhex("0x1.bcb7b1526e50ep-2"), float.fromhex("0x1.95355baaafad3p-57"))

# Coefficients of (log(1 + f) - f + f^2/2) / f^3.
_LOG_32 = (
    -7.634501e-2, 1.2761582e-1, -1.3160183e-1, 1.4201757e-1, -1.6623357e-1, 2.0001227e-1, -2.500082e-1, 3.333333e-1,
)  # fmt: skip
# Coefficients of (log m / s - 2) / s^2 in s^2: 2/3 + 2/5 s^2 + …
_LOG_64 = (
    1.479819860511658591e-1, 1.531383769920937332e-1, 1.818357216161805012e-1, 2.222219843214978396e-1, 2.857142874366239149e-1,
    3.999999999940941908e-1, 6.666666666666735130e-1,
)  # fmt: skip
_LOG_OF_32 = (0.16820453905391045, 0.1812359112301928, 0.22223373224269521, 0.28571417109371106, 0.40000000052383608, 0.66666666666587064)
# Coefficients of q in e^r = 1 + r + r^2 * q(r), to about 35 bits.
_EXP_TO_32 = (
    2.7279610145791572e-6, 2.5111331547216853e-5, 1.9845735705608966e-4, 1.3887718136774764e-3, 8.3333178286672182e-3,
    4.166668340522828e-2, 1.6666666818855707e-1, 4.9999999932502517e-1,
)  # fmt: skip
# Coefficients of (log m / 2s - 1 - s^2/3) / s^4 in s^2: 1/5 + 1/7 s^2 + …
_LOG_TAIL = (
    0.055069997110319327, 0.052114049803071383, 0.058843396147481208, 0.066666201321031198, 0.076923083782190323,
    0.090909090846081945, 0.1111111111114541, 0.14285714285714187, 0.2,
)  # fmt: skip


def _split(x: Expr, up: tuple[Expr, int] | None = None) -> tuple[Expr, Expr, Expr]:
    """k as a float, m, and k in place of the exponent field, for a positive normal x.

    `up` is a condition and an exponent: if it holds, x was multiplied by that power of two, which is taken off k.
    """
    d = x.dtype
    n = fraction_bits(d)
    least = pattern(_SQRT_HALF[d], x)
    lowered = Sub(bits(x), least if up is None else Select(up[0], pattern(_SQRT_HALF[d] + (up[1] << n), x), least))
    m = Bitcast(d, Add(BitAnd(lowered, pattern((1 << n) - 1, x)), least))
    field = BitAnd(lowered, pattern(((1 << (d.bits - n)) - 1) << n, x))
    if d is f32:
        return Cast(d, Shr(Bitcast(i32, lowered), Const(n, i32))), m, field
    # Few machines convert 64-bit integers to floats: k + _UP is positive, and its bits become the fraction of a float.
    return whole(Shr(Add(lowered, pattern(_UP << n, x)), pattern(n, x)), d, number(2.0**n + _UP, x)), m, field


def _split_any(x: Expr) -> tuple[Expr, Expr]:
    """Splits a positive x, which may be denormal, into k and m with x = 2^k * m; returns both."""
    d = x.dtype
    up = fraction_bits(d) + 2
    small = Lt(x, number(2.0 ** (1 - bias(d)), x))
    return _split(Select(small, Mul(x, number(2.0**up, x)), x), (small, up))[:2]


def _log(k: Expr, f: Expr, low: Expr | None = None) -> Expr:
    """k*ln2 + log(1 + f); in f32 log(1 + f + low), where `low`, if any, is below the last place of f."""
    if f.dtype is f32:
        near = MulAdd(k, number(_LN2_32[0], f), f)
        # The rounding error of `near`: the product is exact, and 0 or larger than f.
        error: Expr = Sub(f, MulAdd(k, number(-_LN2_32[0], f), near))
        error = error if low is None else Add(error, low)
        square = Mul(f, f)
        rest = MulAdd(square, number(-0.5, f), MulAdd(k, number(_LN2_32[1], f), error))
        return Add(near, MulAdd(Mul(square, f), by_pairs(f, square, _LOG_32), rest))
    s = Div(f, Add(f, number(2.0, f)))
    z = Mul(s, s)
    half = Mul(Mul(f, f), number(0.5, f))
    rest = MulAdd(s, MulAdd(polynomial(z, _LOG_64), z, half), Mul(k, number(_LN2_64[1], f)))
    return MulAdd(k, number(_LN2_64[0], f), Sub(f, Sub(half, rest)))


def _at_edges(value: Expr, x: Expr, y: Expr) -> Expr:
    """`value` if 0 < x < inf; -inf at 0, NaN below, `y` for inf and NaN."""
    zero, one = number(0.0, x), pattern(1, x)
    infinity = ((1 << (x.dtype.bits - 1 - fraction_bits(x.dtype))) - 1) << fraction_bits(x.dtype)
    edge = Select(Eq(x, zero), number(-math.inf, x), Select(Lt(x, zero), number(math.nan, x), y))
    return Select(Lt(Sub(bits(x), one), pattern(infinity - 1, x)), value, edge)


def log(x: Expr) -> Expr:
    """Returns the definition of the natural logarithm as an expression; denormals are scaled first."""
    k, m = _split_any(x)
    return _at_edges(_log(k, Sub(m, number(1.0, x))), x, x)


def _log_to_base(x: Expr, inverse: Pair, fused: bool) -> Expr:
    """log x times 1 / log base, which is given as a pair. With `fused`, by FMA."""
    if x.dtype is f32:
        wide = Cast(f64, x)  # a normal f64, even if x is denormal
        return _at_edges(Cast(f32, Mul(_log_of_f32(wide), inverse[0])), x, x)
    return _at_edges(pair_product(_log_pair(x, fused), inverse, fused)[0], x, x)


def log2(x: Expr, fused: bool = True) -> Expr:
    """Returns the definition of the logarithm to base 2 as an expression."""
    return _log_to_base(x, (Const(_INVERSE_LN2[0], f64), Const(_INVERSE_LN2[1], f64)), fused)


def log10(x: Expr, fused: bool = True) -> Expr:
    """Returns the definition of the logarithm to base 10 as an expression."""
    return _log_to_base(x, (Const(_INVERSE_LN10[0], f64), Const(_INVERSE_LN10[1], f64)), fused)


def log1p(x: Expr) -> Expr:
    """Returns the definition of log(1 + x); the rounding error of 1 + x is added to the fraction."""
    d = x.dtype
    u, error = two_sum(number(1.0, x), x)
    k, m, field = _split(u)
    twice = Bitcast(d, Sub(pattern((bias(d) + 1) << fraction_bits(d), x), field))  # 2^(1 - k); 0 for the largest k
    fraction, shifted = Sub(m, number(1.0, x)), Mul(error, twice)
    f = MulAdd(shifted, number(0.5, x), fraction)
    # The rounding error of f: `fraction` is 0, or the larger operand.
    low = MulAdd(shifted, number(0.5, x), Sub(fraction, f)) if d is f32 else None
    return signed(_at_edges(_log(k, f, low), u, x), x)


def _log_of_f32(x: Expr) -> Expr:
    """log of a positive f64 that was converted from f32, to about 50 bits."""
    k, m, _ = _split(x)
    f = Sub(m, number(1.0, x))
    s = Div(f, Add(f, number(2.0, x)))
    z = Mul(s, s)
    return MulAdd(k, number(_LN2_PAIR[0], x), MulAdd(Mul(s, z), polynomial(z, _LOG_OF_32), Add(s, s)))


def _log_pair(x: Expr, fused: bool) -> Pair:
    """log of a positive f64 to about 66 bits. With `fused`, by FMA."""
    k, m = _split_any(x)
    f = Sub(m, number(1.0, x))
    d, d_low = quick_two_sum(number(2.0, x), f)
    s = Div(f, d)
    s_low = Div(MulAdd(Neg(s), d_low, rest_of(f, s, d, fused)), d)
    z = pair_product((s, s_low), (s, s_low), fused)
    third = (number(1.0 / 3.0, x), number(float.fromhex("0x1.5555555555555p-56"), x))
    series = pair_sum(third, (Mul(polynomial(z[0], _LOG_TAIL), z[0]), number(0.0, x)))
    cube = pair_product(pair_product((s, s_low), z, fused), series, fused)
    total = pair_sum((s, s_low), cube)
    twice = (Add(total[0], total[0]), Add(total[1], total[1]))
    ln2 = two_product(k, number(_LN2_PAIR[0], x), fused)
    return pair_sum((ln2[0], MulAdd(k, number(_LN2_PAIR[1], x), ln2[1])), twice)


def _power(size: Expr, y: Expr, fused: bool) -> Expr:
    """size^y for a positive finite size and a finite y. With `fused`, by FMA."""
    if size.dtype is f32:
        wide = Mul(Cast(f64, clamp(y, -(2.0**40), 2.0**40)), _log_of_f32(Cast(f64, size)))
        return Cast(f32, exp_of(clamp(wide, -200.0, 200.0), _EXP_TO_32))
    y = clamp(y, -(2.0**70), 2.0**70)  # large enough for the powers of 1 ± 2^-53 to overflow or underflow
    high, low = _log_pair(size, fused)
    p, error = two_product(y, high, fused)
    rest = MulAdd(y, low, error)
    inside = Lt(absolute(p), number(800.0, p))
    return exp_of(clamp(p, -746.0, 710.0), EXP_64, Select(inside, rest, number(0.0, p)))


def pow(x: Expr, y: Expr, fused: bool = True) -> Expr:
    """Returns the definition of x^y as an expression, with all special cases of C99. With `fused`, by FMA."""
    d = x.dtype
    zero, one, inf, nan = (number(v, x) for v in (0.0, 1.0, math.inf, math.nan))
    size = absolute(x)
    whole_y = Eq(Call("trunc", y), y)
    half = Mul(y, number(0.5, x))
    odd = And(whole_y, Ne(Call("trunc", half), half))
    edge = Or(Eq(size, zero), Eq(size, inf))
    at_edge = Select(Lt(y, zero), Select(Eq(size, zero), inf, zero), size)
    value = Select(edge, at_edge, _power(size, y, fused))
    turned = Bitcast(d, BitOr(bits(value), Select(odd, sign_bit(x), Const(0, unsigned(d)))))
    undefined = And(And(Lt(x, zero), Not(whole_y)), Lt(size, inf))
    unordered = Or(Ne(x, x), Ne(y, y))
    sure = Or(Eq(x, one), Eq(y, zero))
    return Select(sure, one, Select(Or(undefined, unordered), nan, turned))
