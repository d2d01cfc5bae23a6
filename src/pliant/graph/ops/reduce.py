"""Reductions along axes: sum, max, min, mean; and softmax.

`axis` is one axis, several, or None for all; negative ones count from the end. Sums of 16-bit floats are made in f32 and rounded once.
An empty sum is 0, an empty maximum the least value of its dtype (minus infinity for floats), and dually for a minimum.

    ops.sum(x, axis=-1, keepdims=True), ops.softmax(x)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from ...dtype import DType, bf16, bool_, f16, f32
from ...support.errors import ShapeError, counted
from ...sym.expr import Call, Cast, Const, Div, Expr, Sub, const, product
from ..deduce import Deduction
from ..node import Annotation, Tensor, Value
from ..operators import Array, OpDef, Reference, emit, operand, register, tensor_of
from ..stage import Indices, Stage

T = TypeVar("T")


def accumulator(dtype: DType) -> DType:
    """The dtype in which sums over `dtype` are made."""
    return f32 if dtype in (f16, bf16) else dtype


def normal_axis(name: str, x: Value, axis: int, extra: int = 0) -> int:
    """`axis` counted from the start; one that `x` does not have is an error."""
    rank = len(tensor_of(x.annotation).shape) + extra
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise ShapeError(f"{name}: an axis is an integer, not {axis!r}")
    if not -rank <= axis < rank:
        raise ShapeError(
            f"{name}: axis {axis} of a tensor with {counted(rank, 'dim')}",
            facts=[f"`{x.name}` is {x.annotation}"],
            help=f"axes are {-rank}..{rank - 1}" if rank else "a tensor without dims has no axes",
        )
    return axis % rank


def normal_axes(name: str, x: Value, axis: Any) -> tuple[int, ...]:
    """Axes counted from the start, sorted; None means all."""
    rank = len(tensor_of(x.annotation).shape)
    given = range(rank) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    axes = sorted(normal_axis(name, x, a) for a in given)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: an axis is given twice", facts=[f"axis is {axis}"])
    return tuple(axes)


@dataclass(frozen=True, slots=True)
class ReduceAttrs:
    """The axes that are reduced (counted from the start), and whether they stay as dims of 1."""

    axis: tuple[int, ...]
    keepdims: bool = False


def _deduce(d: Deduction, attrs: ReduceAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    if x.dtype is bool_:
        raise d.error(f"{d.what} of bools", arg=0, help=f"write ops.cast({d.args[0].name}, i64)")
    if d.what == "mean":
        d.floats()
    kept = [(const(1) if i in attrs.axis else n) for i, n in enumerate(x.shape) if attrs.keepdims or i not in attrs.axis]
    return (Tensor(x.dtype, tuple(kept)),)


def _join(rank: int, attrs: ReduceAttrs, i: Indices, r: Indices) -> Indices:
    """The indices into the operand from those of the result and of the reduction."""
    kept, reduced = iter(i), iter(r)
    found = []
    for axis in range(rank):
        if axis not in attrs.axis:
            found.append(next(kept))
            continue
        if attrs.keepdims:
            next(kept)
        found.append(next(reduced))
    return tuple(found)


def _limit(dtype: DType, largest: bool) -> Expr:
    if dtype.is_float:
        return Const(math.inf if largest else -math.inf, dtype)
    return Const(dtype.max if largest else dtype.min, dtype)


def _stages(combiner: Literal["add", "min", "max"], mean: bool = False) -> Callable[..., tuple[Stage, ...]]:
    def stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: ReduceAttrs) -> tuple[Stage, ...]:
        x, out = args[0], outs[0]
        wide = accumulator(x.dtype) if combiner == "add" else x.dtype
        init = Const(0, wide) if combiner == "add" else _limit(wide, combiner == "min")
        extents = tuple(x.shape[a] for a in attrs.axis)
        rank = len(x.shape)

        def value(i: Indices, r: Indices, read: Callable[..., Expr]) -> Expr:
            found = read(0, *_join(rank, attrs, i, r))
            return found if wide is x.dtype else Cast(wide, found)

        total = Stage(combiner, wide, out.shape, value, extents, combiner, init)
        if not mean and wide is x.dtype:
            return (total,)
        count = Cast(wide, product(extents))

        def finish(i: Indices, r: Indices, read: Callable[..., Expr]) -> Expr:
            found = Div(read(combiner, *i), count) if mean else read(combiner, *i)
            return found if wide is x.dtype else Cast(x.dtype, found)

        return (total, Stage("out", x.dtype, out.shape, finish))

    return stages


def _reference(fn: Callable[..., Any], initial: Callable[[DType], Any] | None = None) -> Reference:
    def reference(args: Sequence[Array], attrs: ReduceAttrs) -> list[Array]:
        from ...dtype import dtype

        x = args[0]
        d = dtype(x.dtype)
        wide = x.astype(accumulator(d).numpy())
        extra = {} if initial is None else {"initial": initial(d)}
        with np.errstate(all="ignore"):
            return [np.asarray(fn(wide, axis=attrs.axis, keepdims=attrs.keepdims, **extra)).astype(x.dtype)]

    return reference


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
    count = math.prod(x.shape[a] for a in axis)
    return np.sum(x, axis=axis, keepdims=keepdims) / x.dtype.type(count)


def _end(largest: bool) -> Callable[[DType], Any]:
    return lambda d: (math.inf if largest else -math.inf) if d.is_float else d.max if largest else d.min


register(OpDef("sum", _deduce, _reference(np.sum), _stages("add"), (1, 1), ReduceAttrs))
register(OpDef("mean", _deduce, _reference(_mean), _stages("add", mean=True), (1, 1), ReduceAttrs))
register(OpDef("max", _deduce, _reference(np.max, _end(False)), _stages("max"), (1, 1), ReduceAttrs))
register(OpDef("min", _deduce, _reference(np.min, _end(True)), _stages("min"), (1, 1), ReduceAttrs))


@dataclass(frozen=True, slots=True)
class AxisAttrs:
    """One axis, counted from the start."""

    axis: int


def _deduce_softmax(d: Deduction, attrs: AxisAttrs) -> tuple[Annotation, ...]:
    d.floats()
    x = d.tensor(0)
    return (Tensor(x.dtype, x.shape),)


def _softmax_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: AxisAttrs) -> tuple[Stage, ...]:
    x, axis = args[0], attrs.axis
    wide, n = accumulator(x.dtype), x.shape[attrs.axis]
    rows = x.shape[:axis] + x.shape[axis + 1 :]

    def at(i: Indices, j: Expr) -> Indices:
        return (*i[:axis], j, *i[axis:])

    def row(i: Indices) -> Indices:
        return (*i[:axis], *i[axis + 1 :])

    def widen(e: Expr) -> Expr:
        return e if e.dtype is wide else Cast(wide, e)

    def finish(i: Indices, r: Indices, read: Callable[..., Expr]) -> Expr:
        found = Div(read("exp", *i), read("sum", *row(i)))
        return found if wide is x.dtype else Cast(x.dtype, found)

    return (
        Stage("max", wide, rows, lambda i, r, read: widen(read(0, *at(i, r[0]))), (n,), "max", _limit(wide, False)),
        Stage("exp", wide, x.shape, lambda i, r, read: Call("exp", Sub(widen(read(0, *i)), read("max", *row(i))))),
        Stage("sum", wide, rows, lambda i, r, read: read("exp", *at(i, r[0])), (n,), "add", Const(0, wide)),
        Stage("out", x.dtype, x.shape, finish),
    )


def _softmax_reference(args: Sequence[Array], attrs: AxisAttrs) -> list[Array]:
    x = args[0].astype(np.float64)
    with np.errstate(all="ignore"):
        e = np.exp(x - np.max(x, axis=attrs.axis, keepdims=True, initial=-math.inf))
        return [(e / np.sum(e, axis=attrs.axis, keepdims=True)).astype(args[0].dtype)]


register(OpDef("softmax", _deduce_softmax, _softmax_reference, _softmax_stages, (1, 1), AxisAttrs))


def _reduce(name: str, x: Any, axis: Any, keepdims: bool) -> Any:
    value = operand(name, x)
    return emit(name, (value,), ReduceAttrs(normal_axes(name, value, axis), bool(keepdims)))


def sum(x: T, axis: Any = None, keepdims: bool = False) -> T:
    """The sum along `axis` (an integer, several, or None for all)."""
    return _reduce("sum", x, axis, keepdims)


def mean(x: T, axis: Any = None, keepdims: bool = False) -> T:
    """The mean along `axis`."""
    return _reduce("mean", x, axis, keepdims)


def max(x: T, axis: Any = None, keepdims: bool = False) -> T:
    """The largest element along `axis`."""
    return _reduce("max", x, axis, keepdims)


def min(x: T, axis: Any = None, keepdims: bool = False) -> T:
    """The smallest element along `axis`."""
    return _reduce("min", x, axis, keepdims)


def softmax(x: T, axis: int = -1) -> T:
    """Exponentials over their sum along `axis`, computed after subtracting the maximum."""
    value = operand("softmax", x)
    return emit("softmax", (value,), AxisAttrs(normal_axis("softmax", value, axis)))
