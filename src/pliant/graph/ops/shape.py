"""Operators that move elements: reshape, permute, concat, take; and constants: full, scalar.

ops.reshape(x, [t, 9, 64]), ops.permute(x, [1, 0, 2]), ops.concat([a, b], axis=1)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import DType, bool_, i64
from ...dtype import dtype as to_dtype
from ...support.errors import Error, ShapeError, counted
from ...support.record import dataclass
from ...sym.expr import And, Cast, Const, Expr, Le, Lt, Mul, Select, const, product
from ...sym.simplify import simplify
from ..annotation import shape_text
from ..deduce import Deduction
from ..node import Annotation, Scalar, Tensor, Value
from ..operators import Array, OpCall, operator, tensor_of
from ..stage import Indices, Stage
from .reduce import AxisAttrs, normal_axis

T = TypeVar("T")
Read = Callable[..., Expr]


def as_dim(name: str, value: Any) -> Expr:
    """Returns `value`, an integer, an i64 expression or a host scalar of known value, as an expression; raises an Error for others."""
    if isinstance(value, Value) and isinstance(value.annotation, Scalar) and value.annotation.value is not None:
        value = value.annotation.value
    if isinstance(value, Expr) and value.dtype is i64:
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return const(int(value))
    shown = f"`{value.name}`, whose value is only known at run time" if isinstance(value, Value) else repr(value)
    raise Error(f"{name}: a dim or an integer is expected, not {shown}")


@dataclass(frozen=True, slots=True)
class ShapeAttrs:
    """The attributes of operators with a shape argument: the shape of the result."""

    shape: tuple[Expr, ...]


def _deduce_reshape(d: Deduction, attrs: ShapeAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    old, new = simplify(product(x.shape), d.facts), simplify(product(attrs.shape), d.facts)
    d.equal(old, new, f"{{0}} elements of shape {shape_text(x.shape)} cannot have the shape {shape_text(attrs.shape)} of {{1}}")
    return (Tensor(x.dtype, attrs.shape),)


def unflatten(flat: Expr, shape: tuple[Expr, ...]) -> Indices:
    """Returns the indices of the element with row-major offset `flat` in a tensor of this shape."""
    indices: list[Expr] = []
    for n in reversed(shape[1:]):
        indices.append(flat % n)
        flat = flat // n
    return (flat, *reversed(indices)) if shape else ()


def flatten(indices: Indices, shape: tuple[Expr, ...]) -> Expr:
    """Returns the row-major offset of the element at these indices."""
    total: Expr = const(0)
    for i, n in zip(indices, shape, strict=True):
        total = total * n + i
    return total


def _reshape_indices(i: Indices, new: tuple[Expr, ...], old: tuple[Expr, ...]) -> Indices:
    """Returns the indices into the old shape for indices `i` of the new one; equal leading and trailing dims need no arithmetic."""
    head = 0
    while head < min(len(old), len(new)) and old[head] is new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] is new[-1 - tail]:
        tail += 1
    middle_new, middle_old = slice_(new, head, tail), slice_(old, head, tail)
    inner = unflatten(flatten(slice_(i, head, tail), middle_new), middle_old)
    return (*i[:head], *inner, *i[len(i) - tail :])


def slice_(items: tuple[Expr, ...], head: int, tail: int) -> tuple[Expr, ...]:
    """Returns the items without the first `head` and the last `tail`."""
    return items[head : len(items) - tail]


def _reshape_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: ShapeAttrs) -> tuple[Stage, ...]:
    x, out = args[0], outs[0]
    return (Stage("reshape", x.dtype, out.shape, lambda i, r, read: read(0, *_reshape_indices(i, out.shape, x.shape))),)


@operator(
    deduce=_deduce_reshape,
    reference=lambda args, attrs: [args[0].reshape(attrs.shape)],
    stages=_reshape_stages,
    attrs=ShapeAttrs,
    view=True,
)
def reshape(op: OpCall, x: T, shape: Any) -> T:
    """The same elements in row-major order with another shape; one extent may be -1 and is inferred.

    Raises a ShapeError for more than one -1.
    """
    value = op.operand(x)
    dims = [as_dim(op.name, s) for s in (shape if isinstance(shape, tuple | list) else (shape,))]
    open_ = [k for k, s in enumerate(dims) if isinstance(s, Const) and s.value == -1]
    if len(open_) > 1:
        raise ShapeError(f"{op.name}: more than one extent is -1")
    if open_:
        dims[open_[0]] = _remaining(tensor_of(value.annotation).shape, [s for k, s in enumerate(dims) if k != open_[0]])
    return op.emit(value, attrs=ShapeAttrs(tuple(dims)))


@dataclass(frozen=True, slots=True)
class PermuteAttrs:
    """The attributes of `permute`: the axis of the operand for each axis of the result."""

    axes: tuple[int, ...]


def _deduce_permute(d: Deduction, attrs: PermuteAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    if sorted(attrs.axes) != list(range(len(x.shape))):
        help_ = f"give each of 0..{len(x.shape) - 1} once"
        raise d.error(f"permute: axes {list(attrs.axes)} are no order of {counted(len(x.shape), 'dim')}", help=help_)
    return (Tensor(x.dtype, tuple(x.shape[a] for a in attrs.axes)),)


def _permute_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: PermuteAttrs) -> tuple[Stage, ...]:
    order = [attrs.axes.index(a) for a in range(len(attrs.axes))]
    return (Stage("permute", outs[0].dtype, outs[0].shape, lambda i, r, read: read(0, *(i[a] for a in order))),)


@operator(
    deduce=_deduce_permute, reference=lambda args, attrs: [np.transpose(args[0], attrs.axes)], stages=_permute_stages, attrs=PermuteAttrs
)
def permute(op: OpCall, x: T, axes: Any) -> T:
    """`x` with its axes reordered: axis i of the result is axis `axes[i]` of `x`."""
    value = op.operand(x)
    return op.emit(value, attrs=PermuteAttrs(tuple(normal_axis(op.name, value, a) for a in axes)))


def _deduce_concat(d: Deduction, attrs: AxisAttrs) -> tuple[Annotation, ...]:
    d.same_dtype()
    first = d.tensor(0)
    total = first.shape[attrs.axis]
    for k in range(1, len(d.args)):
        other = d.rank(k, len(first.shape))
        for axis, (n, m) in enumerate(zip(first.shape, other.shape, strict=True)):
            if axis != attrs.axis:
                name = d.args[k].name
                d.equal(m, n, f"dim {axis} of `{name}` is {{0}}, that of `{d.args[0].name}` {{1}}", arg=k)
        total = total + other.shape[attrs.axis]
    extent = simplify(total, d.facts)
    return (Tensor(first.dtype, (*first.shape[: attrs.axis], extent, *first.shape[attrs.axis + 1 :])),)


def _concat_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: AxisAttrs) -> tuple[Stage, ...]:
    a = attrs.axis

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        starts: list[Expr] = [const(0)]
        for t in args[:-1]:
            starts.append(starts[-1] + t.shape[a])
        last = len(args) - 1
        element = read(last, *i[:a], i[a] - starts[last], *i[a + 1 :])
        for k in reversed(range(last)):
            element = Select(Lt(i[a], starts[k + 1]), read(k, *i[:a], i[a] - starts[k], *i[a + 1 :]), element)
        return element

    return (Stage("concat", outs[0].dtype, outs[0].shape, value),)


@operator(
    deduce=_deduce_concat,
    reference=lambda args, attrs: [np.concatenate(list(args), axis=attrs.axis)],
    stages=_concat_stages,
    attrs=AxisAttrs,
    arity=(1, None),
)
def concat(op: OpCall, xs: Sequence[T], axis: int = 0) -> T:
    """Tensors joined along `axis`. Raises an Error for an empty list."""
    if not isinstance(xs, tuple | list) or not xs:
        raise Error("concat takes a list of tensors", help="for example ops.concat([a, b], axis=0)")
    values = op.operands(xs)
    return op.emit(*values, attrs=AxisAttrs(normal_axis(op.name, values[0], axis)))


def _deduce_take(d: Deduction, attrs: AxisAttrs) -> tuple[Annotation, ...]:
    x, indices = d.tensor(0), d.tensor(1)
    if not indices.dtype.is_int:
        raise d.error(f"take: the indices `{d.args[1].name}` are {indices.dtype}, not integers", arg=1)
    return (Tensor(x.dtype, (*x.shape[: attrs.axis], *indices.shape, *x.shape[attrs.axis + 1 :])),)


def _take_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: AxisAttrs) -> tuple[Stage, ...]:
    a, rank = attrs.axis, len(args[1].shape)
    extent = args[0].shape[a]

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        return read(0, *i[:a], wrapped(read(1, *i[a : a + rank]), extent), *i[a + rank :])

    def check(i: Indices, read: Read) -> tuple[Expr, str, tuple[Expr, ...]]:
        return inside("take", read(1, *i[a : a + rank]), a, extent)

    return (Stage("take", outs[0].dtype, outs[0].shape, value, check=check),)


def wide_index(index: Expr) -> Expr:
    """Returns a loaded index cast to i64."""
    return index if index.dtype is i64 else Cast(i64, index)


def wrapped(index: Expr, extent: Expr) -> Expr:
    """Returns a loaded index as i64, counted from the start: negative ones get the extent added."""
    wide = wide_index(index)
    return wide if index.dtype.kind == "u" else Select(Lt(wide, const(0)), wide + extent, wide)


def inside(name: str, index: Expr, axis: int, extent: Expr) -> tuple[Expr, str, tuple[Expr, ...]]:
    """Returns the condition that a loaded index is in range, the message if it is not, and the message's values (index, extent)."""
    place = wrapped(index, extent)
    message = f"{name}: index {{0}} is outside of dim {axis}, which has {{1}} elements"
    return And(Le(const(0), place), Lt(place, extent)), message, (wide_index(index), extent)


