"""Reductions along axes: sum, mean, prod, max, min, all, any, sum_square, norm.

`axis` is one axis, several, or None for all; negative ones count from the end. 16-bit floats are summed in f32 and rounded once. An empty
sum is 0, an empty product 1, an empty maximum the smallest value of its dtype (minus infinity for floats), an empty minimum the largest.

    ops.sum(x, axis=-1, keepdims=True), ops.norm(x, axis=0, p=1)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import numpy as np

from ...dtype import DType, bf16, bool_, f16, f32
from ...dtype import dtype as to_dtype
from ...support.errors import ShapeError, counted
from ...support.record import dataclass
from ...sym.expr import Call, Cast, Const, Div, Expr, Mul, const, product
from ..deduce import Deduction
from ..node import Annotation, Tensor, Value
from ..operators import Array, Body, OpCall, P, R, Reference, operator, tensor_of
from ..stage import Indices, Read, Stage

T = TypeVar("T")


def accumulator(dtype: DType) -> DType:
    """Returns the dtype in which elements of `dtype` are summed: f32 for 16-bit floats, else the dtype itself."""
    return f32 if dtype in (f16, bf16) else dtype


def normal_axis(name: str, x: Value, axis: int, extra: int = 0) -> int:
    """Returns `axis` counted from the start; raises a ShapeError if it is no integer, or if `x` with `extra` more dims does not have it."""
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
    """Returns the axes counted from the start, sorted; None means all. Raises if one is listed twice or does not exist."""
    rank = len(tensor_of(x.annotation).shape)
    listed = range(rank) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    axes = sorted(normal_axis(name, x, a) for a in listed)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: an axis is given twice", facts=[f"axis is {axis}"])
    return tuple(axes)


@dataclass(frozen=True, slots=True)
class ReduceAttrs:
    """The attributes of reductions: the reduced axes (counted from the start), and whether they stay as dims of 1."""

    axis: tuple[int, ...]
    keepdims: bool = False


@dataclass(frozen=True, slots=True)
class AxisAttrs:
    """The attributes of operators along one axis, which is counted from the start."""

    axis: int


def reduced_shape(shape: tuple[Expr, ...], axis: tuple[int, ...], keepdims: bool) -> tuple[Expr, ...]:
    """Returns the shape without the reduced axes, or with 1 in their place if `keepdims`."""
    return tuple((const(1) if i in axis else n) for i, n in enumerate(shape) if keepdims or i not in axis)


def join_axes(rank: int, axis: tuple[int, ...], keepdims: bool, i: Indices, r: Indices) -> Indices:
    """Returns the indices into the operand, from the indices `i` of the result and `r` of the reduction."""
    kept, reduced = iter(i), iter(r)
    indices = []
    for a in range(rank):
        if a not in axis:
            indices.append(next(kept))
            continue
        if keepdims:
            next(kept)
        indices.append(next(reduced))
    return tuple(indices)


def limit(dtype: DType, largest: bool) -> Expr:
    """Returns the largest or smallest value of a dtype as a literal; it is infinite for floats."""
    if dtype.is_float:
        return Const(math.inf if largest else -math.inf, dtype)
    return Const(dtype.max if largest else dtype.min, dtype)


def powered(e: Expr, p: int) -> Expr:
    """Returns |e|^p as an expression."""
    size = Call("abs", e)
    if p == 1:
        return size
    return Mul(e, e) if p == 2 else Call("pow", size, Const(float(p), e.dtype))


def rooted(e: Expr, p: int) -> Expr:
    """Returns e^(1/p) as an expression."""
    if p == 1:
        return e
    return Call("sqrt", e) if p == 2 else Call("pow", e, Const(1.0 / p, e.dtype))


@dataclass(frozen=True, slots=True)
class _Rule:
    """The definition of a reduction: `each` element is mapped, the combiner joins them, `finish` gets the total and their number."""

    combiner: Literal["add", "mul", "min", "max", "and", "or"]
    init: Callable[[DType], Expr]
    each: Callable[[Expr, Any], Expr] = lambda e, attrs: e
    finish: Callable[[Expr, Expr, Any], Expr] | None = None
    of: Literal["numbers", "floats", "bools"] = "numbers"


def _deduced(d: Deduction, attrs: Any, of: str) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    if of == "bools" and x.dtype is not bool_:
        raise d.error(f"{d.what} is for bools, and `{d.args[0].name}` is {x.dtype}", arg=0, help="compare first, for example `x != 0`")
    if of != "bools" and x.dtype is bool_:
        raise d.error(f"{d.what} of bools", arg=0, help=f"write ops.cast({d.args[0].name}, i64)")
    if of == "floats":
        d.floats()
    return (Tensor(x.dtype, reduced_shape(x.shape, attrs.axis, attrs.keepdims)),)


def _stages(rule: _Rule) -> Callable[..., tuple[Stage, ...]]:
    def stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: Any) -> tuple[Stage, ...]:
        x, out = args[0], outs[0]
        wide = x.dtype if rule.combiner in ("min", "max") else accumulator(x.dtype)
        extents = tuple(x.shape[a] for a in attrs.axis)

        def value(i: Indices, r: Indices, read: Read) -> Expr:
            element = read(0, *join_axes(len(x.shape), attrs.axis, attrs.keepdims, i, r))
            return rule.each(element if wide is x.dtype else Cast(wide, element), attrs)

        total = Stage(rule.combiner, wide, out.shape, value, extents, rule.combiner, rule.init(wide))
        if rule.finish is None and wide is x.dtype:
            return (total,)

        def last(i: Indices, r: Indices, read: Read) -> Expr:
            result = read(rule.combiner, *i)
            result = result if rule.finish is None else rule.finish(result, product(extents), attrs)
            return result if wide is x.dtype else Cast(x.dtype, result)

        return (total, Stage("out", x.dtype, out.shape, last))

    return stages


def _reference(fn: Callable[..., Any]) -> Reference:
    """Returns a numpy reference that calls `fn` in the accumulator's dtype, with axes, keepdims and attributes."""

    def reference(args: Sequence[Array], attrs: Any) -> list[Array]:
        x = args[0]
        wide = x.astype(accumulator(to_dtype(x.dtype)).numpy())
        with np.errstate(all="ignore"):
            return [np.asarray(fn(wide, attrs.axis, attrs.keepdims, attrs)).astype(x.dtype)]

    return reference


