"""Indices of extrema along an axis: argmax, argmin, hardmax, and max or min together with its index.

Ties go to the first element, or to the last with `select_last_index`. NaN counts as the extremum, as in numpy.

    ops.argmax(x, axis=-1), ops.max_with_index(x, axis=0)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import DType, bool_, i32, i64
from ...support.record import dataclass
from ...sym.expr import Cast, Const, Eq, Expr, Le, Lt, Ne, Or, Select, const
from ...sym.prove import prove
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operator
from ..stage import Indices, Read, Stage
from .reduce import AxisAttrs, accumulator, limit, normal_axis, reduced_shape
from .shape import reshape

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlaceAttrs(AxisAttrs):
    """The attributes of argmax and argmin: the axis, whether it stays as a dim of 1, and whether ties go to the last element."""

    keepdims: bool = False
    select_last_index: bool = False


def _deduce_both(d: Deduction, attrs: PlaceAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    if x.dtype is bool_:
        raise d.error(f"{d.what} of bools", arg=0, help=f"write ops.cast({d.args[0].name}, u8)")
    d.require(Lt(const(0), x.shape[attrs.axis]), f"{d.what}: dim {attrs.axis} of `{d.args[0].name}` has no elements")
    shape = reduced_shape(x.shape, (attrs.axis,), attrs.keepdims)
    return Tensor(x.dtype, shape), Tensor(i64, shape)


def _deduce_index(d: Deduction, attrs: PlaceAttrs) -> tuple[Annotation, ...]:
    return _deduce_both(d, attrs)[1:]


def _extremum(x: Tensor, shape: tuple[Expr, ...], attrs: PlaceAttrs, largest: bool) -> tuple[Stage, Stage]:
    """Returns two stages: the extremum along an axis, then the index of the first element equal to it.

    A NaN is the extremum if there is one, and counts as equal to it. With `select_last_index` it is the index of the last such element.
    Both are plain reductions, which vectorize.
    """
    axis, wide = attrs.axis, accumulator(x.dtype)
    index = i32 if prove(Le(x.shape[axis], const(i32.max))) else i64
    never = Const(-1 if attrs.select_last_index else index.max, index)

    def element(i: Indices, r: Indices, read: Read) -> Expr:
        item = read(0, *i[:axis], r[0], *(i[axis + 1 :] if attrs.keepdims else i[axis:]))
        return item if item.dtype is wide else Cast(wide, item)

    def place(i: Indices, r: Indices, read: Read) -> Expr:
        candidate = element(i, r, read)
        here: Expr = Eq(candidate, read("extremum", *i))
        if wide.is_float:
            here = Or(here, Ne(candidate, candidate))
        return Select(here, Cast(index, r[0]) if index is i32 else r[0], never)

    return (
        Stage("extremum", wide, shape, element, (x.shape[axis],), "max" if largest else "min", limit(wide, not largest)),
        Stage("place", index, shape, place, (x.shape[axis],), "max" if attrs.select_last_index else "min", never),
    )


def _read_as(name: str, stage: str, dtype: DType, shape: tuple[Expr, ...]) -> Stage:
    """Returns a result stage that copies the elements of an earlier stage, cast to the dtype of the result."""

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        result = read(stage, *i)
        return result if result.dtype is dtype else Cast(dtype, result)

    return Stage(name, dtype, shape, value)


def _arg_stages(largest: bool) -> Callable[..., tuple[Stage, ...]]:
    def stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: PlaceAttrs) -> tuple[Stage, ...]:
        shape = outs[0].shape
        return (*_extremum(args[0], shape, attrs, largest), _read_as("out", "place", i64, shape))

    return stages


def _with_index_stages(largest: bool) -> Callable[..., tuple[Stage, ...]]:
    def stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: PlaceAttrs) -> tuple[Stage, ...]:
        x, shape = args[0], outs[0].shape
        return (*_extremum(x, shape, attrs, largest), _read_as("value", "extremum", x.dtype, shape), _read_as("index", "place", i64, shape))

    return stages


def _place(x: Array, attrs: PlaceAttrs, largest: bool) -> Array:
    find: Any = np.argmax if largest else np.argmin
    if attrs.select_last_index:
        return np.asarray(x.shape[attrs.axis] - 1 - find(np.flip(x, attrs.axis), axis=attrs.axis, keepdims=True))
    return np.asarray(find(x, axis=attrs.axis, keepdims=True))


def _reference(largest: bool, both: bool) -> Callable[..., list[Array]]:
    def reference(args: Sequence[Array], attrs: PlaceAttrs) -> list[Array]:
        at = _place(args[0], attrs, largest)
        results = [np.take_along_axis(args[0], at, attrs.axis), at] if both else [at]
        return results if attrs.keepdims else [np.squeeze(f, axis=attrs.axis) for f in results]

    return reference


@operator(deduce=_deduce_index, reference=_reference(True, False), stages=_arg_stages(True), attrs=PlaceAttrs)
def argmax(op: OpCall, x: Any, axis: int | None = None, keepdims: bool = False, select_last_index: bool = False) -> Any:
    """The index (i64) of the largest element along `axis`; without an axis, its position among all elements in row-major order.

    NaN counts as the largest. Of equal elements it is the first, or the last with `select_last_index`.
    """
    return _along(op, x, axis, keepdims, select_last_index)


@operator(deduce=_deduce_index, reference=_reference(False, False), stages=_arg_stages(False), attrs=PlaceAttrs)
def argmin(op: OpCall, x: Any, axis: int | None = None, keepdims: bool = False, select_last_index: bool = False) -> Any:
    """The index (i64) of the smallest element along `axis`; without an axis, its position among all elements in row-major order.

    NaN counts as the smallest. Of equal elements it is the first, or the last with `select_last_index`.
    """
    return _along(op, x, axis, keepdims, select_last_index)


@operator(deduce=_deduce_both, reference=_reference(True, True), stages=_with_index_stages(True), attrs=PlaceAttrs)
def max_with_index(op: OpCall, x: Any, axis: int = -1, keepdims: bool = False, select_last_index: bool = False) -> Any:
    """The largest element along `axis`, and its index (i64)."""
    return _along(op, x, axis, keepdims, select_last_index)


@operator(deduce=_deduce_both, reference=_reference(False, True), stages=_with_index_stages(False), attrs=PlaceAttrs)
def min_with_index(op: OpCall, x: Any, axis: int = -1, keepdims: bool = False, select_last_index: bool = False) -> Any:
    """The smallest element along `axis`, and its index (i64)."""
    return _along(op, x, axis, keepdims, select_last_index)


def _deduce_hardmax(d: Deduction, attrs: AxisAttrs) -> tuple[Annotation, ...]:
    d.floats()
    return (Tensor(d.tensor(0).dtype, d.tensor(0).shape),)


def _hardmax_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: AxisAttrs) -> tuple[Stage, ...]:
    x, axis = args[0], attrs.axis
    rows = reduced_shape(x.shape, (axis,), False)

    def one_hot(i: Indices, r: Indices, read: Read) -> Expr:
        here = Eq(i[axis], Cast(i64, read("place", *i[:axis], *i[axis + 1 :])))
        return Select(here, Const(1.0, x.dtype), Const(0.0, x.dtype))

    return (*_extremum(x, rows, PlaceAttrs(axis), True), Stage("out", x.dtype, x.shape, one_hot))


def _hardmax_reference(args: Sequence[Array], attrs: AxisAttrs) -> list[Array]:
    x = args[0]
    result = np.zeros_like(x)
    if x.shape[attrs.axis]:
        np.put_along_axis(result, np.argmax(x, axis=attrs.axis, keepdims=True), 1, attrs.axis)
    return [result]


@operator(deduce=_deduce_hardmax, reference=_hardmax_reference, stages=_hardmax_stages, attrs=AxisAttrs)
def hardmax(op: OpCall, x: T, axis: int = -1) -> T:
    """1 at the first of the largest elements along `axis`, 0 elsewhere."""
    value = op.operand(x)
    return op.emit(value, attrs=AxisAttrs(normal_axis(op.name, value, axis)))


def _along(op: OpCall, x: Any, axis: Any, keepdims: bool, last: bool) -> Any:
    value: Any = op.operand(x)
    if axis is None:
        value, axis = reshape(value, -1), 0
    return op.emit(value, attrs=PlaceAttrs(normal_axis(op.name, value, axis), bool(keepdims), bool(last)))
