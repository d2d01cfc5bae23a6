"""softmax, log_softmax and logsumexp. All subtract the maximum first, so that no exponential overflows.

ops.softmax(x), ops.log_softmax(x, axis=1), ops.logsumexp(x, axis=-1)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...sym.expr import Add, Call, Cast, Const, Div, Expr, Lt, Mul, Select, Sub
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operator
from ..stage import Indices, Read, Stage
from .reduce import AxisAttrs, ReduceAttrs, accumulator, join_axes, limit, normal_axes, normal_axis, reduced_shape

T = TypeVar("T")


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
        result = Mul(read("exp", *i), read("scale", *row(i)))  # one division for each row instead of one for each element
        return result if wide is x.dtype else Cast(x.dtype, result)

    return (
        Stage("max", wide, rows, lambda i, r, read: widen(read(0, *at(i, r[0]))), (n,), "max", limit(wide, False)),
        Stage("exp", wide, x.shape, lambda i, r, read: Call("decay", Sub(widen(read(0, *i)), read("max", *row(i))))),
        Stage("sum", wide, rows, lambda i, r, read: read("exp", *at(i, r[0])), (n,), "add", Const(0, wide)),
        Stage("scale", wide, rows, lambda i, r, read: Div(Const(1.0, wide), read("sum", *i))),
        Stage("out", x.dtype, x.shape, finish),
    )


def _softmax_reference(args: Sequence[Array], attrs: AxisAttrs) -> list[Array]:
    x = args[0].astype(np.float64)
    with np.errstate(all="ignore"):
        e = np.exp(x - np.max(x, axis=attrs.axis, keepdims=True, initial=-math.inf))
        return [(e / np.sum(e, axis=attrs.axis, keepdims=True)).astype(args[0].dtype)]


@operator(deduce=_deduce_softmax, reference=_softmax_reference, stages=_softmax_stages, attrs=AxisAttrs)
def softmax(op: OpCall, x: T, axis: int = -1) -> T:
    """The softmax along `axis`: exponentials divided by their sum."""
    value = op.operand(x)
    return op.emit(value, attrs=AxisAttrs(normal_axis(op.name, value, axis)))


def _log_softmax_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: AxisAttrs) -> tuple[Stage, ...]:
    x, axis = args[0], attrs.axis
    wide, n = accumulator(x.dtype), x.shape[axis]
    rows = x.shape[:axis] + x.shape[axis + 1 :]

    def centered(i: Indices, read: Read) -> Expr:
        element = read(0, *i)
        return Sub(element if element.dtype is wide else Cast(wide, element), read("max", *i[:axis], *i[axis + 1 :]))

    def largest(i: Indices, r: Indices, read: Read) -> Expr:
        element = read(0, *i[:axis], r[0], *i[axis:])
        return element if element.dtype is wide else Cast(wide, element)

    def finish(i: Indices, r: Indices, read: Read) -> Expr:
        result = Sub(centered(i, read), read("log", *i[:axis], *i[axis + 1 :]))
        return result if wide is x.dtype else Cast(x.dtype, result)

    def term(i: Indices, r: Indices, read: Read) -> Expr:
        return Call("decay", centered((*i[:axis], r[0], *i[axis:]), read))

    return (
        Stage("max", wide, rows, largest, (n,), "max", limit(wide, False)),
        Stage("sum", wide, rows, term, (n,), "add", Const(0, wide)),
        Stage("log", wide, rows, lambda i, r, read: Call("log", read("sum", *i))),
        Stage("out", x.dtype, x.shape, finish),
    )


def _log_softmax_reference(args: Sequence[Array], attrs: AxisAttrs) -> list[Array]:
    x = args[0].astype(np.float64)
    with np.errstate(all="ignore"):
        centered = x - np.max(x, axis=attrs.axis, keepdims=True, initial=-math.inf)
        return [(centered - np.log(np.sum(np.exp(centered), axis=attrs.axis, keepdims=True))).astype(args[0].dtype)]


@operator(deduce=_deduce_softmax, reference=_log_softmax_reference, stages=_log_softmax_stages, attrs=AxisAttrs)
def log_softmax(op: OpCall, x: T, axis: int = -1) -> T:
    """The logarithm of the softmax along `axis`."""
    value = op.operand(x)
    return op.emit(value, attrs=AxisAttrs(normal_axis(op.name, value, axis)))


def _deduce_logsumexp(d: Deduction, attrs: ReduceAttrs) -> tuple[Annotation, ...]:
    d.floats()
    x = d.tensor(0)
    return (Tensor(x.dtype, reduced_shape(x.shape, attrs.axis, attrs.keepdims)),)


def _logsumexp_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: ReduceAttrs) -> tuple[Stage, ...]:
    x, out = args[0], outs[0]
    wide = accumulator(x.dtype)
    extents = tuple(x.shape[a] for a in attrs.axis)

    def element(i: Indices, r: Indices, read: Read) -> Expr:
        item = read(0, *join_axes(len(x.shape), attrs.axis, attrs.keepdims, i, r))
        return item if item.dtype is wide else Cast(wide, item)

    def shift(i: Indices, r: Indices, read: Read) -> Expr:
        """The maximum if it is finite, else 0: subtracting an infinite one would give NaN."""
        largest = read("max", *i)
        return Select(Lt(Call("abs", largest), Const(math.inf, wide)), largest, Const(0.0, wide))

    def term(i: Indices, r: Indices, read: Read) -> Expr:
        return Call("exp", Sub(element(i, r, read), read("shift", *i)))

    def finish(i: Indices, r: Indices, read: Read) -> Expr:
        result = Add(Call("log", read("sum", *i)), read("shift", *i))
        return result if wide is x.dtype else Cast(x.dtype, result)

    return (
        Stage("max", wide, out.shape, element, extents, "max", limit(wide, False)),
        Stage("shift", wide, out.shape, shift),
        Stage("sum", wide, out.shape, term, extents, "add", Const(0, wide)),
        Stage("out", x.dtype, out.shape, finish),
    )


def _logsumexp_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    x = args[0].astype(np.float64)
    with np.errstate(all="ignore"):
        largest = np.max(x, axis=attrs.axis, keepdims=True, initial=-math.inf)
        shift = np.where(np.isfinite(largest), largest, 0.0)
        total = np.log(np.sum(np.exp(x - shift), axis=attrs.axis, keepdims=True)) + shift
    return [(total if attrs.keepdims else np.squeeze(total, axis=attrs.axis)).astype(args[0].dtype)]


@operator(deduce=_deduce_logsumexp, reference=_logsumexp_reference, stages=_logsumexp_stages, attrs=ReduceAttrs)
def logsumexp(op: OpCall, x: T, axis: Any = None, keepdims: bool = False) -> T:
    """The logarithm of the sum of exponentials along `axis`."""
    value = op.operand(x)
    return op.emit(value, attrs=ReduceAttrs(normal_axes(op.name, value, axis), bool(keepdims)))