def _of_numpy(fn: Callable[..., Any], **extra: Any) -> Callable[..., Any]:
    return lambda x, axis, keepdims, attrs: fn(x, axis=axis, keepdims=keepdims, **extra)


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool, attrs: Any) -> Any:
    count = math.prod(x.shape[a] for a in axis)
    return np.sum(x, axis=axis, keepdims=keepdims) / x.dtype.type(count)


def _extremum(fn: Callable[..., Any], largest: bool) -> Callable[..., Any]:
    def find(x: Array, axis: tuple[int, ...], keepdims: bool, attrs: Any) -> Any:
        d = to_dtype(x.dtype)
        end = (math.inf if largest else -math.inf) if d.is_float else d.max if largest else d.min
        return fn(x, axis=axis, keepdims=keepdims, initial=end)

    return find


def _norm(x: Array, axis: tuple[int, ...], keepdims: bool, attrs: Any) -> Any:
    return np.sum(np.abs(x.astype(np.float64)) ** attrs.p, axis=axis, keepdims=keepdims) ** (1 / attrs.p)


@dataclass(frozen=True, slots=True)
class NormAttrs:
    """The attributes of `norm`: the reduced axes, whether they stay as dims of 1, and the power p."""

    axis: tuple[int, ...]
    keepdims: bool = False
    p: int = 2


def _reduction(rule: _Rule, reference: Callable[..., Any], attrs_type: type = ReduceAttrs) -> Callable[[Body[P, R]], Callable[P, R]]:
    """Returns a decorator that declares a reduction along axes by its rule and a numpy function."""

    def deduce(d: Deduction, attrs: Any) -> tuple[Annotation, ...]:
        return _deduced(d, attrs, rule.of)

    return operator(deduce=deduce, reference=_reference(reference), stages=_stages(rule), attrs=attrs_type)


