"""Scans (running reductions) along an axis: cumsum, cumprod, cummax, cummin.

`reverse` runs from the end; `exclusive` excludes the element itself, so the first result is 0 (or 1). Sums and products of 16-bit floats
accumulate in f32 and are rounded for each result. cummax and cummin also return the index of the extremum, the last one of equal ones;
from a NaN on, all results are NaN.

    ops.cumsum(x, axis=-1), values, indices = ops.cummax(x, axis=0)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import bool_, i64
from ...support.record import dataclass
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, Reference, operator
from .reduce import AxisAttrs, normal_axis

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ScanAttrs(AxisAttrs):
    """The attributes of `cumsum` and `cumprod`: the axis, whether the element itself is excluded, whether the scan runs from the end."""

    exclusive: bool = False
    reverse: bool = False


def numeric(d: Deduction, k: int = 0) -> Tensor:
    """Returns the annotation of argument `k`; raises an error for bools and storage types."""
    x = d.tensor(k)
    if x.dtype is bool_ or x.dtype.storage:
        raise d.error(f"{d.what} of {x.dtype}", arg=k, help=f"write ops.cast({d.args[k].name}, i64)")
    return x


def _deduce(d: Deduction, attrs: ScanAttrs) -> tuple[Annotation, ...]:
    x = numeric(d)
    return (Tensor(x.dtype, x.shape),)


def _reference(ufunc: np.ufunc, identity: int) -> Reference:
    def reference(args: Sequence[Array], attrs: ScanAttrs) -> list[Array]:
        x = args[0]
        wide = np.dtype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x.dtype
        rows = np.moveaxis(x, attrs.axis, 0).astype(wide)
        rows = rows[::-1] if attrs.reverse else rows
        with np.errstate(all="ignore"):
            result = ufunc.accumulate(rows, axis=0, dtype=wide) if len(rows) else rows
        if attrs.exclusive and len(rows):
            result = np.concatenate([np.full_like(rows[:1], identity), result[:-1]])
        result = result[::-1] if attrs.reverse else result
        return [np.moveaxis(result, 0, attrs.axis).astype(x.dtype)]

    return reference


@operator(deduce=_deduce, reference=_reference(np.add, 0), attrs=ScanAttrs, template="scan.running")
def cumsum(op: OpCall, x: T, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> T:
    """The running sum along `axis`; without the element itself if `exclusive`, from the end if `reverse`."""
    return _scan(op, x, axis, exclusive, reverse)


@operator(deduce=_deduce, reference=_reference(np.multiply, 1), attrs=ScanAttrs, template="scan.running")
def cumprod(op: OpCall, x: T, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> T:
    """The running product along `axis`; without the element itself if `exclusive`, from the end if `reverse`."""
    return _scan(op, x, axis, exclusive, reverse)


def _deduce_extremum(d: Deduction, attrs: AxisAttrs) -> tuple[Annotation, ...]:
    x = numeric(d)
    return Tensor(x.dtype, x.shape), Tensor(i64, x.shape)


def _extremum_reference(better: Callable[[Array, Array], Any]) -> Reference:
    def reference(args: Sequence[Array], attrs: AxisAttrs) -> list[Array]:
        rows = np.moveaxis(args[0], attrs.axis, 0)
        values, indices = rows.copy(), np.zeros(rows.shape, np.int64)
        for k in range(1, len(rows)):
            new = (rows[k] != rows[k]) | ((values[k - 1] == values[k - 1]) & better(rows[k], values[k - 1]))
            values[k], indices[k] = np.where(new, rows[k], values[k - 1]), np.where(new, k, indices[k - 1])
        return [np.moveaxis(a, 0, attrs.axis) for a in (values, indices)]

    return reference


@operator(deduce=_deduce_extremum, reference=_extremum_reference(np.greater_equal), attrs=AxisAttrs, template="scan.extremum")
def cummax(op: OpCall, x: T, axis: int = -1) -> Any:
    """The running maximum along `axis`, and its index (i64): that of the last of equal elements.

    From a NaN on both are those of the last NaN.
    """
    value = op.operand(x)
    return op.emit(value, attrs=AxisAttrs(normal_axis(op.name, value, axis)))


@operator(deduce=_deduce_extremum, reference=_extremum_reference(np.less_equal), attrs=AxisAttrs, template="scan.extremum")
def cummin(op: OpCall, x: T, axis: int = -1) -> Any:
    """The running minimum along `axis`, and its index (i64): that of the last of equal elements.

    From a NaN on both are those of the last NaN.
    """
    value = op.operand(x)
    return op.emit(value, attrs=AxisAttrs(normal_axis(op.name, value, axis)))


def _scan(op: OpCall, x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    value = op.operand(x)
    return op.emit(value, attrs=ScanAttrs(normal_axis(op.name, value, axis), exclusive, reverse))
