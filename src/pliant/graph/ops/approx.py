"""Functions that `sym` does not have, as expressions over those it has: tanh, erf, sine and cosine.

Rational and polynomial approximations over a reduced range, good to a few units in the last place of f32. Their meaning is
the expression itself, so every target gives the same bits. Each takes f32 or f64 and computes in the dtype it is given.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dtype import DType, f32, f64, i64
from ...sym.expr import Add, Call, Cast, Const, Div, Eq, Expr, FloorMod, Lt, Max, Min, Mul, Neg, Select, Sub

# Minimax quotients in x^2, highest power first (as used by Eigen and XLA).
_TANH_P: tuple[float, ...] = (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08)
_TANH_P += (1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03)
_TANH_Q = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_ERF_P: tuple[float, ...] = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05)
_ERF_P += (-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02)
_ERF_Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02)


def _polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Horner's scheme, highest power first."""
    total: Expr = Const(coefficients[0], x.dtype)
    for c in coefficients[1:]:
        total = Add(Mul(total, x), Const(c, x.dtype))
    return total


def _quotient(x: Expr, limit: float, p: Sequence[float], q: Sequence[float]) -> Expr:
    """x * p(x^2) / q(x^2) with x kept within the limit."""
    x = Max(Min(x, Const(limit, x.dtype)), Const(-limit, x.dtype))
    square = Mul(x, x)
    return Div(Mul(x, _polynomial(square, p)), _polynomial(square, q))


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent; `x` itself where it is tiny."""
    tiny = Lt(Call("abs", x), Const(0.0004, x.dtype))
    return Select(tiny, x, _quotient(x, 7.90531110763549805, _TANH_P, _TANH_Q))


def erf(x: Expr) -> Expr:
    """The error function, 1 beyond 4."""
    return _quotient(x, 4.0, _ERF_P, _ERF_Q)


_HALF_PI_HIGH, _HALF_PI_LOW = 1.5707963267341256, 6.077100506506192e-11  # the first has 33 bits: k times it is exact
_SIN = (2.7557313707070068e-06, -1.9841269829857949e-04, 8.3333333333224895e-03, -1.6666666666666632e-01)
_COS = (-2.7557314351390663e-07, 2.4801587289476729e-05, -1.3888888888874096e-03, 4.1666666666666602e-02, -0.5)


def cos_sin(x: Expr) -> tuple[Expr, Expr]:
    """The cosine and the sine of an angle; the range is reduced in f64, so large angles are as good as small ones."""
    wide = Cast(f64, x) if x.dtype is f32 else x
    k = Call("round", Mul(wide, Const(0.6366197723675814, f64)))
    r = Sub(Sub(wide, Mul(k, Const(_HALF_PI_HIGH, f64))), Mul(k, Const(_HALF_PI_LOW, f64)))
    square = Mul(r, r)
    sine = Add(r, Mul(Mul(r, square), _polynomial(square, _SIN)))
    cosine = Add(Const(1.0, f64), Mul(square, _polynomial(square, _COS)))
    quadrant = FloorMod(Cast(i64, k), Const(4, i64))
    odd = Eq(FloorMod(quadrant, Const(2, i64)), Const(1, i64))
    flip_cos = Eq(FloorMod(_half_up(quadrant), Const(2, i64)), Const(1, i64))
    flip_sin = Lt(Const(1, i64), quadrant)
    return _signed(Select(odd, sine, cosine), flip_cos, x.dtype), _signed(Select(odd, cosine, sine), flip_sin, x.dtype)


def _half_up(quadrant: Expr) -> Expr:
    """(quadrant + 1) // 2: the quadrants 1 and 2, where the cosine is negative, become 1."""
    return (quadrant + 1) // 2


def _signed(value: Expr, negative: Expr, dtype: DType) -> Expr:
    result = Select(negative, Neg(value), value)
    return Cast(dtype, result) if dtype is not f64 else result
