"""Slices along an axis: slice, strided_slice.

`slice` takes bounds as Python does, but does not clamp them: 0 <= start <= stop <= extent is deduced or checked. If a bound is known only
at run time (a host scalar, a tensor of one integer), bounds are clamped as Python does, and the extent is a new dim. `strided_slice`
takes a start, an extent, and a step of either sign.

    ops.slice(x, axis=0, start=1, stop=n), ops.slice(x, axis=1, step=-1), ops.slice(x, axis=0, stop=length, count=u)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import i64
from ...support.errors import ShapeError
from ...support.record import dataclass
from ...sym.expr import And, Const, Eq, Expr, Le, Lt, Or, const
from ...sym.simplify import simplify
from ..deduce import Deduction
from ..node import Annotation, Scalar, Tensor, Value
from ..operators import Array, OpCall, emit, operands, operator, tensor_of
from ..stage import Stage
from .compare import CastAttrs, less
from .dynamic_dims import bind_dim
from .elementwise import add, floor_divide, maximum, minimum, sub
from .reduce import AxisAttrs, normal_axis
from .shape import as_dim

T = TypeVar("T")
slice_object = slice  # the builtin: `slice` is an operator below


@dataclass(frozen=True, slots=True)
class SliceAttrs(AxisAttrs):
    """The attributes of `slice`: the elements start, start + step, … below stop, along one axis."""

    start: Expr
    stop: Expr
    step: int = 1


def _deduce_slice(d: Deduction, attrs: SliceAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    n = x.shape[attrs.axis]
    message = f"slice: {{0}}:{{1}} is not within the {{2}} elements of axis {attrs.axis} of `{d.args[0].name}`"
    inside = And(Le(const(0), attrs.start), And(Le(attrs.start, attrs.stop), Le(attrs.stop, n)))
    d.require(inside, message, (attrs.start, attrs.stop, n), help="bounds must satisfy 0 <= start <= stop <= extent")
    extent = simplify((attrs.stop - attrs.start + (attrs.step - 1)) // attrs.step, d.facts)
    return (Tensor(x.dtype, (*x.shape[: attrs.axis], extent, *x.shape[attrs.axis + 1 :])),)


def _slice_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: Any) -> tuple[Stage, ...]:
    a = attrs.axis
    return (Stage("slice", outs[0].dtype, outs[0].shape, lambda i, r, read: read(0, *i[:a], attrs.start + i[a] * attrs.step, *i[a + 1 :])),)


def _slice_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    index = [slice_object(None, None)] * attrs.axis + [slice_object(attrs.start, attrs.stop, attrs.step)]
    return [args[0][tuple(index)]]


@operator(deduce=_deduce_slice, reference=_slice_reference, stages=_slice_stages, attrs=SliceAttrs)
def slice(op: OpCall, x: T, axis: int, start: Any = None, stop: Any = None, step: int = 1, count: Any = None) -> T:
    """The elements start, start + step, … before stop along `axis`; negative integers count from the end, None is the respective end.

    Bounds outside of the axis are an error. If a bound is known only at run time, bounds are clamped instead, and `count` may name the new
    dim of the extent. Raises a ShapeError for a step that is no integer or 0.
    """
    value = op.operand(x)
    at = normal_axis(op.name, value, axis)
    if not isinstance(step, int) or isinstance(step, bool) or step == 0:
        raise ShapeError(f"{op.name}: a step is an integer that is not 0, not {step!r}")
    if _only_at_run_time(start) or _only_at_run_time(stop):
        return _cut(value, at, start, stop, step, count)
    n = tensor_of(value.annotation).shape[at]
    first = _bound(start, n, const(0) if step > 0 else simplify(n - 1))
    if step > 0:
        return op.emit(value, attrs=SliceAttrs(at, first, _bound(stop, n, n), step))
    last = _bound(stop, n, const(-1))
    return emit("strided_slice", (value,), StridedAttrs(at, first, simplify((first - last + (-step - 1)) // -step), step))


@dataclass(frozen=True, slots=True)
class StridedAttrs(AxisAttrs):
    """The attributes of `strided_slice`: `extent` elements from `start` on, in steps of either sign, along one axis."""

    start: Expr
    extent: Expr
    step: int = 1


def _deduce_strided(d: Deduction, attrs: StridedAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    if attrs.step == 0:
        raise d.error(f"{d.what}: a step of 0")
    n, first = x.shape[attrs.axis], attrs.start
    last = simplify(first + (attrs.extent - 1) * attrs.step)
    low, high = (first, last) if attrs.step > 0 else (last, first)
    message = f"{d.what}: {{0}} elements from {{1}} in steps of {attrs.step} are not within the {{2}} elements of axis {attrs.axis}"
    values = (attrs.extent, first, n)
    d.require(Le(const(0), attrs.extent), message, values)
    d.require(Or(Eq(attrs.extent, const(0)), And(Le(const(0), low), Lt(high, n))), f"{message} of `{d.args[0].name}`", values)
    return (Tensor(x.dtype, (*x.shape[: attrs.axis], attrs.extent, *x.shape[attrs.axis + 1 :])),)


def _strided_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    return [np.take(args[0], attrs.start + np.arange(attrs.extent) * attrs.step, axis=attrs.axis)]


@operator(deduce=_deduce_strided, reference=_strided_reference, stages=_slice_stages, attrs=StridedAttrs)
def strided_slice(op: OpCall, x: T, axis: int, start: Any, extent: Any, step: int = 1) -> T:
    """`extent` elements along `axis` from `start`, which may be known only at run time, in steps of either sign."""
    value = op.operand(x)
    at = normal_axis(op.name, value, axis)
    first = start
    if _only_at_run_time(start):
        first = bind_dim(_wide(start), most=tensor_of(value.annotation).shape[at])
    attrs = StridedAttrs(at, as_dim(op.name, first), as_dim(op.name, extent), step)
    return op.emit(value, attrs=attrs)


def _bound(bound: Any, n: Expr, default: Expr) -> Expr:
    """Returns the bound of a slice counted from the start: negative numbers count from the end `n`, None is the default.

    A symbolic bound is returned as it is.
    """
    if bound is None:
        return default
    place = as_dim("slice", bound)
    return simplify(n + place) if isinstance(place, Const) and place.value < 0 else place


def _only_at_run_time(value: Any) -> bool:
    a = value.annotation if isinstance(value, Value) else None
    return isinstance(a, Tensor) or (isinstance(a, Scalar) and a.value is None)


def _wide(value: Any) -> Any:
    """Returns the bound of a slice as i64; emits a cast if it is a tensor of another dtype."""
    a = value.annotation if isinstance(value, Value) else None
    return value if a is None or tensor_of(a).dtype is i64 else emit("cast", (value,), CastAttrs(i64))


def _cut(value: Value, axis: int, start: Any, stop: Any, step: int, count: Any) -> Any:
    """Emits a slice whose bounds are clamped at run time, and returns its value; its extent (`count`) and its start become new dims."""
    n = tensor_of(value.annotation).shape[axis]
    low, high = (const(0), n) if step > 0 else (const(-1), simplify(n - 1))

    def inside(bound: Any, default: Expr) -> Any:
        if bound is None:
            return default
        wide: Any = _wide(bound)
        # By name: `select.py`, which declares `where`, imports this file. A Python number takes the dtype of the sum, not of the condition.
        counted = emit("where", (less(wide, 0), *operands("where", (add(wide, n), wide))))
        return maximum(minimum(counted, high), low)

    first, last = inside(start, low if step > 0 else high), inside(stop, high if step > 0 else low)
    way = sub(last, first) if step > 0 else sub(first, last)
    extent = maximum(floor_divide(add(way, abs(step) - 1), abs(step)), 0)
    size = bind_dim(extent, count, most=simplify((n + (abs(step) - 1)) // abs(step)))
    begin = first if isinstance(first, Expr) and step > 0 else bind_dim(maximum(first, 0), most=n)
    return strided_slice(value, axis, begin, size, step)
