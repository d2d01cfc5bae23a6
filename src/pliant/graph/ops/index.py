"""Reading and writing at indices that are data: gather, gather_nd, scatter, scatter_nd, index_put; take is in `shape`.

An index may count from the end (-1 is the last). One outside of its dim is an error that names it. Of several updates of one element, all
count in order: without a reduction the last one stays. Where `x` is state, scatters update it in place and return its new version.

    ops.gather(x, order, axis=1), ops.scatter_nd(x, places, updates, reduction="add")
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...support.errors import ShapeError
from ...sym.expr import And, Const, Expr, Le, Lt, Select, all_of, const
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpDef, emit, operand, operands, register
from ..stage import Indices, Read, Stage
from .reduce import AxisAttrs, normal_axis
from .shape import inside, take, wide_index, wrapped

T = TypeVar("T")
VALUES = 3  # indices that a message shows, with as many extents
UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def integers(d: Deduction, k: int) -> Tensor:
    """The annotation of argument `k`, which must be of integers."""
    t = d.tensor(k)
    if not t.dtype.is_int:
        raise d.error(f"{d.what}: the indices `{d.args[k].name}` are {t.dtype}, not integers", arg=k)
    return t


def tuple_inside(name: str, pairs: Sequence[tuple[Expr, Expr]], first: int) -> tuple[Expr, str, tuple[Expr, ...]]:
    """The condition that indices which were read are inside of the dims from `first` on, with the message where they are not."""
    if len(pairs) == 1:
        return inside(name, pairs[0][0], first, pairs[0][1])
    condition = all_of(*(inside(name, index, 0, extent)[0] for index, extent in pairs))
    shown = pairs[:VALUES]
    values = ", ".join(f"{{{k}}}" for k in range(len(shown)))
    extents = " x ".join(f"{{{len(shown) + k}}}" for k in range(len(shown)))
    message = f"{name}: index ({values}) is outside of dims {first}..{first + len(pairs) - 1}, which have {extents} elements"
    return condition, message, (*(wide_index(index) for index, _ in shown), *(extent for _, extent in shown))


def checked(name: str, index: Array, extent: int) -> Array:
    """Indices counted from the start, in numpy; the error of one that is outside."""
    wide = index.astype(np.int64)
    wrong = wide[(wide < -extent) | (wide >= extent)]
    if wrong.size:
        raise ShapeError(f"{name}: index {int(wrong.flat[0])} is outside of a dim of {extent} elements")
    return np.where(wide < 0, wide + extent, wide)


def _deduce_gather(d: Deduction, attrs: AxisAttrs) -> tuple[Annotation, ...]:
    x, indices = d.tensor(0), integers(d, 1)
    d.rank(1, len(x.shape))
    _fits(d, 1, attrs.axis)
    return (Tensor(x.dtype, indices.shape),)


def _fits(d: Deduction, k: int, axis: int) -> None:
    """Along every other axis the indices are within the first argument."""
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
    return [args[0][_element_places("gather", args[0], args[1], attrs.axis)]]


def _element_places(name: str, x: Array, index: Array, axis: int) -> tuple[Array, ...]:
    """The places that indices along an axis mean, as numpy takes them."""
    along = checked(name, index, x.shape[axis])
    return tuple(along if i == axis else np.asarray(place) for i, place in enumerate(np.indices(index.shape, np.int64)))


register(OpDef("gather", _deduce_gather, _gather_reference, _gather_stages, (2, 2), AxisAttrs))


@dataclass(frozen=True, slots=True)
class BatchAttrs:
    """How many leading dims the data and the indices have in common."""

    batch_dims: int = 0


def _tuple_length(d: Deduction, k: int, most: int) -> int:
    """The number of indices that stand together in the last dim of argument `k`."""
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
    length = _tuple_length(d, 1, len(x.shape) - b)
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
    places = [checked("gather_nd", index[..., k], x.shape[b + k]) for k in range(index.shape[-1])]
    return [x[(*np.indices(points, np.int64)[:b], *places)]]


register(OpDef("gather_nd", _deduce_gather_nd, _gather_nd_reference, _gather_nd_stages, (2, 2), BatchAttrs))


@dataclass(frozen=True, slots=True)
class ScatterAttrs:
    """The axis that the indices are along, and what becomes of old and new value: none (the new one), add, mul, min, max."""

    axis: int
    reduction: str = "none"


@dataclass(frozen=True, slots=True)
class ScatterNDAttrs:
    """What becomes of old and new value: none (the new one), add, mul, min, max."""

    reduction: str = "none"


def _same_updates(d: Deduction, k: int, reduction: str) -> Tensor:
    """The annotation of the updates, argument `k`, whose dtype is that of the data."""
    x, updates = d.tensor(0), d.tensor(k)
    if updates.dtype is not x.dtype:
        help_ = f"write ops.cast({d.args[k].name}, {x.dtype})"
        raise d.error(f"{d.what} of {updates.dtype} into {x.dtype}: nothing is cast implicitly", arg=k, help=help_)
    if reduction != "none" and reduction not in UFUNCS:
        raise d.error(f'{d.what}: there is no reduction "{reduction}"', help="one of none, add, mul, min, max")
    if x.dtype.storage or (reduction != "none" and x.dtype.kind == "b"):
        raise d.error(f"{d.what}: no {reduction} of {x.dtype}", arg=0)
    return updates


def _updated(x: Tensor) -> Tensor:
    """The result of a scatter: state stays where it is, a tensor is made anew."""
    return x if x.state else Tensor(x.dtype, x.shape)


def _deduce_scatter(d: Deduction, attrs: ScatterAttrs) -> tuple[Annotation, ...]:
    x, indices = d.tensor(0), integers(d, 1)
    updates = _same_updates(d, 2, attrs.reduction)
    d.rank(1, len(x.shape))
    d.rank(2, len(x.shape))
    for i, (n, m) in enumerate(zip(indices.shape, updates.shape, strict=True)):
        d.equal(m, n, f"dim {i} of `{d.args[2].name}` is {{0}}, that of `{d.args[1].name}` {{1}}", arg=2)
    _fits(d, 1, attrs.axis)
    return (_updated(x),)


def _scatter_reference(args: Sequence[Array], attrs: ScatterAttrs) -> list[Array]:
    return [_put(args[0], _element_places("scatter", args[0], args[1], attrs.axis), args[2], attrs.reduction)]


def _put(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    made = x.copy()
    if reduction == "none":
        made[places] = updates
    else:
        UFUNCS[reduction].at(made, places, updates)
    return made


register(OpDef("scatter", _deduce_scatter, _scatter_reference, None, (3, 3), ScatterAttrs, template="scatter.elements", updates=True))


def _deduce_scatter_nd(d: Deduction, attrs: ScatterNDAttrs) -> tuple[Annotation, ...]:
    x, indices = d.tensor(0), d.tensor(1)
    updates = _same_updates(d, 2, attrs.reduction)
    length = _tuple_length(d, 1, len(x.shape))
    expected = (*indices.shape[:-1], *x.shape[length:])
    d.rank(2, len(expected))
    for i, (n, m) in enumerate(zip(expected, updates.shape, strict=True)):
        d.equal(m, n, f"dim {i} of the updates `{d.args[2].name}` is {{0}}, {{1}} is expected", arg=2)
    return (_updated(x),)


def _scatter_nd_reference(args: Sequence[Array], attrs: ScatterNDAttrs) -> list[Array]:
    x, index, updates = args
    places = tuple(checked("scatter_nd", index[..., k], x.shape[k]) for k in range(index.shape[-1]))
    return [_put(x, places, updates, attrs.reduction)]


register(
    OpDef("scatter_nd", _deduce_scatter_nd, _scatter_nd_reference, None, (3, 3), ScatterNDAttrs, template="scatter.tuples", updates=True)
)


@dataclass(frozen=True, slots=True)
class IndexPutAttrs:
    """Whether values are added to what is there."""

    accumulate: bool = False


def _deduce_index_put(d: Deduction, attrs: IndexPutAttrs) -> tuple[Annotation, ...]:
    x, values = d.tensor(0), _same_updates(d, 1, "add" if attrs.accumulate else "none")
    count = len(d.args) - 2
    if count > len(x.shape):
        raise d.error(f"index_put: {count} indices into the {len(x.shape)} dims of `{d.args[0].name}`")
    points = d.broadcast(*(integers(d, k).shape for k in range(2, len(d.args))))
    written = (*points, *x.shape[count:])
    if len(values.shape) > len(written):
        raise d.error(f"index_put: the values have {len(values.shape)} dims, what is written has {len(written)}", arg=1)
    both = d.broadcast(written, values.shape)
    for i, (n, m) in enumerate(zip(written, both, strict=True)):
        d.equal(m, n, f"dim {i} of what is written is {{1}}, and the values have {{0}}", arg=1)
    return (_updated(x),)


def _index_put_reference(args: Sequence[Array], attrs: IndexPutAttrs) -> list[Array]:
    x, values, *indices = args
    places = np.broadcast_arrays(*(checked("index_put", index, x.shape[k]) for k, index in enumerate(indices)))
    shape = (*places[0].shape, *x.shape[len(indices) :])
    return [_put(x, tuple(places), np.broadcast_to(values, shape), "add" if attrs.accumulate else "none")]


register(
    OpDef(
        "index_put",
        _deduce_index_put,
        _index_put_reference,
        None,
        (3, None),
        IndexPutAttrs,
        template="scatter.broadcast_tuples",
        updates=True,
    )
)


@dataclass(frozen=True, slots=True)
class ReverseAttrs:
    """The axis along which sequences run, and the one along which they stand beside each other."""

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
    made = x.copy()
    for k, length in enumerate(lengths):
        if not 0 <= length <= x.shape[attrs.axis]:
            raise ShapeError(f"reverse_sequence: a length of {length} where {x.shape[attrs.axis]} elements are")
        index: list[Any] = [slice(None)] * x.ndim
        index[attrs.batch_axis], index[attrs.axis] = slice(k, k + 1), slice(0, int(length))
        made[tuple(index)] = np.flip(x[tuple(index)], attrs.axis)
    return [made]


register(OpDef("reverse_sequence", _deduce_reverse, _reverse_reference, _reverse_stages, (2, 2), ReverseAttrs))


def gather(x: T, indices: Any, axis: int = 0) -> T:
    """Elements of `x` at indices along `axis`: y[i, j] = x[indices[i, j], j] for axis 0 (GatherElements of ONNX)."""
    value = operand("gather", x)
    return emit("gather", (value, operand("gather", indices)), AxisAttrs(normal_axis("gather", value, axis)))


def gather_nd(x: T, indices: Any, batch_dims: int = 0) -> T:
    """Parts of `x` at index tuples, which stand in the last dim of `indices`."""
    return emit("gather_nd", operands("gather_nd", (x, indices)), BatchAttrs(batch_dims))


def scatter(x: T, indices: Any, updates: Any, axis: int = 0, reduction: str = "none") -> T:
    """`x` with updates put at indices along `axis`: y[indices[i, j], j] = updates[i, j] for axis 0 (ScatterElements of ONNX)."""
    values = operands("scatter", (x, indices, updates))
    return emit("scatter", values, ScatterAttrs(normal_axis("scatter", values[0], axis), reduction))


def scatter_nd(x: T, indices: Any, updates: Any, reduction: str = "none") -> T:
    """`x` with parts updated at index tuples, which stand in the last dim of `indices`."""
    return emit("scatter_nd", operands("scatter_nd", (x, indices, updates)), ScatterNDAttrs(reduction))


def index_put(x: T, values: Any, *indices: Any, accumulate: bool = False) -> T:
    """`x` with values put (or added) at indices into its leading dims; indices and values are broadcast."""
    return emit("index_put", operands("index_put", (x, values, *indices)), IndexPutAttrs(accumulate))


def index_select(x: T, indices: Any, axis: int = 0) -> T:
    """The parts of `x` at the indices along `axis`: another name of `take`."""
    return take(x, indices, axis)


def embedding(weight: T, indices: Any) -> T:
    """The rows of a table at the indices."""
    return take(weight, indices, 0)


def reverse_sequence(x: T, lengths: Any, axis: int = 0, batch_axis: int = 1) -> T:
    """`x` with the first elements of each sequence in reverse order, as many as its length says."""
    value = operand("reverse_sequence", x)
    axes = [normal_axis("reverse_sequence", value, a) for a in (axis, batch_axis)]
    return emit("reverse_sequence", (value, operand("reverse_sequence", lengths)), ReverseAttrs(*axes))
