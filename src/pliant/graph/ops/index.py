"""Reads at computed indices: gather, gather_nd, reverse_sequence. `take` is in `shape.py`, writes are in `scatter.py`.

Negative indices count from the end (-1 is the last). An index out of range is an error that names it.

    ops.gather(x, order, axis=1), ops.gather_nd(x, places)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ...support.errors import ShapeError
from ...support.record import dataclass
from ...sym.conditions import all_of
from ...sym.expr import And, Const, Expr, Le, Lt, Select, const
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, composite, operator
from ..stage import Indices, Read, Stage
from .reduce import AxisAttrs, normal_axis
from .shape import inside, take, wide_index, wrapped

T = TypeVar("T")
VALUES = 3  # the number of indices, and of extents, that a message shows


def integers(d: Deduction, k: int) -> Tensor:
    """Returns the annotation of argument `k`; raises an error if its dtype is not an integer."""
    t = d.tensor(k)
    if not t.dtype.is_int:
        raise d.error(f"{d.what}: the indices `{d.args[k].name}` are {t.dtype}, not integers", arg=k)
    return t


def tuple_inside(name: str, pairs: Sequence[tuple[Expr, Expr]], first: int) -> tuple[Expr, str, tuple[Expr, ...]]:
    """Returns the condition that an index tuple is inside of the dims from `first` on, the message if it is not, and its values."""
    if len(pairs) == 1:
        return inside(name, pairs[0][0], first, pairs[0][1])
    condition = all_of(*(inside(name, index, 0, extent)[0] for index, extent in pairs))
    shown = pairs[:VALUES]
    values = ", ".join(f"{{{k}}}" for k in range(len(shown)))
    extents = " x ".join(f"{{{len(shown) + k}}}" for k in range(len(shown)))
    message = f"{name}: index ({values}) is outside of dims {first}..{first + len(pairs) - 1}, which have {extents} elements"
    return condition, message, (*(wide_index(index) for index, _ in shown), *(extent for _, extent in shown))


def checked(name: str, index: Array, extent: int) -> Array:
    """Returns indices counted from the start, in numpy: negative ones get the extent added.

    Raises a ShapeError for one that is out of range.
    """
    wide = index.astype(np.int64)
    wrong = wide[(wide < -extent) | (wide >= extent)]
    if wrong.size:
        raise ShapeError(f"{name}: index {int(wrong.flat[0])} is outside of a dim of {extent} elements")
    return np.where(wide < 0, wide + extent, wide)


def _deduce_gather(d: Deduction, attrs: AxisAttrs) -> tuple[Annotation, ...]:
    x, indices = d.tensor(0), integers(d, 1)
    d.rank(1, len(x.shape))
    fits(d, 1, attrs.axis)
    return (Tensor(x.dtype, indices.shape),)


def fits(d: Deduction, k: int, axis: int) -> None:
    """Requires that the indices, argument `k`, are no larger than argument 0 along each axis but `axis`; raises if they cannot be."""
    for i, (n, m) in enumerate(zip(d.tensor(0).shape, d.tensor(k).shape, strict=True)):
        if i != axis and n is not m:
            d.require(Le(m, n), f"{d.what}: dim {i} of `{d.args[k].name}` is {{0}}, that of `{d.args[0].name}` only {{1}}", (m, n), arg=k)


def _gather_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: AxisAttrs) -> tuple[Stage, ...]:
    a = attrs.axis
    extent = args[0].shape[a]

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        return read(0, *i[:a], wrapped(read(1, *i), extent), *i[a + 1 :])

    return (Stage("gather", outs[0].dtype, outs[0].shape, value, check=lambda i, read: inside("gather", read(1, *i), a, extent)),)


def _gather_reference(args: Sequence[Array], attrs: AxisAttrs) -> list[Array]:
    return [args[0][element_places("gather", args[0], args[1], attrs.axis)]]


def element_places(name: str, x: Array, index: Array, axis: int) -> tuple[Array, ...]:
    """Returns the index arrays with which numpy reads, or writes, the elements at indices along an axis.

    Raises if an index is out of range.
    """
    along = checked(name, index, x.shape[axis])
    return tuple(along if i == axis else np.asarray(place) for i, place in enumerate(np.indices(index.shape, np.int64)))


@operator(deduce=_deduce_gather, reference=_gather_reference, stages=_gather_stages, attrs=AxisAttrs, arity=2)
def gather(op: OpCall, x: T, indices: Any, axis: int = 0) -> T:
    """Elements of `x` at indices along `axis`: y[i, j] = x[indices[i, j], j] for axis 0 (ONNX GatherElements)."""
    value = op.operand(x)
    return op.emit(value, op.operand(indices), attrs=AxisAttrs(normal_axis(op.name, value, axis)))


@dataclass(frozen=True, slots=True)
class BatchAttrs:
    """The attributes of `gather_nd`: the number of leading dims that data and indices share."""

    batch_dims: int = 0


def tuple_length(d: Deduction, k: int, most: int) -> int:
    """Returns the length of the index tuples, the last dim of argument `k`; raises unless it is a number from 1 to `most`."""
    shape = integers(d, k).shape
    if not shape or not isinstance(shape[-1], Const):
        raise d.error(f"{d.what}: the last dim of the indices `{d.args[k].name}` has to be a number", arg=k)
    length = int(shape[-1].value)
    if not 1 <= length <= most:
        raise d.error(f"{d.what}: {length} indices stand together, and `{d.args[0].name}` has {most} dims for them", arg=k)
    return length


def _deduce_gather_nd(d: Deduction, attrs: BatchAttrs) -> tuple[Annotation, ...]:
    x, indices, b = d.tensor(0), d.tensor(1), attrs.batch_dims
    if not 0 <= b < min(len(x.shape), len(indices.shape)):
        raise d.error(f"gather_nd: batch_dims is {b}, and has to be below both ranks")
    length = tuple_length(d, 1, len(x.shape) - b)
    for i in range(b):
        d.equal(indices.shape[i], x.shape[i], f"dim {i} of `{d.args[1].name}` is {{0}}, that of `{d.args[0].name}` {{1}}", arg=1)
    return (Tensor(x.dtype, (*indices.shape[:-1], *x.shape[b + length :])),)


def _gather_nd_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: BatchAttrs) -> tuple[Stage, ...]:
    x, indices, b = args[0], args[1], attrs.batch_dims
    points, length = len(indices.shape) - 1, indices.shape[-1]
    assert isinstance(length, Const)
    axes = range(b, b + int(length.value))

    def at(i: Indices, read: Read, axis: int) -> Expr:
        return read(1, *i[:points], Const(axis - b, length.dtype))

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        return read(0, *i[:b], *(wrapped(at(i, read, a), x.shape[a]) for a in axes), *i[points:])

    def check(i: Indices, read: Read) -> tuple[Expr, str, tuple[Expr, ...]]:
        return tuple_inside("gather_nd", [(at(i, read, a), x.shape[a]) for a in axes], b)

    return (Stage("gather_nd", outs[0].dtype, outs[0].shape, value, check=check),)


def _gather_nd_reference(args: Sequence[Array], attrs: BatchAttrs) -> list[Array]:
    x, index = args
    b, points = attrs.batch_dims, index.shape[:-1]
    shape = (*points, *x.shape[b + index.shape[-1] :])
    if 0 in shape:  # nothing is read at any index
        return [np.empty(shape, x.dtype)]
    places = [checked("gather_nd", index[..., k], x.shape[b + k]) for k in range(index.shape[-1])]
    return [x[(*np.indices(points, np.int64)[:b], *places)]]


@operator(deduce=_deduce_gather_nd, reference=_gather_nd_reference, stages=_gather_nd_stages, attrs=BatchAttrs, arity=2)
def gather_nd(op: OpCall, x: T, indices: Any, batch_dims: int = 0) -> T:
    """Slices of `x` at index tuples, which are the rows of the last dim of `indices`.

    The first `batch_dims` dims are common to both, and the tuples index the dims after them.
    """
    return op.emit(*op.operands((x, indices)), attrs=BatchAttrs(batch_dims))


@dataclass(frozen=True, slots=True)
class ReverseAttrs:
    """The attributes of `reverse_sequence`: the axis along which sequences run, and the axis of the batch."""

    axis: int
    batch_axis: int


def _deduce_reverse(d: Deduction, attrs: ReverseAttrs) -> tuple[Annotation, ...]:
    x, lengths = d.tensor(0), integers(d, 1)
    d.rank(1, 1)
    if attrs.axis == attrs.batch_axis:
        raise d.error(f"reverse_sequence: axis and batch_axis are both {attrs.axis}")
    n = x.shape[attrs.batch_axis]
    d.equal(lengths.shape[0], n, f"`{d.args[1].name}` has {{0}} lengths for {{1}} sequences", arg=1)
    return (Tensor(x.dtype, x.shape),)


def _reverse_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: ReverseAttrs) -> tuple[Stage, ...]:
    a, b = attrs.axis, attrs.batch_axis
    extent = args[0].shape[a]

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        length = wide_index(read(1, i[b]))
        return read(0, *i[:a], Select(Lt(i[a], length), length - 1 - i[a], i[a]), *i[a + 1 :])

    def check(i: Indices, read: Read) -> tuple[Expr, str, tuple[Expr, ...]]:
        length = wide_index(read(1, i[b]))
        message = "reverse_sequence: a length of {0} where {1} elements are"
        return And(Le(const(0), length), Le(length, extent)), message, (length, extent)

    return (Stage("reverse_sequence", outs[0].dtype, outs[0].shape, value, check=check),)


def _reverse_reference(args: Sequence[Array], attrs: ReverseAttrs) -> list[Array]:
    x, lengths = args
    result = x.copy()
    for k, length in enumerate(lengths):
        if not 0 <= length <= x.shape[attrs.axis]:
            raise ShapeError(f"reverse_sequence: a length of {length} where {x.shape[attrs.axis]} elements are")
        index: list[Any] = [slice(None)] * x.ndim
        index[attrs.batch_axis], index[attrs.axis] = slice(k, k + 1), slice(0, int(length))
        result[tuple(index)] = np.flip(x[tuple(index)], attrs.axis)
    return [result]


@operator(deduce=_deduce_reverse, reference=_reverse_reference, stages=_reverse_stages, attrs=ReverseAttrs, arity=2)
def reverse_sequence(op: OpCall, x: T, lengths: Any, axis: int = 0, batch_axis: int = 1) -> T:
    """`x` with the first `lengths[b]` elements of each sequence b in reverse order."""
    value = op.operand(x)
    axes = [normal_axis(op.name, value, a) for a in (axis, batch_axis)]
    return op.emit(value, op.operand(lengths), attrs=ReverseAttrs(*axes))


@composite
def index_select(op: OpCall, x: T, indices: Any, axis: int = 0) -> T:
    """The slices of `x` at the indices along `axis`: another name for `take`."""
    return take(x, indices, axis)


@composite
def embedding(op: OpCall, weight: T, indices: Any) -> T:
    """The rows of a table at the indices."""
    return take(weight, indices, 0)
