"""asin, acos, atan and atan2. f32 computes in f64 and rounds once, so its error is that of one rounding.

atan: beyond tan(pi/8) and tan(3 pi/8) the argument is rotated by pi/4 or pi/2, so that the series is short. asin: beyond 1/2 it is
pi/2 - 2 asin(sqrt((1 - x) / 2)). Multiples of pi/4 are used in two parts, for accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ...dtype import f32, f64
from ..expr import Add, Call, Cast, Div, Eq, Expr, Lt, Max, Min, Mul, MulAdd, Ne, Neg, Or, Select, Sub
from .build import absolute, number, pattern, polynomial, rest_of, sign_bit, signed

# High and low parts of multiples of pi/4.
_PI = (math.pi, float.fromhex("0x1.1a62633145c07p-53"))
_HALF_PI = (math.pi / 2, float.fromhex("0x1.1a62633145c07p-54"))
_QUARTER_PI = (math.pi / 4, float.fromhex("0x1.1a62633145c07p-55"))

# (atan s / s - 1) / s^2 in s^2 for s up to tan(pi/8); (asin s / s - 1) / s^2 in s^2 for s up to 1/2
_ATAN_32 = (
    0.050481385120797445, -0.08624676145249494, 0.11071365021884794, -0.14284151193628614, 0.19999977258688387, -0.333333332792548,
)  # fmt: skip
_ATAN_64 = (
    -0.01391822929102443, 0.030635704112969498, -0.04104436265755082, 0.04719395030027433, -0.05258041554297779,
    0.058819252531928636, -0.06666642020055166, 0.07692306736000173, -0.0909090906700999, 0.11111111110754729,
    -0.14285714285711518, 0.19999999999999993, -0.3333333333333333,
)  # fmt: skip
_ASIN_32 = (
    0.030974540371355073, 0.010574415516912909, 0.023611817008891752, 0.030269138728589183, 0.04464766388813485, 0.07499992404401838,
    0.16666666686085643,
)  # fmt: skip
_ASIN_64 = (
    0.02961201126495512, -0.01924167174674304, 0.019554513336123378, 0.0030448799094556773, 0.009319560794767446, 0.009621842970100282,
    0.011566459612121669, 0.01396378001220357, 0.017352816540325496, 0.02237215744350722, 0.03038194447553234, 0.044642857142551895,
    0.07500000000000118, 0.16666666666666666,
)  # fmt: skip

Series = Sequence[float]


def _by_f64(define: Callable[..., Expr], short: Series, long: Series) -> Callable[..., Expr]:
    """Returns a function that defines `define` for both dtypes: in f64, for f32 with the shorter series `short` and a final rounding."""

    def of(*args: Expr) -> Expr:
        if args[0].dtype is f32:
            return Cast(f32, define(short, *(Cast(f64, a) for a in args)))
        return define(long, *args)

    return of


def _turned(s: Expr, series: Series, turn_high: Expr, turn_low: Expr) -> Expr:
    """Returns turn + atan(s) for a small s, by a series; `turn` is the sum of a high and a low part."""
    z = Mul(s, s)
    return Add(turn_high, Add(s, MulAdd(Mul(s, z), polynomial(z, series), turn_low)))


def _atan(series: Series, x: Expr) -> Expr:
    size, one = absolute(x), number(1.0, x)
    far, middle = Lt(number(1 + math.sqrt(2), x), size), Lt(number(math.sqrt(2) - 1, x), size)

    def choice(a: Expr, b: Expr, c: Expr) -> Expr:
        return Select(far, a, Select(middle, b, c))

    s = Div(choice(Neg(one), Sub(size, one), size), choice(size, Add(size, one), one))
    high, low = (choice(number(h, x), number(q, x), number(0.0, x)) for h, q in zip(_HALF_PI, _QUARTER_PI, strict=True))
    return signed(_turned(s, series, high, low), x)


def _atan2(series: Series, y: Expr, x: Expr) -> Expr:
    """The angle of (x, y): atan of the smaller over the larger, rotated into its octant."""
    zero, one = number(0.0, x), number(1.0, x)
    rise, run = absolute(y), absolute(x)
    least, most = Min(rise, run), Max(rise, run)
    equal = Eq(least, most)  # also if both are infinite
    slope = Select(Eq(most, zero), zero, Select(equal, one, Div(least, most)))
    steep, back = Lt(run, rise), Ne(sign_bit(x), pattern(0, x))
    # atan of a slope in 0..1. The series does not reach that far, so its upper part is rotated by pi/4.
    upper = Lt(number(math.sqrt(2) - 1, x), slope)
    s = Div(Select(upper, Sub(slope, one), slope), Select(upper, Add(slope, one), one))
    quarter = tuple(Select(upper, number(q, x), zero) for q in _QUARTER_PI)
    # steep: pi/2 - angle; back: pi - angle; both: pi/2 + angle. So the angle's sign is that of the parity, and the rotation a constant.
    minus = Ne(steep, back)
    turn = [Select(steep, number(h, x), Select(back, number(p, x), zero)) for h, p in zip(_HALF_PI, _PI, strict=True)]
    high, low = (Select(minus, Sub(t, q), Add(t, q)) for t, q in zip(turn, quarter, strict=True))
    angle = signed(_turned(Select(minus, Neg(s), s), series, high, low), y)
    return Select(Or(Ne(x, x), Ne(y, y)), Add(x, y), angle)


def _near_and_far(series: Series, x: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """True if |x| is beyond 1/2; then s, s*z*series and z with asin(s) = s + s*z*series: s is |x|, or sqrt((1 - |x|) / 2) beyond 1/2."""
    size, half = absolute(x), number(0.5, x)
    far = Lt(half, size)
    z = Select(far, Mul(Sub(number(1.0, x), size), half), Mul(size, size))
    s = Select(far, Call("sqrt", z), size)
    return far, s, Mul(Mul(s, z), polynomial(z, series)), z


def _asin(series: Series, x: Expr, fused: bool = True) -> Expr:
    far, s, rest, z = _near_and_far(series, x)
    twice = Add(_root_error(s, z, fused), Add(rest, rest))
    beyond = Sub(number(_HALF_PI[0], x), Sub(Add(Add(s, s), twice), number(_HALF_PI[1], x)))
    return signed(Select(far, beyond, Add(s, rest)), x)


def _root_error(s: Expr, z: Expr, fused: bool) -> Expr:
    """About 2 * (sqrt(z) - s), for s the rounded square root of z: (z - s*s) / s, or 0 if s is 0."""
    return Select(Eq(s, number(0.0, s)), s, Div(rest_of(z, s, s, fused), s))


def _acos(series: Series, x: Expr, fused: bool = True) -> Expr:
    far, s, rest, z = _near_and_far(series, x)
    twice = Add(Add(s, s), Add(_root_error(s, z, fused), Add(rest, rest)))
    negative = Lt(x, number(0.0, x))
    beyond = Select(negative, Sub(number(_PI[0], x), Sub(twice, number(_PI[1], x))), twice)
    side = Select(negative, Neg(Add(s, rest)), Add(s, rest))
    return Select(far, beyond, Sub(number(_HALF_PI[0], x), Sub(side, number(_HALF_PI[1], x))))


asin = _by_f64(_asin, _ASIN_32, _ASIN_64)
acos = _by_f64(_acos, _ASIN_32, _ASIN_64)
asin_unfused = _by_f64(partial(_asin, fused=False), _ASIN_32, _ASIN_64)
acos_unfused = _by_f64(partial(_acos, fused=False), _ASIN_32, _ASIN_64)
atan = _by_f64(_atan, _ATAN_32, _ATAN_64)
atan2 = _by_f64(_atan2, _ATAN_32, _ATAN_64)
