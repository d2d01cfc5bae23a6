"""Activations with parameters: leaky_relu, prelu, elu, selu, celu, softplus, hard_sigmoid, thresholded_relu, shrink.

ops.leaky_relu(x, alpha=0.1), ops.elu(x)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...support.record import dataclass
from ...sym import expr as E
from ...sym.expr import Call, Const, Expr, Select
from ..deduce import Deduction
from ..node import Annotation
from ..operators import Array, Body, OpCall, P, R
from .activation import softplus_formula
from .elementwise import NUMBERS, Formula, elementwise, pointwise, result_of, widened

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AlphaAttrs:
    """The attributes of activations with one parameter, alpha."""

    alpha: float


@dataclass(frozen=True, slots=True)
class SeluAttrs(AlphaAttrs):
    """The attributes of `selu`: `gamma * x`, or `gamma * alpha * (e^x - 1)` below zero."""

    gamma: float


@dataclass(frozen=True, slots=True)
class LinearAttrs(AlphaAttrs):
    """The attributes of `hard_sigmoid`: `clip(alpha * x + beta, 0, 1)`."""

    beta: float


@dataclass(frozen=True, slots=True)
class BetaAttrs:
    """The attributes of `softplus`: beta, how sharp the bend at zero is."""

    beta: float


@dataclass(frozen=True, slots=True)
class ShrinkAttrs:
    """The attributes of `shrink`: values in -lambd..lambd become zero; others move toward zero by the bias."""

    lambd: float
    bias: float


def _activation(
    formula: Callable[[Expr, Any], Expr], reference: Callable[[Array, Any], Any], attrs_type: type
) -> Callable[[Body[P, R]], Callable[P, R]]:
    """Returns a decorator that declares an elementwise operator of floats with attributes, by its formula and a numpy function."""

    def of(attrs: Any) -> Formula:
        return widened(lambda x: formula(x, attrs))

    def deduce(d: Deduction, attrs: Any) -> tuple[Annotation, ...]:
        d.floats()
        return (result_of(d, d.tensor(0).dtype, of(attrs)),)

    def numpy_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(reference(args[0].astype(np.float64), attrs)).astype(args[0].dtype)]

    return pointwise(deduce=deduce, reference=numpy_reference, formula=of, attrs=attrs_type)


def _c(value: float, x: Expr) -> Const:
    return Const(float(value), x.dtype)


def _below_zero(x: Expr, value: Expr) -> Expr:
    return Select(E.Lt(x, _c(0, x)), value, x)


def _elu(x: Expr, attrs: Any) -> Expr:
    return _below_zero(x, E.Mul(_c(attrs.alpha, x), Call("expm1", x)))


def _celu(x: Expr, attrs: AlphaAttrs) -> Expr:
    return _below_zero(x, E.Mul(_c(attrs.alpha, x), Call("expm1", E.Div(x, _c(attrs.alpha, x)))))


def _hard_sigmoid(x: Expr, attrs: LinearAttrs) -> Expr:
    line = E.Add(E.Mul(_c(attrs.alpha, x), x), _c(attrs.beta, x))
    return E.Min(E.Max(line, _c(0, x)), _c(1, x))


def _softplus(x: Expr, attrs: BetaAttrs) -> Expr:
    return E.Div(softplus_formula(E.Mul(x, _c(attrs.beta, x))), _c(attrs.beta, x))


def _shrink(x: Expr, attrs: ShrinkAttrs) -> Expr:
    low = E.Lt(x, _c(-attrs.lambd, x))
    high = E.Lt(_c(attrs.lambd, x), x)
    return Select(low, E.Add(x, _c(attrs.bias, x)), Select(high, E.Sub(x, _c(attrs.bias, x)), _c(0, x)))


def _np_shrink(x: Array, attrs: ShrinkAttrs) -> Any:
    return np.where(x < -attrs.lambd, x + attrs.bias, np.where(x > attrs.lambd, x - attrs.bias, 0.0))


@_activation(lambda x, a: _below_zero(x, E.Mul(_c(a.alpha, x), x)), lambda x, a: np.where(x < 0, a.alpha * x, x), AlphaAttrs)
def leaky_relu(op: OpCall, x: T, alpha: float = 0.01) -> T:
    """`x`, or `alpha * x` below zero."""
    return op.emit(x, attrs=AlphaAttrs(float(alpha)))


@elementwise(lambda x, slope: Select(E.Lt(x, Const(0, x.dtype)), E.Mul(slope, x), x), lambda x, s: np.where(x < 0, s * x, x), NUMBERS)
def prelu(op: OpCall, x: T, slope: T) -> T:
    """`x`, or `slope * x` below zero; the slope is broadcast."""
    return op.emit(x, slope)


@_activation(_elu, lambda x, a: np.where(x < 0, a.alpha * np.expm1(x), x), AlphaAttrs)
def elu(op: OpCall, x: T, alpha: float = 1.0) -> T:
    """`x`, or `alpha * (exp(x) - 1)` below zero."""
    return op.emit(x, attrs=AlphaAttrs(float(alpha)))


@_activation(lambda x, a: E.Mul(_c(a.gamma, x), _elu(x, a)), lambda x, a: a.gamma * np.where(x < 0, a.alpha * np.expm1(x), x), SeluAttrs)
def selu(op: OpCall, x: T, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> T:
    """`gamma` times the elu."""
    return op.emit(x, attrs=SeluAttrs(float(alpha), float(gamma)))


@_activation(_celu, lambda x, a: np.where(x < 0, a.alpha * np.expm1(x / a.alpha), x), AlphaAttrs)
def celu(op: OpCall, x: T, alpha: float = 1.0) -> T:
    """`x`, or `alpha * (exp(x / alpha) - 1)` below zero."""
    return op.emit(x, attrs=AlphaAttrs(float(alpha)))


@_activation(_softplus, lambda x, a: np.logaddexp(x * a.beta, 0) / a.beta, BetaAttrs)
def softplus(op: OpCall, x: T, beta: float = 1.0) -> T:
    """`log(1 + exp(beta * x)) / beta`."""
    return op.emit(x, attrs=BetaAttrs(float(beta)))


@_activation(_hard_sigmoid, lambda x, a: np.clip(a.alpha * x + a.beta, 0, 1), LinearAttrs)
def hard_sigmoid(op: OpCall, x: T, alpha: float = 1 / 6, beta: float = 0.5) -> T:
    """`clip(alpha * x + beta, 0, 1)`; the default alpha is torch's 1/6, ONNX's is 0.2."""
    return op.emit(x, attrs=LinearAttrs(float(alpha), float(beta)))


@_activation(lambda x, a: Select(E.Lt(_c(a.alpha, x), x), x, _c(0, x)), lambda x, a: np.where(x > a.alpha, x, 0.0), AlphaAttrs)
def thresholded_relu(op: OpCall, x: T, alpha: float = 1.0) -> T:
    """`x` above `alpha`, else 0."""
    return op.emit(x, attrs=AlphaAttrs(float(alpha)))


@_activation(_shrink, _np_shrink, ShrinkAttrs)
def shrink(op: OpCall, x: T, lambd: float = 0.5, bias: float = 0.0) -> T:
    """0 from -lambd to lambd; beyond, `x` moved toward 0 by the bias."""
    return op.emit(x, attrs=ShrinkAttrs(float(lambd), float(bias)))
