"""sin, cos and tan, for |x| < 2^30 in f32 and < 2^45 in f64; NaN beyond.

In f32 the sine and the cosine are ±sin r with x = n * pi + r, or |x| = (n + 1/2) * pi - r: one polynomial in f64, rounded once, with the
sign in the last bit of n. This takes as long as computing both sin r and cos r in f32 and selecting one, and is twice as accurate.
tan of f32 is computed in f64, too, and rounded once. tan, and all three in f64, use x = n * pi/2 + r; n modulo 4 selects one of ±sin r,
±cos r. f64 uses pi/2 in three parts and keeps r as a
pair, because near a multiple of pi/2 all but the last digits cancel. Without FMA, f32 uses pi/2 in parts short enough that their products
are exact.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...dtype import f32, f64
from ..expr import Add, BitAnd, Bitcast, BitXor, Cast, Const, Div, Eq, Expr, Fma, Lt, Mul, MulAdd, Ne, Neg, Select, Shl, Sub
from .build import absolute, bits, horner, number, pattern, polynomial, sign_bit, two_product, two_sum

RANGE = {f32: 2.0**30, f64: 2.0**45}  # beyond, the reduction below would lose accuracy
# pi/2 as an unevaluated sum of three f64 numbers.
_HALF_PI = (float.fromhex("0x1.921fb54442d18p+0"), float.fromhex("0x1.1a62633145c07p-54"), float.fromhex("-0x1.f1976b7ed8fbcp-110"))
# The first two parts have few bits: their product with an integer of 31 bits is exact.
_HALF_PI_PARTS = (float.fromhex("0x1.921fbp+0"), float.fromhex("0x1.5110bp-22"), float.fromhex("0x1.18469898cc517p-44"))
_ROUND = 1.5 * 2.0**52  # adding and subtracting this rounds an f64 to an integer

# Coefficients of (sin r / r - 1) / r^2 in r^2 on 0..pi/2: relative error of the sine 2^-27.
_SIN_32 = (2.60343538843998e-06, -1.980859241968377e-4, 8.3330532472218e-3, -1.666665908086172e-1)
# Coefficients of (r / tan r - 1) / r^2 in r^2 on 0..pi/4: relative error 2^-27.
_COT_32 = (-2.4785311835e-4, -2.09664501384e-3, -2.22264206883e-2, -3.33333055503e-1)
# Coefficients of (sin r / r - 1) / r^2, and of (cos r - 1 + r^2/2) / r^4, in r^2 on 0..pi/4.
_SIN_64 = (
    1.58969099521155010221e-10, -2.50507602534068634195e-8, 2.75573137070700676789e-6, -1.98412698298579493134e-4,
    8.33333333332248946124e-3, -1.66666666666666324348e-1,
)  # fmt: skip
_COS_64 = (
    -1.13596475577881948265e-11, 2.08757232129817482790e-9, -2.75573143513906633035e-7, 2.48015872894767294178e-5,
    -1.38888888888741095749e-3, 4.16666666666666019037e-2,
)  # fmt: skip


class _Angle(NamedTuple):
    """The number of quarter turns as bits (the low two count), and the sine and cosine of the rest."""

    quarters: Expr
    sine: Expr
    cosine: Expr


def _rest(x: Expr, n: Expr, turn: float, fused: bool) -> Expr:
    """x - n * turn*pi/2 for an f32 in f64, accurate even if most digits cancel; `turn` is a power of two, or the negative of one.

    With `fused`, by FMA.
    """
    for part in _HALF_PI[:2] if fused else _HALF_PI_PARTS:
        x = Fma(n, number(-turn * part, x), x) if fused else Sub(x, Mul(n, number(turn * part, x)))
    return x


def _sine32(r: Expr, n: Expr) -> Expr:
    """The sine, as an f32, of an angle in -pi/2..pi/2 in f64; negated if the last bit of `n` is set."""
    z = Mul(r, r)
    size = MulAdd(Mul(r, z), horner(z, _SIN_32), r)
    return Cast(f32, Bitcast(f64, BitXor(bits(size), Shl(bits(n), pattern(63, r)))))


def _sin32(x: Expr, fused: bool) -> Expr:
    """The sine in f32: |x| = n * pi + r. With `fused`, by FMA."""
    wide = Cast(f64, absolute(x))
    t = MulAdd(wide, number(1.0 / math.pi, wide), number(_ROUND, wide))
    value = _sine32(_rest(wide, Sub(t, number(_ROUND, wide)), 2.0, fused), t)
    return _within(Bitcast(f32, BitXor(bits(value), sign_bit(x))), x)


def _cos32(x: Expr, fused: bool) -> Expr:
    """The cosine in f32: |x| = (n + 1/2) * pi - r. With `fused`, by FMA."""
    wide, half = Cast(f64, absolute(x)), Const(0.5, f64)
    t = Add(MulAdd(wide, number(1.0 / math.pi, wide), Neg(half)), number(_ROUND, wide))
    middle = Add(Sub(t, number(_ROUND, wide)), half)
    return _within(_sine32(_rest(Neg(wide), middle, -2.0, fused), t), x)


def _tan32(x: Expr, fused: bool) -> Expr:
    """The tangent in f32: r / c, or -c / r after an odd number of quarter turns, with the polynomial c = r / tan r.

    Rest, polynomial and quotient are in f64 and rounded once: each of them rounded in f32 would add half a unit. A zero keeps its sign,
    because x - 0 * pi/2 does. With `fused`, by FMA.
    """
    wide = Cast(f64, x)
    t = MulAdd(wide, number(2.0 / math.pi, wide), number(_ROUND, wide))
    r = _rest(wide, Sub(t, number(_ROUND, wide)), 1.0, fused)
    c = horner(Mul(r, r), (*_COT_32, 1.0))
    odd = _odd(bits(t))
    return _within(Cast(f32, Div(Select(odd, Neg(c), r), Select(odd, r, c))), x)


def _reduce64(x: Expr, fused: bool) -> _Angle:
    """Range reduction of an f64, with the rest as a pair. With `fused`, by FMA."""
    t = MulAdd(x, number(2.0 / math.pi, x), number(_ROUND, x))
    n = Sub(t, number(_ROUND, x))
    first, first_low = two_product(n, number(_HALF_PI[0], x), fused)
    second, second_low = two_product(n, number(_HALF_PI[1], x), fused)
    a, a_low = two_sum(Sub(x, first), Neg(first_low))
    b, b_low = two_sum(a, Neg(second))
    r, low = two_sum(b, Sub(Add(a_low, b_low), MulAdd(n, number(_HALF_PI[2], x), second_low)))
    z = Mul(r, r)
    cube = Mul(z, r)
    # sin(r + low) = r + (r^3 * (c0 + z * …) + low * (1 - z/2))
    sine = Add(r, MulAdd(cube, polynomial(z, _SIN_64), MulAdd(Mul(z, low), number(-0.5, x), low)))
    one, half = number(1.0, x), Mul(z, number(0.5, x))
    w = Sub(one, half)
    error = Sub(Sub(one, w), half)
    cosine = Add(w, Add(error, MulAdd(Mul(z, z), polynomial(z, _COS_64), Neg(Mul(r, low)))))
    return _Angle(bits(t), sine, cosine)


def _within(value: Expr, x: Expr) -> Expr:
    """Returns `value`, or NaN if |x| is beyond the range in which the function is accurate."""
    return Select(Lt(absolute(x), number(RANGE[x.dtype], x)), value, number(math.nan, x))


def _odd(quarters: Expr) -> Expr:
    """True if the number of quarter turns is odd."""
    return Ne(BitAnd(quarters, Const(1, quarters.dtype)), Const(0, quarters.dtype))


def _wave(x: Expr, angle: _Angle, ahead: int) -> Expr:
    """Returns the sine of x + ahead * pi/2 as an expression, from the reduced angle of x."""
    d = x.dtype
    turn = Add(angle.quarters, pattern(ahead, x)) if ahead else angle.quarters
    size = Select(_odd(turn), angle.cosine, angle.sine)
    sign = Shl(BitAnd(turn, pattern(2, x)), pattern(d.bits - 2, x))
    return _within(Bitcast(d, Add(bits(size), sign)), x)


def sin(x: Expr, fused: bool = True) -> Expr:
    """Returns the definition of the sine as an expression; NaN beyond the range in which it is accurate. With `fused`, by FMA."""
    if x.dtype is f32:
        return _sin32(x, fused)
    return Select(Eq(x, number(0.0, x)), x, _wave(x, _reduce64(x, fused), 0))  # a zero keeps its sign


def cos(x: Expr, fused: bool = True) -> Expr:
    """Returns the definition of the cosine as an expression; NaN beyond the range in which it is accurate."""
    return _cos32(x, fused) if x.dtype is f32 else _wave(x, _reduce64(x, fused), 1)


def tan(x: Expr, fused: bool = True) -> Expr:
    """Returns the definition of the tangent as an expression; after an odd number of quarter turns it is -cos r / sin r.

    NaN beyond the range in which it is accurate. With `fused`, by FMA.
    """
    if x.dtype is f32:
        return _tan32(x, fused)
    angle = _reduce64(x, fused)
    odd = _odd(angle.quarters)
    above = Select(odd, Neg(angle.cosine), angle.sine)
    below = Select(odd, angle.sine, angle.cosine)
    return Select(Eq(x, number(0.0, x)), x, _within(Div(above, below), x))
