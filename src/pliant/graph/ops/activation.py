"""Activations: sigmoid, silu, relu, tanh, gelu.

ops.silu(x), ops.gelu(x, approximate="tanh")
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...sym import expr as E
from ...sym.expr import Call, Const, Expr
from ..deduce import Deduction
from ..node import Annotation
from ..operators import Array, OpDef, emit, register
from .elementwise import FLOATS, NUMBERS, Formula, Kind, elementwise, result_of, stage_of, widened

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


_UNARY: tuple[tuple[str, Formula, Callable[..., Any], Kind], ...] = (
    ("sigmoid", sigmoid_formula, _np_sigmoid, FLOATS),
    ("silu", widened(_silu), lambda x: x * _np_sigmoid(x), FLOATS),
    ("relu", _relu, lambda x: np.maximum(x, 0), NUMBERS),
    ("tanh", lambda x: Call("tanh", x), np.tanh, FLOATS),
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
