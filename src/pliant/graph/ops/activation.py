"""Activations without numbers of their own (sigmoid, silu, relu, tanh, softsign, mish, hard_swish, …), and gelu. See also `piecewise.py`.

ops.silu(x), ops.gelu(x, approximate="tanh")
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...support.record import dataclass
from ...sym import expr as E
from ...sym.expr import Call, Const, Expr
from ..deduce import Deduction
from ..node import Annotation
from ..operators import Array, OpDef, emit, register
from .elementwise import FLOATS, NUMBERS, Formula, Kind, clip, elementwise, result_of, stage_of, widened

T = TypeVar("T")


def sigmoid_formula(x: Expr) -> Expr:
    """1 / (1 + exp(-x))."""
    return Call("sigmoid", x)


def _silu(x: Expr) -> Expr:
    return E.Mul(x, sigmoid_formula(x))


def _relu(x: Expr) -> Expr:
    return E.Max(x, Const(0, x.dtype))


def _np_sigmoid(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


def softplus_formula(x: Expr) -> Expr:
    """log(1 + e^x), which does not overflow."""
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


_UNARY: tuple[tuple[str, Formula, Callable[..., Any], Kind], ...] = (
    ("sigmoid", sigmoid_formula, _np_sigmoid, FLOATS),
    ("silu", widened(_silu), lambda x: x * _np_sigmoid(x), FLOATS),
    ("relu", _relu, lambda x: np.maximum(x, 0), NUMBERS),
    ("tanh", lambda x: Call("tanh", x), np.tanh, FLOATS),
    ("softsign", widened(_softsign), lambda x: x / (1 + np.abs(x)), FLOATS),
    ("log_sigmoid", widened(lambda x: E.Neg(softplus_formula(E.Neg(x)))), lambda x: -_np_softplus(-x), FLOATS),
    ("mish", widened(_mish), lambda x: x * np.tanh(_np_softplus(x)), FLOATS),
    ("hard_swish", widened(_hard_swish), lambda x: x * np.clip(x + 3, 0, 6) / 6, FLOATS),
    ("quick_gelu", widened(_quick_gelu), lambda x: x * _np_sigmoid(x.dtype.type(1.702) * x), FLOATS),
)

for _name, _formula, _reference, _kind in _UNARY:
    elementwise(_name, _formula, _reference, 1, _kind)


# gelu: two forms, so it has an attribute.
@dataclass(frozen=True, slots=True)
class GeluAttrs:
    """`approximate`: "none" is x/2 (1 + erf(x / sqrt 2)), "tanh" the usual tanh form."""

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


register(
    OpDef(
        "gelu",
        _deduce_gelu,
        _gelu_reference,
        lambda args, outs, attrs: (stage_of("gelu", _gelu_formula(attrs), args, outs[0]),),
        (1, 1),
        GeluAttrs,
    )
)


def sigmoid(x: T) -> T:
    """1 / (1 + exp(-x))."""
    return emit("sigmoid", (x,))


def silu(x: T) -> T:
    """`x * sigmoid(x)`."""
    return emit("silu", (x,))


def relu(x: T) -> T:
    """`max(x, 0)`."""
    return emit("relu", (x,))


def tanh(x: T) -> T:
    """The hyperbolic tangent."""
    return emit("tanh", (x,))


def gelu(x: T, approximate: str = "none") -> T:
    """The Gaussian error linear unit, with erf, or with `approximate="tanh"` in its tanh form."""
    return emit("gelu", (x,), GeluAttrs(approximate))


def softsign(x: T) -> T:
    """`x / (1 + abs(x))`."""
    return emit("softsign", (x,))


def log_sigmoid(x: T) -> T:
    """The logarithm of the sigmoid."""
    return emit("log_sigmoid", (x,))


def mish(x: T) -> T:
    """`x * tanh(softplus(x))`."""
    return emit("mish", (x,))


def hard_swish(x: T) -> T:
    """`x * clip(x + 3, 0, 6) / 6`."""
    return emit("hard_swish", (x,))


def quick_gelu(x: T) -> T:
    """`x * sigmoid(1.702 * x)`."""
    return emit("quick_gelu", (x,))


def relu6(x: T) -> T:
    """`clip(x, 0, 6)`."""
    return clip(x, 0.0, 6.0)