def _take_reference(args: Sequence[Array], attrs: AxisAttrs) -> list[Array]:
    extent, index = args[0].shape[attrs.axis], args[1].astype(np.int64)
    shape = (*args[0].shape[: attrs.axis], *index.shape, *args[0].shape[attrs.axis + 1 :])
    if 0 in shape:  # nothing is read at any index
        return [np.empty(shape, args[0].dtype)]
    wrong = index[(index < -extent) | (index >= extent)]
    if wrong.size:
        raise ShapeError(f"take: index {int(wrong.flat[0])} is outside of dim {attrs.axis}, which has {extent} elements")
    return [np.take(args[0], index, axis=attrs.axis)]


@operator(deduce=_deduce_take, reference=_take_reference, stages=_take_stages, attrs=AxisAttrs, arity=2)
def take(op: OpCall, x: T, indices: Any, axis: int = 0) -> T:
    """The slices of `x` at the indices along `axis`: rows of a table for axis 0."""
    value = op.operand(x)
    return op.emit(value, op.operand(indices), attrs=AxisAttrs(normal_axis(op.name, value, axis)))


@dataclass(frozen=True, slots=True)
class FullAttrs:
    """The attributes of `full`: a shape, and the literal of every element."""

    shape: tuple[Expr, ...]
    value: Expr


