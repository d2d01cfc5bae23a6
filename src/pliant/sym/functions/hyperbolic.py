"""sinh, cosh and the inverses asinh, acosh, atanh, by expm1, exp and log1p. f32 computes in f64 and rounds once."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...dtype import f32, f64
from ..expr import Add, Call, Cast, Div, Expr, Lt, Min, Mul, MulAdd, Select, Sub
from .build import absolute, number, signed

_LARGE = 709.0  # beyond this, e^x overflows although its half does not
_SQUARE = 2.0**28  # beyond this, x^2 + 1 rounds to x^2
_LN2 = math.log(2.0)


def _by_f64(define: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """Returns a definition for both dtypes from one for f64: for f32 it computes in f64 and rounds."""
    return lambda x: Cast(f32, define(Cast(f64, x))) if x.dtype is f32 else define(x)


def _half_exp(size: Expr) -> Expr:
    """Returns e^size / 2, by squaring e^(size / 2), for a size at which e^size alone would overflow."""
    root = Call("exp", Mul(size, number(0.5, size)))
    return Mul(Mul(root, number(0.5, size)), root)


def _sinh(x: Expr) -> Expr:
    size, one = absolute(x), number(1.0, x)
    t = Call("expm1", Min(size, number(_LARGE, x)))
    value = Mul(Add(t, Div(t, Add(t, one))), number(0.5, x))
    return signed(Select(Lt(number(_LARGE, x), size), _half_exp(size), value), x)


def _cosh(x: Expr) -> Expr:
    size, half = absolute(x), number(0.5, x)
    e = Call("exp", Min(size, number(_LARGE, x)))
    return Select(Lt(number(_LARGE, x), size), _half_exp(size), MulAdd(e, half, Div(half, e)))


def _asinh(x: Expr) -> Expr:
    """log(|x| + sqrt(x^2 + 1)), as log1p(|x| + x^2 / (1 + sqrt(x^2 + 1)))."""
    size, one = absolute(x), number(1.0, x)
    near = Min(size, number(_SQUARE, x))
    square = Mul(near, near)
    value = Call("log1p", Add(near, Div(square, Add(one, Call("sqrt", Add(square, one))))))
    large = Add(Call("log", size), number(_LN2, x))
    return signed(Select(Lt(number(_SQUARE, x), size), large, value), x)


def _acosh(x: Expr) -> Expr:
    """log(x + sqrt(x^2 - 1)), as log1p(t + sqrt(2t + t^2)) with t = x - 1."""
    t = Sub(Min(x, number(_SQUARE, x)), number(1.0, x))
    value = Call("log1p", Add(t, Call("sqrt", MulAdd(t, t, Add(t, t)))))
    large = Add(Call("log", x), number(_LN2, x))
    return Select(Lt(x, number(1.0, x)), number(math.nan, x), Select(Lt(number(_SQUARE, x), x), large, value))


def _atanh(x: Expr) -> Expr:
    """log((1 + x) / (1 - x)) / 2."""
    size, one, half = absolute(x), number(1.0, x), number(0.5, x)
    twice = Add(size, size)
    below = Sub(one, size)
    t = Select(Lt(size, half), Add(twice, Div(Mul(twice, size), below)), Div(twice, below))
    return signed(Mul(Call("log1p", t), half), x)


sinh, cosh = _by_f64(_sinh), _by_f64(_cosh)
asinh, acosh, atanh = _by_f64(_asinh), _by_f64(_acosh), _by_f64(_atanh)
