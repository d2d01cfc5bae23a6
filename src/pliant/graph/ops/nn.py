"""Operators of transformer models: RMS norm and rotary position embedding (RoPE).

ops.rms_norm(x, weight, eps=1e-5)
ops.rotary_embedding(x, positions, base=10000.0)      # x: (t, heads, d), positions: (t,)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import dtype as to_dtype
from ...dtype import f32
from ...support.errors import ShapeError
from ...sym.expr import Add, Call, Cast, Const, Div, Expr, Lt, Mul, Select, Sub, const
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operator, tensor_of
from ..stage import Indices, Stage
from .norm import EpsAttrs
from .reduce import accumulator

T = TypeVar("T")
Read = Callable[..., Expr]


def _deduce_rms_norm(d: Deduction, attrs: EpsAttrs) -> tuple[Annotation, ...]:
    d.same_floats()
    x, weight = d.tensor(0), d.rank(1, 1)
    if not x.shape:
        raise d.error(f"rms_norm: `{d.args[0].name}` has no dims", arg=0)
    d.equal(weight.shape[0], x.shape[-1], f"the weight has {{0}} elements, a row of `{d.args[0].name}` {{1}}", arg=1)
    return (Tensor(x.dtype, x.shape),)


def _rms_norm_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: EpsAttrs) -> tuple[Stage, ...]:
    x = args[0]
    wide, n = accumulator(x.dtype), x.shape[-1]

    def widen(e: Expr) -> Expr:
        return e if e.dtype is wide else Cast(wide, e)

    def square(i: Indices, r: Indices, read: Read) -> Expr:
        element = widen(read(0, *i, r[0]))
        return Mul(element, element)

    def scale(i: Indices, r: Indices, read: Read) -> Expr:
        mean = Div(read("squares", *i), Cast(wide, n))
        return Div(Const(1.0, wide), Call("sqrt", Add(mean, Const(attrs.eps, wide))))

    def finish(i: Indices, r: Indices, read: Read) -> Expr:
        result = Mul(Mul(widen(read(0, *i)), read("scale", *i[:-1])), widen(read(1, i[-1])))
        return result if wide is x.dtype else Cast(x.dtype, result)

    return (
        Stage("squares", wide, x.shape[:-1], square, (n,), "add", Const(0, wide)),
        Stage("scale", wide, x.shape[:-1], scale),
        Stage("out", x.dtype, x.shape, finish),
    )


def _rms_norm_reference(args: Sequence[Array], attrs: EpsAttrs) -> list[Array]:
    x, weight = (a.astype(accumulator(to_dtype(a.dtype)).numpy()) for a in args)
    with np.errstate(all="ignore"):
        squares = np.sum(x * x, axis=-1, keepdims=True) / x.dtype.type(x.shape[-1])
        return [(x / np.sqrt(squares + x.dtype.type(attrs.eps)) * weight).astype(args[0].dtype)]


@operator(deduce=_deduce_rms_norm, reference=_rms_norm_reference, stages=_rms_norm_stages, attrs=EpsAttrs, arity=2)
def rms_norm(op: OpCall, x: T, weight: T, eps: float = 1e-6) -> T:
    """Each row of `x` (the last dim) divided by sqrt(mean of its squares + eps), times the weight."""
    return op.emit(x, weight, attrs=EpsAttrs(float(eps)))


def _deduce_rotary(d: Deduction, attrs: Any) -> tuple[Annotation, ...]:
    x, positions, frequencies = d.rank(0, 3), d.rank(1, 1), d.rank(2, 1)
    if not x.dtype.is_float:
        raise d.error(f"rotary_embedding is for floats, and `{d.args[0].name}` is {x.dtype}", arg=0)
    if not positions.dtype.is_int:
        raise d.error(f"rotary_embedding: the positions `{d.args[1].name}` are {positions.dtype}, not integers", arg=1)
    if frequencies.dtype is not f32:
        raise d.error(f"rotary_embedding: the frequencies are {frequencies.dtype}, not f32", arg=2)
    d.equal(positions.shape[0], x.shape[0], "{0} positions for {1} tokens", arg=1)
    d.equal(frequencies.shape[0] * 2, x.shape[2], f"frequencies for a width of {{0}}, and `{d.args[0].name}` has {{1}}", arg=2)
    return (Tensor(x.dtype, x.shape),)


def _rotary_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: Any) -> tuple[Stage, ...]:
    x, half = args[0], args[2].shape[0]
    table = (x.shape[0], half)

    def angle(i: Indices, read: Read) -> Expr:
        return Mul(Cast(f32, read(1, i[0])), read(2, i[1]))

    def rotate(i: Indices, r: Indices, read: Read) -> Expr:
        t, h, j = i
        wide = accumulator(x.dtype)

        def part(k: Expr) -> Expr:
            element = read(0, t, h, k)
            return element if wide is x.dtype else Cast(wide, element)

        def turn(name: str, k: Expr) -> Expr:
            factor = read(name, t, k)
            return factor if wide is f32 else Cast(wide, factor)

        first = Sub(Mul(part(j), turn("cos", j)), Mul(part(j + half), turn("sin", j)))
        second = Add(Mul(part(j), turn("cos", j - half)), Mul(part(j - half), turn("sin", j - half)))
        result = Select(Lt(j, half), first, second)
        return result if wide is x.dtype else Cast(x.dtype, result)

    return (
        Stage("cos", f32, table, lambda i, r, read: Call("cos", angle(i, read))),
        Stage("sin", f32, table, lambda i, r, read: Call("sin", angle(i, read))),
        Stage("out", x.dtype, x.shape, rotate),
    )


def _rotary_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    x, positions, frequencies = args
    wide = x.astype(accumulator(to_dtype(x.dtype)).numpy())
    angle = (positions.astype(np.float32)[:, None] * frequencies)[:, None, :]
    cos, sin = np.cos(angle, dtype=np.float64).astype(np.float32), np.sin(angle, dtype=np.float64).astype(np.float32)
    a, b = np.split(wide, 2, axis=-1)
    return [np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)]


@operator(deduce=_deduce_rotary, reference=_rotary_reference, stages=_rotary_stages, arity=3)
def rotary_embedding(op: OpCall, x: T, positions: Any, frequencies: Any = None, base: float = 10000.0) -> T:
    """RoPE: rotates the pairs (j, j + d/2) of each head of `x` by position times frequency; default frequencies are base^(-2j/d)."""
    value = op.operand(x)
    if frequencies is None:
        frequencies = rotary_frequencies(value.name, tensor_of(value.annotation), base)
    return op.emit(value, positions, frequencies)


def rotary_frequencies(name: str, x: Tensor, base: float) -> Array:
    """Returns the f32 frequencies base^(-2j/d) for the last dim d of `x`; raises a ShapeError unless that is an even number above 0."""
    width = x.shape[-1] if x.shape else const(0)
    if not isinstance(width, Const) or width.value % 2 or not width.value:
        raise ShapeError(
            f"rotary_embedding: the last dim of `{name}` must be an even number",
            facts=[f"`{name}` is {x}"],
            help="give the frequencies as a tensor where the dim is known only at run time",
        )
    exponents = np.arange(0, width.value, 2, dtype=np.float64) / width.value
    frequencies: Array = (float(base) ** -exponents).astype(np.float32)
    return frequencies