def _reduce(op: OpCall, x: Any, axis: Any, keepdims: bool) -> Any:
    value = op.operand(x)
    return op.emit(value, attrs=ReduceAttrs(normal_axes(op.name, value, axis), bool(keepdims)))


def _zero(dtype: DType) -> Expr:
    return Const(0, dtype)


@_reduction(_Rule("add", _zero), lambda x, axis, keepdims, attrs: np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype))
def sum(op: OpCall, x: T, axis: Any = None, keepdims: bool = False) -> T:
    """The sum along `axis` (an integer, several, or None for all); with `keepdims` these axes stay as dims of 1."""
    return _reduce(op, x, axis, keepdims)


@_reduction(_Rule("add", _zero, finish=lambda total, count, attrs: Div(total, Cast(total.dtype, count)), of="floats"), _mean)
def mean(op: OpCall, x: T, axis: Any = None, keepdims: bool = False) -> T:
    """The mean of floats along `axis`."""
    return _reduce(op, x, axis, keepdims)


@_reduction(_Rule("max", lambda d: limit(d, False)), _extremum(np.max, False))
def max(op: OpCall, x: T, axis: Any = None, keepdims: bool = False) -> T:
    """The largest element along `axis`; NaN if one is NaN. Without elements it is the smallest value of the dtype."""
    return _reduce(op, x, axis, keepdims)


@_reduction(_Rule("min", lambda d: limit(d, True)), _extremum(np.min, True))
def min(op: OpCall, x: T, axis: Any = None, keepdims: bool = False) -> T:
    """The smallest element along `axis`; NaN if one is NaN. Without elements it is the largest value of the dtype."""
    return _reduce(op, x, axis, keepdims)


@_reduction(_Rule("mul", lambda d: Const(1, d)), lambda x, axis, keepdims, attrs: np.prod(x, axis=axis, keepdims=keepdims, dtype=x.dtype))
def prod(op: OpCall, x: T, axis: Any = None, keepdims: bool = False) -> T:
    """The product along `axis`."""
    return _reduce(op, x, axis, keepdims)


@_reduction(_Rule("and", lambda d: Const(True, d), of="bools"), _of_numpy(np.all))
def all(op: OpCall, x: T, axis: Any = None, keepdims: bool = False) -> T:
    """True if all bools along `axis` are true."""
    return _reduce(op, x, axis, keepdims)


@_reduction(_Rule("or", lambda d: Const(False, d), of="bools"), _of_numpy(np.any))
def any(op: OpCall, x: T, axis: Any = None, keepdims: bool = False) -> T:
    """True if any of the bools along `axis` is true."""
    return _reduce(op, x, axis, keepdims)


@_reduction(
    _Rule("add", _zero, lambda e, attrs: Mul(e, e)),
    lambda x, axis, keepdims, attrs: np.sum(x * x, axis=axis, keepdims=keepdims, dtype=x.dtype),
)
def sum_square(op: OpCall, x: T, axis: Any = None, keepdims: bool = False) -> T:
    """The sum of squares along `axis`."""
    return _reduce(op, x, axis, keepdims)


@_reduction(
    _Rule("add", _zero, lambda e, attrs: powered(e, attrs.p), lambda total, count, attrs: rooted(total, attrs.p), of="floats"),
    _norm,
    NormAttrs,
)
def norm(op: OpCall, x: T, axis: Any = None, keepdims: bool = False, p: int = 2) -> T:
    """The p-norm along `axis`: the sum of absolute values for p = 1, the Euclidean length for p = 2.

    Raises a ShapeError unless p is an integer from 1 on.
    """
    value = op.operand(x)
    if not isinstance(p, int) or isinstance(p, bool) or p < 1:
        raise ShapeError(f"{op.name}: p is a whole number from 1 on, not {p!r}", help="the largest absolute value is ops.max(ops.abs(x))")
    return op.emit(value, attrs=NormAttrs(normal_axes(op.name, value, axis), bool(keepdims), p))
