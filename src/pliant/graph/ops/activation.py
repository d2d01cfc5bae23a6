"""Activations without parameters (sigmoid, silu, relu, tanh, mish, …), and gelu. Those with parameters are in `piecewise.py`.

ops.silu(x), ops.gelu(x, approximate="tanh")
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ...support.record import dataclass
from ...sym import expr as E
from ...sym.expr import Call, Const, Expr
from ..deduce import Deduction
from ..node import Annotation
from ..operators import Array, OpCall, composite
from .elementwise import FLOATS, NUMBERS, Formula, clip, elementwise, pointwise, result_of, widened

T = TypeVar("T")


def sigmoid_formula(x: Expr) -> Expr:
    """Returns a call of the function `sigmoid`, 1 / (1 + exp(-x)), as an expression."""
    return Call("sigmoid", x)


def _silu(x: Expr) -> Expr:
    return E.Mul(x, sigmoid_formula(x))


def _relu(x: Expr) -> Expr:
    return E.Max(x, Const(0, x.dtype))


def _np_sigmoid(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


def softplus_formula(x: Expr) -> Expr:
    """Returns the expression log(1 + e^x), in a form that does not overflow."""
    zero = Const(0.0, x.dtype)
    return E.Add(E.Max(x, zero), Call("log1p", Call("exp", E.Neg(Call("abs", x)))))


def _mish(x: Expr) -> Expr:
    return E.Mul(x, Call("tanh", softplus_formula(x)))


def _softsign(x: Expr) -> Expr:
    return E.Div(x, E.Add(Const(1.0, x.dtype), Call("abs", x)))


def _hard_swish(x: Expr) -> Expr:
    shifted = E.Min(E.Max(E.Add(x, Const(3.0, x.dtype)), Const(0.0, x.dtype)), Const(6.0, x.dtype))
    return E.Div(E.Mul(x, shifted), Const(6.0, x.dtype))


def _quick_gelu(x: Expr) -> Expr:
    return E.Mul(x, sigmoid_formula(E.Mul(x, Const(1.702, x.dtype))))


def _np_softplus(x: Array) -> Any:
    return np.logaddexp(x, x.dtype.type(0))


@dataclass(frozen=True, slots=True)
class GeluAttrs:
    """The attributes of `gelu`: `approximate` "none" is x/2 (1 + erf(x / sqrt 2)), "tanh" the usual approximation by tanh."""

    approximate: str = "none"


_TANH_SCALE = math.sqrt(2 / math.pi)


def _gelu_formula(attrs: GeluAttrs) -> Formula:
    def half_of(x: Expr, inner: Expr) -> Expr:
        return E.Mul(E.Mul(Const(0.5, x.dtype), x), E.Add(Const(1.0, x.dtype), inner))

    def erf_form(x: Expr) -> Expr:
        return half_of(x, Call("erf", E.Mul(x, Const(math.sqrt(0.5), x.dtype))))

    def tanh_form(x: Expr) -> Expr:
        cubed = E.Mul(Const(0.044715, x.dtype), E.Mul(x, E.Mul(x, x)))
        return half_of(x, Call("tanh", E.Mul(Const(_TANH_SCALE, x.dtype), E.Add(x, cubed))))

    return widened(erf_form if attrs.approximate == "none" else tanh_form)


def _deduce_gelu(d: Deduction, attrs: GeluAttrs) -> tuple[Annotation, ...]:
    d.floats()
    if attrs.approximate not in ("none", "tanh"):
        raise d.error(f'gelu has no form "{attrs.approximate}"', help='approximate is "none" or "tanh"')
    return (result_of(d, d.tensor(0).dtype, _gelu_formula(attrs)),)


def _gelu_reference(args: Sequence[Array], attrs: GeluAttrs) -> list[Array]:
    x = args[0].astype(np.float64)
    inner = np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)) if attrs.approximate == "none" else None
    if inner is None:
        inner = np.tanh(_TANH_SCALE * (x + 0.044715 * x**3))
    return [(0.5 * x * (1 + inner)).astype(args[0].dtype)]


@elementwise(sigmoid_formula, _np_sigmoid, FLOATS)
def sigmoid(op: OpCall, x: T) -> T:
    """1 / (1 + exp(-x))."""
    return op.emit(x)


@elementwise(widened(_silu), lambda x: x * _np_sigmoid(x), FLOATS)
def silu(op: OpCall, x: T) -> T:
    """`x * sigmoid(x)`."""
    return op.emit(x)


@elementwise(_relu, lambda x: np.maximum(x, 0), NUMBERS)
def relu(op: OpCall, x: T) -> T:
    """`max(x, 0)`."""
    return op.emit(x)


@elementwise(lambda x: Call("tanh", x), np.tanh, FLOATS)
def tanh(op: OpCall, x: T) -> T:
    """The hyperbolic tangent."""
    return op.emit(x)


@pointwise(deduce=_deduce_gelu, reference=_gelu_reference, formula=_gelu_formula, attrs=GeluAttrs)
def gelu(op: OpCall, x: T, approximate: str = "none") -> T:
    """The Gaussian error linear unit: exact with erf, or approximated with `approximate="tanh"`."""
    return op.emit(x, attrs=GeluAttrs(approximate))


@elementwise(widened(_softsign), lambda x: x / (1 + np.abs(x)), FLOATS)
def softsign(op: OpCall, x: T) -> T:
    """`x / (1 + abs(x))`."""
    return op.emit(x)


@elementwise(widened(lambda x: E.Neg(softplus_formula(E.Neg(x)))), lambda x: -_np_softplus(-x), FLOATS)
def log_sigmoid(op: OpCall, x: T) -> T:
    """The logarithm of the sigmoid."""
    return op.emit(x)


@elementwise(widened(_mish), lambda x: x * np.tanh(_np_softplus(x)), FLOATS)
def mish(op: OpCall, x: T) -> T:
    """`x * tanh(softplus(x))`."""
    return op.emit(x)


@elementwise(widened(_hard_swish), lambda x: x * np.clip(x + 3, 0, 6) / 6, FLOATS)
def hard_swish(op: OpCall, x: T) -> T:
    """`x * clip(x + 3, 0, 6) / 6`."""
    return op.emit(x)


@elementwise(widened(_quick_gelu), lambda x: x * _np_sigmoid(x.dtype.type(1.702) * x), FLOATS)
def quick_gelu(op: OpCall, x: T) -> T:
    """`x * sigmoid(1.702 * x)`."""
    return op.emit(x)


@composite
def relu6(op: OpCall, x: T) -> T:
    """`clip(x, 0, 6)`."""
    return clip(x, 0.0, 6.0)