@operator(
    deduce=lambda d, attrs: (Tensor(attrs.value.dtype, attrs.shape),),
    reference=lambda args, attrs: [np.full(attrs.shape, attrs.value)],
    stages=lambda args, outs, attrs: (Stage("full", outs[0].dtype, outs[0].shape, lambda i, r, read: attrs.value),),
    attrs=FullAttrs,
    arity=0,
)
def full(op: OpCall, shape: Any, value: Any, dtype: Any = None) -> Any:
    """A tensor filled with the number `value`; without a dtype f32, or bool for a bool. Raises an Error if the value is no number."""
    if isinstance(value, Const):
        literal = value
    elif isinstance(value, bool | int | float):
        literal = number(op.name, value, to_dtype(dtype if dtype is not None else "bool" if isinstance(value, bool) else "f32"))
    else:
        raise Error(f"{op.name}: the value is a number, not {value!r}")
    return op.emit(attrs=FullAttrs(tuple(as_dim(op.name, s) for s in shape), literal))


@dataclass(frozen=True, slots=True)
class ScalarAttrs:
    """The attributes of `scalar`: the value of a host scalar, an expression over dims."""

    value: Expr


@operator(
    deduce=lambda d, attrs: (Scalar(attrs.value.dtype, attrs.value),),
    reference=lambda args, attrs: [np.asarray(attrs.value)],
    stages=lambda args, outs, attrs: (Stage("scalar", attrs.value.dtype, (), lambda i, r, read: attrs.value),),
    attrs=ScalarAttrs,
    arity=0,
)
def scalar(op: OpCall, value: Any) -> Any:
    """A host scalar from an expression over dims; raises an Error for what is none."""
    if isinstance(value, bool):  # printed programs have a bool where a condition over dims was folded
        value = Const(value, bool_)
    if not isinstance(value, Expr):
        raise Error(f"{op.name}: an expression over dims is expected, not {value!r}", help="numbers can be used as they are")
    return op.emit(attrs=ScalarAttrs(value))


def _remaining(old: tuple[Expr, ...], new: list[Expr]) -> Expr:
    """Returns the extent of -1: equal factors of old and new shape cancel (also if they are 0), the rest is divided."""
    above = [f for n in old for f in _factors(n)]
    below = [f for n in new for f in _factors(n)]
    for f in list(below):
        if f in above:
            above.remove(f)
            below.remove(f)
    return simplify(product(tuple(above)) // product(tuple(below)))


def _factors(e: Expr) -> list[Expr]:
    return [f for a in e.args for f in _factors(a)] if isinstance(e, Mul) else [e]


def number(what: str, value: float, dtype: DType) -> Const:
    """Returns a number as a literal of a dtype; raises a ShapeError for floats below 16 bits, which arise only by rounding others."""
    if dtype.storage and dtype.is_float:
        raise ShapeError(f"{what}: there are no numbers of {dtype}", help=f'make it of f32, and round it: ops.cast(y, "{dtype}")')
    return Const(value, dtype)
