"""Variance and standard deviation along axes, in two passes (mean, then squared differences); 16-bit floats in f32.

ops.var(x, axis=-1), ops.std(x, axis=0, correction=0)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...support.record import dataclass
from ...sym.expr import Call, Cast, Const, Div, Expr, Max, Mul, Sub, product
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operator
from ..stage import Indices, Read, Stage
from .reduce import accumulator, join_axes, normal_axes, reduced_shape
from .window import ZERO, whole_numbers

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class VarAttrs:
    """The attributes of `var` and `std`: axes, whether they stay as dims of 1, and the correction subtracted from the element count."""

    axis: tuple[int, ...]
    keepdims: bool = False
    correction: int = 1


def _deduce(d: Deduction, attrs: VarAttrs) -> tuple[Annotation, ...]:
    d.floats()
    x = d.tensor(0)
    return (Tensor(x.dtype, reduced_shape(x.shape, attrs.axis, attrs.keepdims)),)


def _stages(root: bool) -> Callable[..., tuple[Stage, ...]]:
    def stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: VarAttrs) -> tuple[Stage, ...]:
        x, shape = args[0], outs[0].shape
        wide = accumulator(x.dtype)
        extents = tuple(x.shape[a] for a in attrs.axis)
        count = product(extents)

        def element(i: Indices, r: Indices, read: Read) -> Expr:
            item = read(0, *join_axes(len(x.shape), attrs.axis, attrs.keepdims, i, r))
            return item if item.dtype is wide else Cast(wide, item)

        def square(i: Indices, r: Indices, read: Read) -> Expr:
            centered = Sub(element(i, r, read), read("mean", *i))
            return Mul(centered, centered)

        def finish(i: Indices, r: Indices, read: Read) -> Expr:
            result: Expr = Div(read("squares", *i), Cast(wide, Max(count - attrs.correction, ZERO)))
            result = Call("sqrt", result) if root else result
            return result if wide is x.dtype else Cast(x.dtype, result)

        return (
            Stage("total", wide, shape, element, extents, "add", Const(0, wide)),
            Stage("mean", wide, shape, lambda i, r, read: Div(read("total", *i), Cast(wide, count))),
            Stage("squares", wide, shape, square, extents, "add", Const(0, wide)),
            Stage("out", x.dtype, shape, finish),
        )

    return stages


def _reference(fn: Callable[..., Any]) -> Callable[..., list[Array]]:
    def reference(args: Sequence[Array], attrs: VarAttrs) -> list[Array]:
        import warnings

        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # numpy warns if the divisor is not positive
            result = fn(args[0].astype(np.float64), axis=attrs.axis, keepdims=attrs.keepdims, ddof=attrs.correction)
        return [np.asarray(result).astype(args[0].dtype)]

    return reference


@operator(deduce=_deduce, reference=_reference(np.var), stages=_stages(False), attrs=VarAttrs)
def var(op: OpCall, x: T, axis: Any = None, keepdims: bool = False, correction: int = 1) -> T:
    """The variance of floats along `axis` (an integer, several, or None for all); with `keepdims` these axes stay as dims of 1.

    It is the sum of squared differences from the mean, divided by the number of elements minus `correction` (by default 1).
    """
    return _moment(op, x, axis, keepdims, correction)


@operator(deduce=_deduce, reference=_reference(np.std), stages=_stages(True), attrs=VarAttrs)
def std(op: OpCall, x: T, axis: Any = None, keepdims: bool = False, correction: int = 1) -> T:
    """The standard deviation of floats along `axis`: the square root of `var` with the same `axis`, `keepdims` and `correction`."""
    return _moment(op, x, axis, keepdims, correction)


def _moment(op: OpCall, x: Any, axis: Any, keepdims: bool, correction: int) -> Any:
    value = op.operand(x)
    less = whole_numbers(op.name, "correction", correction, 1, least=0)[0]
    return op.emit(value, attrs=VarAttrs(normal_axes(op.name, value, axis), bool(keepdims), less))
