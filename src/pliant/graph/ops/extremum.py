"""Where the largest and the smallest elements are: argmax, argmin, hardmax, and the extremum together with its place.

The first of equal elements counts, or the last if asked for. A NaN is larger and smaller than every number, as in numpy.

    ops.argmax(x, axis=-1), ops.max_with_index(x, axis=0)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import bool_, i64
from ...support.record import dataclass
from ...sym.expr import And, Const, Eq, Expr, Lt, Ne, Not, Or, Select, const
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpDef, emit, operand, register
from ..stage import AnyStage, Combine, Indices, Read, Stage, TupleStage
from .reduce import AxisAttrs, limit, normal_axis, reduced_shape
from .shape import reshape

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PlaceAttrs:
    """The axis, whether it stays as a dim of 1, and whether the last of equal elements counts."""

    axis: int
    keepdims: bool = False
    select_last_index: bool = False


def _deduce(d: Deduction, attrs: PlaceAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    if x.dtype is bool_:
        raise d.error(f"{d.what} of bools", arg=0, help=f"write ops.cast({d.args[0].name}, u8)")
    d.require(Lt(const(0), x.shape[attrs.axis]), f"{d.what}: dim {attrs.axis} of `{d.args[0].name}` has no elements")
    shape = reduced_shape(x.shape, (attrs.axis,), attrs.keepdims)
    place = Tensor(i64, shape)
    return (place,) if d.what.startswith("arg") else (Tensor(x.dtype, shape), place)


def _combine(largest: bool, last: bool) -> Combine:
    def combine(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        (x, i), (y, j) = a, b
        beats: Expr = Lt(x, y) if largest else Lt(y, x)
        same: Expr = Eq(x, y)
        if x.dtype.is_float:
            x_nan, y_nan = Ne(x, x), Ne(y, y)
            beats, same = Or(beats, And(y_nan, Not(x_nan))), Or(same, And(x_nan, y_nan))
        later = Or(beats, And(same, Lt(i, j) if last else Lt(j, i)))
        return Select(later, y, x), Select(later, j, i)

    return combine


def _extremum(x: Tensor, shape: tuple[Expr, ...], attrs: PlaceAttrs, largest: bool, names: tuple[str, str]) -> TupleStage:
    """The extremum along an axis, and its place. What it begins with loses to every element: it comes after, or before, all."""
    axis = attrs.axis

    def values(i: Indices, r: Indices, read: Read) -> tuple[Expr, ...]:
        after = i[axis + 1 :] if attrs.keepdims else i[axis:]
        return read(0, *i[:axis], r[0], *after), r[0]

    init = (limit(x.dtype, not largest), Const(-1 if attrs.select_last_index else i64.max, i64))
    return TupleStage(names, (x.dtype, i64), shape, values, (x.shape[axis],), _combine(largest, attrs.select_last_index), init)


def _arg_stages(largest: bool) -> Callable[..., tuple[AnyStage, ...]]:
    def stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: PlaceAttrs) -> tuple[AnyStage, ...]:
        shape = outs[0].shape
        found = _extremum(args[0], shape, attrs, largest, ("extremum", "place"))
        return (found, Stage("out", i64, shape, lambda i, r, read: read("place", *i)))

    return stages


def _with_index_stages(largest: bool) -> Callable[..., tuple[AnyStage, ...]]:
    return lambda args, outs, attrs: (_extremum(args[0], outs[0].shape, attrs, largest, ("extremum", "place")),)


def _place(x: Array, attrs: PlaceAttrs, largest: bool) -> Array:
    find: Any = np.argmax if largest else np.argmin
    if attrs.select_last_index:
        return np.asarray(x.shape[attrs.axis] - 1 - find(np.flip(x, attrs.axis), axis=attrs.axis, keepdims=True))
    return np.asarray(find(x, axis=attrs.axis, keepdims=True))


def _reference(largest: bool, both: bool) -> Callable[..., list[Array]]:
    def reference(args: Sequence[Array], attrs: PlaceAttrs) -> list[Array]:
        at = _place(args[0], attrs, largest)
        found = [np.take_along_axis(args[0], at, attrs.axis), at] if both else [at]
        return found if attrs.keepdims else [np.squeeze(f, axis=attrs.axis) for f in found]

    return reference


register(OpDef("argmax", _deduce, _reference(True, False), _arg_stages(True), (1, 1), PlaceAttrs))
register(OpDef("argmin", _deduce, _reference(False, False), _arg_stages(False), (1, 1), PlaceAttrs))
register(OpDef("max_with_index", _deduce, _reference(True, True), _with_index_stages(True), (1, 1), PlaceAttrs))
register(OpDef("min_with_index", _deduce, _reference(False, True), _with_index_stages(False), (1, 1), PlaceAttrs))


def _deduce_hardmax(d: Deduction, attrs: AxisAttrs) -> tuple[Annotation, ...]:
    d.floats()
    return (Tensor(d.tensor(0).dtype, d.tensor(0).shape),)


def _hardmax_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: AxisAttrs) -> tuple[AnyStage, ...]:
    x, axis = args[0], attrs.axis
    rows = reduced_shape(x.shape, (axis,), False)

    def one_hot(i: Indices, r: Indices, read: Read) -> Expr:
        here = Eq(i[axis], read("place", *i[:axis], *i[axis + 1 :]))
        return Select(here, Const(1.0, x.dtype), Const(0.0, x.dtype))

    return (_extremum(x, rows, PlaceAttrs(axis), True, ("largest", "place")), Stage("out", x.dtype, x.shape, one_hot))


def _hardmax_reference(args: Sequence[Array], attrs: AxisAttrs) -> list[Array]:
    x = args[0]
    found = np.zeros_like(x)
    if x.shape[attrs.axis]:
        np.put_along_axis(found, np.argmax(x, axis=attrs.axis, keepdims=True), 1, attrs.axis)
    return [found]


register(OpDef("hardmax", _deduce_hardmax, _hardmax_reference, _hardmax_stages, (1, 1), AxisAttrs))


def _along(name: str, x: Any, axis: Any, keepdims: bool, last: bool) -> Any:
    value = operand(name, x)
    if axis is None:
        value, axis = reshape(value, -1), 0
    return emit(name, (value,), PlaceAttrs(normal_axis(name, value, axis), bool(keepdims), bool(last)))


def argmax(x: Any, axis: int | None = None, keepdims: bool = False, select_last_index: bool = False) -> Any:
    """The place (i64) of the largest element along `axis`; without an axis, among all elements in row-major order."""
    return _along("argmax", x, axis, keepdims, select_last_index)


def argmin(x: Any, axis: int | None = None, keepdims: bool = False, select_last_index: bool = False) -> Any:
    """The place (i64) of the smallest element along `axis`; without an axis, among all elements in row-major order."""
    return _along("argmin", x, axis, keepdims, select_last_index)


def max_with_index(x: Any, axis: int = -1, keepdims: bool = False, select_last_index: bool = False) -> Any:
    """The largest element along `axis`, and its place (i64)."""
    return _along("max_with_index", x, axis, keepdims, select_last_index)


def min_with_index(x: Any, axis: int = -1, keepdims: bool = False, select_last_index: bool = False) -> Any:
    """The smallest element along `axis`, and its place (i64)."""
    return _along("min_with_index", x, axis, keepdims, select_last_index)


def hardmax(x: T, axis: int = -1) -> T:
    """1 at the first of the largest elements along `axis`, 0 elsewhere."""
    value = operand("hardmax", x)
    return emit("hardmax", (value,), AxisAttrs(normal_axis("hardmax", value, axis)))
