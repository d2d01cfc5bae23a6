"""exp, exp2, expm1, decay, sigmoid and tanh, by range reduction and minimax polynomials.

x = n * ln2 + r, and e^x = 2^n * e^r with e^r = 1 + r + r^2 * q(r). Adding a large constant rounds to n and leaves it in the low bits,
from where it is shifted into the exponent field. exp and exp2 multiply by two factors of 2^n: both are normal numbers, and only the
second product can round or overflow. In f64, and in exp2, n is even, and the factors are equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...dtype import f32
from ..expr import Add, Call, Div, Expr, Fma, Lt, Max, Min, Mul, MulAdd, Neg, Select, Shr, Sub
from .build import (
    absolute,
    bias,
    bits,
    by_pairs,
    clamp,
    number,
    pattern,
    polynomial,
    power_of_field,
    power_of_two,
    quick_two_sum,
    signed,
    two_product,
    whole_bias,
)

# ln2 in two parts: the product of the first part with any n that occurs is exact (Cody-Waite reduction).
_LN2_32 = (0.693359375, -2.12194440e-4)
_LN2_64 = (6.93147180369123816490e-1, 1.90821492927058770002e-10)
_LN2 = (float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56"))

# Coefficients of q: on -ln2/2..ln2/2 (f64: -ln2..ln2) minimizing the relative error of e^r, on -0.36..0.73 that of e^r - 1; and for
# 2^r = 1 + r*q(r) on -1..1.
_EXP_32 = (1.3814602e-3, 8.3687156e-3, 4.1668389e-2, 1.6666521e-1, 4.9999994e-1)
_DECAY_32 = (8.312520298e-3, 1.666711465e-1, 5.039405126, -0.3399311151)  # q = (a*r^2 + b) * (r + c) + d on -ln2/2..ln2/2
_EXPM1_32 = (2.2774753545e-4, 1.388582461e-3, 8.327345417e-3, 4.1667015736e-2, 1.6666695307e-1)  # (q - 1/2) / r
_STEP = 1.4365  # a little less than 1 / ln2: 88.75 * _STEP is below 127.5, so that n is at most 127
_EXP2_32 = (1.302196798e-6, 1.545922195e-5, 1.540888459e-4, 1.333226837e-3, 9.618096462e-3, 5.550413268e-2, 2.402265121e-1, math.log(2.0))
EXP_64 = (
    7.5947459215601249e-13, 1.1559956726222521e-11, 1.606048388480002e-10, 2.0876087954580982e-9, 2.5052097216495985e-8,
    2.7557321802256236e-7, 2.7557319264740012e-6, 2.4801587296192218e-5, 1.984126984119438e-4, 1.3888888888894811e-3,
    8.3333333333333997e-3, 4.1666666666666637e-2, 1.6666666666666666e-1, 0.5,
)  # fmt: skip
_EXPM1_64 = (
    9.0426284675762193e-13, 1.1349232183757827e-11, 1.6059846239568367e-10, 2.0877164389896044e-9, 2.5052093290577116e-8,
    2.7557318817129007e-7, 2.7557319250918899e-6, 2.4801587301668038e-5, 1.9841269841250298e-4, 1.388888888888896e-3,
    8.3333333333333395e-3, 4.1666666666666666e-2, 1.6666666666666667e-1, 0.5,
)  # fmt: skip
_TANH_32 = (4.46283674e-2, 1.338671023e-1, 3.333302628e-1, 6.666616884e-1, 1.000000012)  # (e^2r - 1 - 2r) / 2r^2 on -ln2/4..ln2/4
_TANH_64 = tuple(c * 2.0 ** (len(_EXPM1_64) - i) for i, c in enumerate(_EXPM1_64))


def _reduce(x: Expr, step: float, most: float | None = None, rough: bool = False) -> tuple[Expr, Expr]:
    """r and 2^n such that x = n * step*ln2 + r; n is at most `most`.

    `rough` takes ln2 as one number: enough if n is small or the last digits of r do not matter, and n * ln2 is not rounded, i.e. with
    FMA.
    """
    d = x.dtype
    t: Expr = MulAdd(x, number(math.log2(math.e) / step, x), number(whole_bias(d), x))
    if most is not None:
        t = Min(t, number(whole_bias(d) + most, x))
    n = Sub(t, number(whole_bias(d), x))
    if rough:
        return Fma(n, number(-step * math.log(2.0), x), x), power_of_two(t)
    high, low = _LN2_32 if d is f32 else _LN2_64
    return MulAdd(n, number(-step * low, x), MulAdd(n, number(-step * high, x), x)), power_of_two(t)


def exp_of(x: Expr, q: Sequence[float], low: Expr | None = None) -> Expr:
    """e^(x + low) for an x in range; `low`, if any, is below the last place of x."""
    r, half = _reduce(x, 2.0)
    if low is None:
        near: Expr = MulAdd(polynomial(r, q), Mul(r, r), r)
    else:
        r, low = quick_two_sum(r, low)
        near = Add(MulAdd(polynomial(r, q), Mul(r, r), low), r)
    return Mul(Mul(Add(near, number(1.0, x)), half), half)


def exp(x: Expr) -> Expr:
    """Returns the definition of e^x as an expression."""
    return _exp_32(clamp(x, -104.0, 89.0)) if x.dtype is f32 else exp_of(clamp(x, -746.0, 710.0), EXP_64)


def _exp_32(x: Expr) -> Expr:
    """e^x in f32, also with odd n: r is half as large as with even n, and so are the errors of r and e^r - 1 relative to e^r.

    t holds n + 2 * 127 in its low bits. Its half, rounded down, and the rest are the exponent fields of the two factors of 2^n.
    """
    two = number(whole_bias(f32) + bias(f32), x)
    t = MulAdd(x, number(math.log2(math.e), x), two)
    n = Sub(t, two)
    high, low = _LN2_32
    r = MulAdd(n, number(-low, x), MulAdd(n, number(-high, x), x))
    square = Mul(r, r)
    q = by_pairs(r, square, _EXP_32)
    fields = bits(t)
    half = Shr(fields, pattern(1, x))
    value = Add(MulAdd(q, square, r), number(1.0, x))
    return Mul(Mul(value, power_of_field(half, f32)), power_of_field(Sub(fields, half), f32))


def exp2(x: Expr, fused: bool = True) -> Expr:
    """Returns the definition of 2^x as an expression. With `fused`, by FMA."""
    x = clamp(x, -151.0, 129.0) if x.dtype is f32 else clamp(x, -1076.0, 1025.0)
    magic = number(whole_bias(x.dtype), x)
    t = MulAdd(x, number(0.5, x), magic)
    r = MulAdd(Sub(t, magic), number(-2.0, x), x)
    half = power_of_two(t)
    one = number(1.0, x)
    if x.dtype is f32:
        value: Expr = MulAdd(r, polynomial(r, _EXP2_32), one)
    else:
        z, error = two_product(r, number(_LN2[0], x), fused)
        low = MulAdd(r, number(_LN2[1], x), error)
        value = Add(Add(MulAdd(polynomial(z, EXP_64), Mul(z, z), low), z), one)
    return Mul(Mul(value, half), half)


def expm1(x: Expr) -> Expr:
    """Returns the definition of e^x - 1 as an expression, accurate near zero."""
    if x.dtype is f32:
        return _expm1_32(x)
    r, power = _reduce(clamp(x, -60.0, 710.0), 1.0, 1023.0)
    near = MulAdd(polynomial(r, _EXPM1_64), Mul(r, r), r)
    return signed(MulAdd(power, near, Sub(power, number(1.0, x))), x)


def _expm1_32(x: Expr) -> Expr:
    """e^x - 1 in f32, as 2^n * (r + r^2 * q) + (2^n - 1), with r = (x - n*high) - n*low kept in two parts.

    x - n*high has no error. 2^n times it is added to 2^n - 1 first: this sum rounds only for negative n, and its rounding error is kept.
    All further terms are small. With _STEP a little less than 1 / ln2, r goes up to 0.73.
    """
    size, one, bias = clamp(x, -30.0, 88.75), number(1.0, x), number(whole_bias(f32), x)
    t = MulAdd(size, number(_STEP, x), bias)
    n = Sub(t, bias)
    high, low = MulAdd(n, number(-_LN2_32[0], x), size), Mul(n, number(-_LN2_32[1], x))
    r = Add(high, low)
    square = Mul(r, r)
    q = MulAdd(by_pairs(r, square, _EXPM1_32), r, number(0.5, x))
    power = power_of_two(t)
    less = Sub(power, one)
    near = MulAdd(power, high, less)
    error = MulAdd(power, high, Sub(less, near))
    return signed(Add(near, MulAdd(power, MulAdd(q, square, low), error)), x)


def decay(x: Expr, fused: bool = True) -> Expr:
    """Returns the definition of e^x for x <= 0, for softmax, as an expression; results that are no normal number are 0.

    x is a difference there, whose own rounding error is ten times that of the rough reduction. With `fused`, by FMA.
    """
    single = x.dtype is f32
    x = Max(x, number(-88.0 if single else -708.8, x))  # below this the power of two is 0
    r, power = _reduce(x, 1.0, rough=single and fused)
    square = Mul(r, r)
    if single:
        a, b, c, d = (number(v, x) for v in _DECAY_32)
        q: Expr = MulAdd(MulAdd(square, a, b), Add(r, c), d)
    else:
        q = polynomial(r, EXP_64)
    return MulAdd(MulAdd(q, square, r), power, power)


def tanh(x: Expr, fused: bool = True) -> Expr:
    """Returns the definition of tanh as an expression: t / (t + 1) with t = (e^(2|x|) - 1) / 2. With `fused`, by FMA."""
    single = x.dtype is f32
    size = Min(absolute(x), number(10.0 if single else 20.0, x))  # beyond this tanh rounds to 1
    r, power = _reduce(size, 0.5, rough=single and fused)
    near = MulAdd(polynomial(r, _TANH_32 if single else _TANH_64), Mul(r, r), r)  # (e^2r - 1) / 2
    half, one = number(0.5, x), number(1.0, x)
    t = MulAdd(power, near, MulAdd(power, half, Neg(half)))
    return signed(Div(t, Add(t, one)), x)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e^-x), computed from e^-|x| so that nothing overflows and small results may be denormal."""
    e = Call("exp", Neg(absolute(x)))
    one = number(1.0, x)
    return Div(Select(Lt(x, number(0.0, x)), e, one), Add(one, e))
