"""Tensors made from numbers and indices: arange, linspace, eye, tril, triu, one_hot, zeros, ones, full_like.

ops.arange(n), ops.eye(4), ops.tril(x), ops.one_hot(labels, 10)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...dtype import DType, f64, i64
from ...dtype import dtype as to_dtype
from ...support.errors import Error, ShapeError
from ...sym.expr import Add, Cast, Const, Div, Eq, Expr, Le, Lt, Max, Mul, Or, Select, const
from ...sym.semantics import cast as cast_array
from ...sym.simplify import simplify
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, Body, OpCall, P, R, composite, operator, tensor_of
from ..stage import Indices, Read, Stage
from .reduce import normal_axis
from .shape import as_dim, full
from .window import ZERO

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ArangeAttrs:
    """The attributes of `arange`: start, stop (excluded) and step, as dims and integers or f64 literals, and the dtype."""

    start: Expr
    stop: Expr
    step: Expr
    dtype: DType


def _deduce_arange(d: Deduction, attrs: ArangeAttrs) -> tuple[Annotation, ...]:
    step = attrs.step
    if not isinstance(step, Const) or step.value == 0:
        raise d.error(f"arange: step {step} is not a number other than 0")
    if step.dtype is f64:
        assert isinstance(attrs.start, Const) and isinstance(attrs.stop, Const)
        return (Tensor(attrs.dtype, (const(max(math.ceil((attrs.stop.value - attrs.start.value) / step.value), 0)),)),)
    span, size = (attrs.stop - attrs.start, step.value) if step.value > 0 else (attrs.start - attrs.stop, -step.value)
    return (Tensor(attrs.dtype, (simplify(Max((span + (size - 1)) // size, ZERO), d.facts),)),)


def _arange_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: ArangeAttrs) -> tuple[Stage, ...]:
    def value(i: Indices, r: Indices, read: Read) -> Expr:
        at = i[0] if attrs.start.dtype is i64 else Cast(f64, i[0])
        number: Expr = Add(attrs.start, Mul(at, attrs.step))
        return number if number.dtype is attrs.dtype else Cast(attrs.dtype, number)

    return (Stage("arange", attrs.dtype, outs[0].shape, value),)


def _arange_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    count = max(math.ceil((attrs.stop - attrs.start) / attrs.step), 0)
    return [np.asarray(cast_array(attrs.start + np.arange(count) * attrs.step, attrs.dtype))]


@operator(deduce=_deduce_arange, reference=_arange_reference, stages=_arange_stages, attrs=ArangeAttrs, arity=0)
def arange(op: OpCall, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    """start, start + step, … before `stop`; one argument is the stop. Default dtype: i64 for dims and integers, f32 for floats.

    Raises an Error if dims and floats are mixed.
    """
    first, last = (0, start) if stop is None else (start, stop)
    numbers = [v.value if isinstance(v, Const) else v for v in (first, last, step)]
    if any(isinstance(v, float) for v in numbers):
        if not all(isinstance(v, int | float) for v in numbers):
            raise Error(f"{op.name}: dims and floats cannot be mixed", help="make integers, then cast and multiply")
        ends = [Const(float(v), f64) for v in numbers]
        return op.emit(attrs=ArangeAttrs(ends[0], ends[1], ends[2], to_dtype(dtype or "f32")))
    dims = [as_dim(op.name, v) for v in numbers]
    return op.emit(attrs=ArangeAttrs(dims[0], dims[1], dims[2], to_dtype(dtype or "i64")))


@dataclass(frozen=True, slots=True)
class LinspaceAttrs:
    """The attributes of `linspace`: `count` numbers from start to stop, both included, and the dtype."""

    start: float
    stop: float
    count: Expr
    dtype: DType


def _deduce_linspace(d: Deduction, attrs: LinspaceAttrs) -> tuple[Annotation, ...]:
    if not attrs.dtype.is_float:
        raise d.error(f"linspace makes floats, not {attrs.dtype}")
    d.require(Le(ZERO, attrs.count), "linspace: {0} numbers", (attrs.count,))
    return (Tensor(attrs.dtype, (attrs.count,)),)


def _linspace_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: LinspaceAttrs) -> tuple[Stage, ...]:
    def value(i: Indices, r: Indices, read: Read) -> Expr:
        part = Div(Cast(f64, i[0]), Cast(f64, Max(attrs.count - 1, const(1))))
        number: Expr = Add(Const(attrs.start, f64), Mul(part, Const(attrs.stop - attrs.start, f64)))
        last = Lt(ZERO, i[0]) if attrs.count is const(2) else Eq(i[0], Max(attrs.count - 1, const(1)))
        number = Select(last, Const(attrs.stop, f64), number)  # exact, whatever rounding the formula has
        return number if attrs.dtype is f64 else Cast(attrs.dtype, number)

    return (Stage("linspace", attrs.dtype, outs[0].shape, value),)


def _linspace_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    return [np.linspace(attrs.start, attrs.stop, attrs.count).astype(attrs.dtype.numpy())]


@operator(deduce=_deduce_linspace, reference=_linspace_reference, stages=_linspace_stages, attrs=LinspaceAttrs, arity=0)
def linspace(op: OpCall, start: float, stop: float, count: Any, dtype: Any = "f32") -> Any:
    """`count` evenly spaced numbers from `start` to `stop`, both included."""
    return op.emit(attrs=LinspaceAttrs(float(start), float(stop), as_dim(op.name, count), to_dtype(dtype)))


@dataclass(frozen=True, slots=True)
class EyeAttrs:
    """The attributes of `eye`: rows, columns, dtype, and the diagonal of ones (0 is the main one, positive ones are above it)."""

    rows: Expr
    columns: Expr
    k: Expr
    dtype: DType


def _eye_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: EyeAttrs) -> tuple[Stage, ...]:
    def value(i: Indices, r: Indices, read: Read) -> Expr:
        return Select(Eq(i[1], i[0] + attrs.k), Const(1, attrs.dtype), Const(0, attrs.dtype))

    return (Stage("eye", attrs.dtype, outs[0].shape, value),)


@operator(
    deduce=lambda d, attrs: (Tensor(attrs.dtype, (attrs.rows, attrs.columns)),),
    reference=lambda args, attrs: [np.eye(attrs.rows, attrs.columns, attrs.k).astype(attrs.dtype.numpy())],
    stages=_eye_stages,
    attrs=EyeAttrs,
    arity=0,
)
def eye(op: OpCall, rows: Any, columns: Any = None, k: Any = 0, dtype: Any = "f32") -> Any:
    """A matrix of zeros with ones on the main diagonal, or on the diagonal `k` above it (below it, if negative).

    Without `columns` it is square.
    """
    height = as_dim(op.name, rows)
    return op.emit(attrs=EyeAttrs(height, height if columns is None else as_dim(op.name, columns), as_dim(op.name, k), to_dtype(dtype)))


@dataclass(frozen=True, slots=True)
class DiagonalAttrs:
    """The attributes of `tril` and `triu`: the last (tril) or first (triu) diagonal that is kept."""

    k: Expr


def _deduce_triangle(d: Deduction, attrs: DiagonalAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    if len(x.shape) < 2:
        raise d.error(f"{d.what}: `{d.args[0].name}` is {x}, matrices are expected", arg=0)
    return (Tensor(x.dtype, x.shape),)


def _triangle(keeps: Callable[[Expr, Expr], Expr], reference: Callable[..., Any]) -> Callable[[Body[P, R]], Callable[P, R]]:
    """Returns a decorator that declares an operator which keeps elements where `keeps(column, row + k)` holds, and makes the others 0."""

    def declare(function: Body[P, R]) -> Callable[P, R]:
        def stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: DiagonalAttrs) -> tuple[Stage, ...]:
            zero, name = Const(0, args[0].dtype), function.__name__
            return (Stage(name, args[0].dtype, outs[0].shape, lambda i, r, read: Select(keeps(i[-1], i[-2] + attrs.k), read(0, *i), zero)),)

        def numpy_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
            return [reference(args[0], attrs.k)]

        return operator(deduce=_deduce_triangle, reference=numpy_reference, stages=stages, attrs=DiagonalAttrs)(function)

    return declare


@_triangle(Le, np.tril)
def tril(op: OpCall, x: T, k: Any = 0) -> T:
    """The matrices of `x` with zeros above the diagonal `k`."""
    return op.emit(x, attrs=DiagonalAttrs(as_dim(op.name, k)))


@_triangle(lambda column, diagonal: Le(diagonal, column), np.triu)
def triu(op: OpCall, x: T, k: Any = 0) -> T:
    """The matrices of `x` with zeros below the diagonal `k`."""
    return op.emit(x, attrs=DiagonalAttrs(as_dim(op.name, k)))


@dataclass(frozen=True, slots=True)
class OneHotAttrs:
    """The attributes of `one_hot`: extent and position of the new axis, and the literals at the index and elsewhere."""

    depth: Expr
    axis: int
    on: Expr
    off: Expr


def _deduce_one_hot(d: Deduction, attrs: OneHotAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    if not x.dtype.is_int:
        raise d.error(f"one_hot: the indices `{d.args[0].name}` are {x.dtype}, not integers", arg=0)
    d.require(Le(ZERO, attrs.depth), "one_hot: depth {0} is negative", (attrs.depth,))
    return (Tensor(attrs.on.dtype, (*x.shape[: attrs.axis], attrs.depth, *x.shape[attrs.axis :])),)


def _one_hot_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: OneHotAttrs) -> tuple[Stage, ...]:
    a = attrs.axis

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        index = read(0, *i[:a], *i[a + 1 :])
        index = index if index.dtype is i64 else Cast(i64, index)
        here = Or(Eq(index, i[a]), Eq(index, i[a] - attrs.depth))
        return Select(here, attrs.on, attrs.off)

    return (Stage("one_hot", attrs.on.dtype, outs[0].shape, value),)


def _one_hot_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    index = np.expand_dims(args[0].astype(np.int64), attrs.axis)
    places = np.arange(attrs.depth).reshape(-1, *[1] * (args[0].ndim - attrs.axis))
    return [np.where((index == places) | (index == places - attrs.depth), attrs.on, attrs.off)]


@operator(deduce=_deduce_one_hot, reference=_one_hot_reference, stages=_one_hot_stages, attrs=OneHotAttrs)
def one_hot(op: OpCall, indices: Any, depth: Any, axis: int = -1, on: Any = 1, off: Any = 0, dtype: Any = "f32") -> Any:
    """`on` at the index along a new axis, `off` elsewhere; negative indices count from the end, an index out of range gives no `on`."""
    value = op.operand(indices)
    literals = [v if isinstance(v, Const) else Const(v, to_dtype(dtype)) for v in (on, off)]
    attrs = OneHotAttrs(as_dim(op.name, depth), normal_axis(op.name, value, axis, extra=1), literals[0], literals[1])
    return op.emit(value, attrs=attrs)


@composite
def full_like(op: OpCall, x: T, value: Any) -> T:
    """A tensor with the shape and dtype of `x`, filled with the number `value`.

    Raises a ShapeError for a float if the dtype is not a float.
    """
    like = tensor_of(op.operand(x).annotation)
    if isinstance(value, float) and not like.dtype.is_float:
        raise ShapeError(f"{op.name}: {value} is no value of {like.dtype}")
    return full(like.shape, value, like.dtype)


@composite
def zeros(op: OpCall, shape: Any, dtype: Any = "f32") -> Any:
    """A tensor of zeros."""
    return full(shape, 0, dtype)


@composite
def ones(op: OpCall, shape: Any, dtype: Any = "f32") -> Any:
    """A tensor of ones."""
    return full(shape, 1, dtype)
