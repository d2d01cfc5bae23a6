"""Convolutions and transposed convolutions over any number of spatial dims. 16-bit floats are summed in f32.

ops.conv(x, weight, bias, stride=2, padding=1)            # x: (n, c, h, w), weight: (out, c / groups, kh, kw), as in ONNX and ATen
ops.conv_transpose(x, weight, stride=2)                   # weight: (c, out / groups, kh, kw)

A transposed convolution is a gather: each element of the result sums the products that reach it, so no two iterations write one element.
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import bool_
from ...support.errors import ShapeError, counted
from ...support.record import dataclass
from ...sym.expr import Add, Cast, Const, Eq, Expr, FloorMod, Le, Lt, Mul, const
from ...sym.simplify import simplify
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operand, operator, tensor_of
from ..stage import Indices, Read, Stage
from .reduce import accumulator
from .window import (
    ZERO,
    Pads,
    Window,
    all_of,
    group_start,
    pad_pairs,
    padded_windows,
    read_inside,
    same_padding,
    whole_numbers,
    window_of,
    window_sizes,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConvAttrs:
    """The attributes of a convolution: stride, (before, after) padding and dilation of each spatial dim, number of channel groups."""

    stride: tuple[int, ...]
    padding: Pads
    dilation: tuple[int, ...]
    groups: int = 1


@dataclass(frozen=True, slots=True)
class ConvTransposeAttrs:
    """The attributes of a transposed convolution; `output_padding` extends the end of each spatial dim of the result."""

    stride: tuple[int, ...]
    padding: Pads
    output_padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1


def _check_operands(d: Deduction, groups: int) -> tuple[Tensor, Tensor]:
    d.same_dtype()
    x, weight = d.tensor(0), d.tensor(1)
    if x.dtype is bool_:
        raise d.error(f"{d.what} of bools", arg=0, help="cast them first: ops.cast(x, f32)")
    if len(x.shape) < 3:
        help_ = "the dims are (batch, channels, then the spatial ones); ops.unsqueeze adds a batch dim"
        raise d.error(f"{d.what}: `{d.args[0].name}` has {counted(len(x.shape), 'dim')}, at least 3 are needed", arg=0, help=help_)
    d.rank(1, len(x.shape))
    if groups < 1:
        raise d.error(f"{d.what}: groups {groups} is less than 1")
    return x, weight


def _check_bias(d: Deduction, channels: Expr) -> None:
    if len(d.args) == 3:
        d.equal(d.rank(2, 1).shape[0], channels, f"the bias `{d.args[2].name}` has {{0}} elements for {{1}} channels", arg=2)


def _divides(d: Deduction, channels: Expr, groups: int, which: str) -> None:
    if groups > 1:
        rule = Eq(FloorMod(channels, const(groups)), ZERO)
        d.require(rule, f"{d.what}: {{0}} {which} channels are not divisible into {groups} groups", (channels,))


def _deduce_conv(d: Deduction, attrs: ConvAttrs) -> tuple[Annotation, ...]:
    x, weight = _check_operands(d, attrs.groups)
    channels, out = x.shape[1], weight.shape[0]
    _divides(d, out, attrs.groups, "output")
    per_group = f" in {attrs.groups} groups" if attrs.groups > 1 else ""
    message = f"`{d.args[0].name}` has {{0}} channels, the weight `{d.args[1].name}` is for {{1}}{per_group}"
    d.equal(channels, simplify(weight.shape[1] * attrs.groups, d.facts), message, arg=1)
    _check_bias(d, out)
    window = Window(weight.shape[2:], attrs.stride, attrs.padding, attrs.dilation)
    return (Tensor(x.dtype, (x.shape[0], out, *window.sizes(d, x.shape[2:]))),)


def _with_bias(args: tuple[Tensor, ...], out: Tensor, total: Stage) -> tuple[Stage, ...]:
    """Returns the stages of a convolution: the sum, then a stage that adds the bias and casts to the result's dtype.

    The second is omitted if there is no bias and the dtypes are equal.
    """
    if len(args) == 2 and total.dtype is out.dtype:
        return (total,)

    def last(i: Indices, r: Indices, read: Read) -> Expr:
        result = read(total.name, *i)
        if len(args) == 3:
            bias = read(2, i[1])
            result = Add(result, bias if bias.dtype is result.dtype else Cast(result.dtype, bias))
        return result if result.dtype is out.dtype else Cast(out.dtype, result)

    return (total, Stage("out", out.dtype, out.shape, last))


def _product(a: Expr, b: Expr, wide: Any) -> Expr:
    return Mul(a, b) if a.dtype is wide else Mul(Cast(wide, a), Cast(wide, b))


def _conv_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: ConvAttrs) -> tuple[Stage, ...]:
    x, weight, out = args[0], args[1], outs[0]
    wide = accumulator(x.dtype)
    window = Window(weight.shape[2:], attrs.stride, attrs.padding, attrs.dilation)
    per_group = simplify(weight.shape[0] // attrs.groups)  # output channels of a group

    padded = _padded(x, window)

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        channel = r[0] if attrs.groups == 1 else group_start(i[1] // per_group, weight.shape[1], const(attrs.groups), per_group) + r[0]
        places = window.places(i[2:], r[1:])
        if padded is None:
            element = read(0, i[0], channel, *places)
        else:
            element = read("padded", i[0], channel, *(simplify(p + lo) for p, (lo, _) in zip(places, window.padding, strict=True)))
        return _product(element, read(1, i[1], *r), wide)

    total = Stage("sum", wide, out.shape, value, weight.shape[1:], "add", Const(0, wide))
    return (*(() if padded is None else (padded,)), *_with_bias(args, out, total))


def _padded(x: Tensor, window: Window) -> Stage | None:
    """Returns a stage that copies the operand with zeros around it, so that the sum needs no bounds checks; None without padding."""
    shape = tuple(simplify(n + lo + hi) for n, (lo, hi) in zip(x.shape[2:], window.padding, strict=True))
    starts = tuple(lo for lo, _ in window.padding)

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        places = tuple(v - lo for v, lo in zip(i[2:], starts, strict=True))
        return read_inside(read, 0, (*i[:2], *places), window.inside(places, x.shape[2:]), Const(0, x.dtype))

    none = all(lo is ZERO and hi is ZERO for lo, hi in window.padding)
    return None if none else Stage("padded", x.dtype, (*x.shape[:2], *shape), value)


def _wide(x: Array) -> Array:
    return x if x.dtype.kind in "iu" else x.astype(np.float64)


def _finished(total: Array, args: Sequence[Array]) -> list[Array]:
    if len(args) == 3:
        total = total + _wide(args[2]).reshape(-1, *[1] * (total.ndim - 2))
    return [total.astype(args[0].dtype)]


def _conv_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    x, weight = _wide(args[0]), _wide(args[1])
    kernel = weight.shape[2:]
    sizes = window_sizes(x, kernel, attrs)
    views = padded_windows(x, kernel, attrs, sizes, 0)
    rank, parts = len(kernel), []
    taps = list(range(2 + rank, 2 + 2 * rank))
    views_of, weights_of = (np.split(a, attrs.groups, axis) for a, axis in ((views, 1), (weight, 0)))
    for v, w in zip(views_of, weights_of, strict=True):
        parts.append(np.moveaxis(np.tensordot(v, w, ([1, *taps], list(range(1, 2 + rank)))), -1, 1))
    return _finished(np.concatenate(parts, axis=1), args)


@operator(deduce=_deduce_conv, reference=_conv_reference, stages=_conv_stages, attrs=ConvAttrs, arity=(2, 3))
def conv(op: OpCall, x: T, weight: T, bias: T | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> T:
    """The convolution (correlation) of `x` (n, c, …) with `weight` (out, c / groups, …).

    `padding` is an amount, one for each spatial dim, a pair (before, after) for each, or "same" (or "same_lower") or "valid".
    """
    value, kernel, rank = _spatial(op.name, x, weight)
    shape = tensor_of(kernel.annotation).shape[2:]
    window = window_of(op.name, rank, shape, stride, 0 if isinstance(padding, str) else padding, dilation)
    pads = _named_padding(window, tensor_of(value.annotation).shape[2:], padding) if isinstance(padding, str) else window.padding
    args = (value, kernel) if bias is None else (value, kernel, op.operand(bias))
    return op.emit(*args, attrs=ConvAttrs(window.stride, pads, window.dilation, groups))


def _deduce_conv_transpose(d: Deduction, attrs: ConvTransposeAttrs) -> tuple[Annotation, ...]:
    x, weight = _check_operands(d, attrs.groups)
    message = f"`{d.args[0].name}` has {{0}} channels, the weight `{d.args[1].name}` is for {{1}}"
    d.equal(x.shape[1], weight.shape[0], message, arg=1)
    _divides(d, weight.shape[0], attrs.groups, "input")
    channels = simplify(weight.shape[1] * attrs.groups, d.facts)
    _check_bias(d, channels)
    sizes = []
    for k, n in enumerate(x.shape[2:]):
        (lo, hi), s, more = attrs.padding[k], attrs.stride[k], attrs.output_padding[k]
        if more >= max(s, attrs.dilation[k]):
            raise d.error(f"{d.what}: output_padding {more} of spatial dim {k} is not less than its stride {s} or its dilation")
        span = (weight.shape[2 + k] - 1) * attrs.dilation[k] + 1
        size = simplify((n - 1) * s + span + more - lo - hi, d.facts)
        d.require(Le(ZERO, size), f"{d.what}: spatial dim {k} of the result would have {{0}} elements", (size,), help="use less padding")
        sizes.append(size)
    return (Tensor(x.dtype, (x.shape[0], channels, *sizes)),)


def _conv_transpose_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: ConvTransposeAttrs) -> tuple[Stage, ...]:
    x, weight, out = args[0], args[1], outs[0]
    wide, per_group = accumulator(x.dtype), weight.shape[1]
    depth = simplify(weight.shape[0] // attrs.groups)  # input channels of a group

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        places, conditions = [], []
        for k, n in enumerate(x.shape[2:]):
            reached = i[2 + k] + attrs.padding[k][0] - r[1 + k] * attrs.dilation[k]  # stride times the source position
            s = attrs.stride[k]
            places.append(reached // s)
            conditions += [Le(ZERO, places[-1]), Lt(places[-1], n)]
            if s > 1:
                conditions.append(Eq(reached % s, ZERO))
        channel, inner = r[0], i[1]
        if attrs.groups > 1:
            channel, inner = group_start(i[1] // per_group, depth, const(attrs.groups), per_group) + r[0], i[1] % per_group
        element = read_inside(read, 0, (i[0], channel, *places), all_of(conditions), Const(0, x.dtype))
        return _product(element, read(1, channel, inner, *r[1:]), wide)

    return _with_bias(args, out, Stage("sum", wide, out.shape, value, (depth, *weight.shape[2:]), "add", Const(0, wide)))


def _conv_transpose_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    """The numpy reference of conv_transpose: adds every element times the kernel into the result, tap by tap."""
    x, weight = _wide(args[0]), _wide(args[1])
    kernel = weight.shape[2:]
    geometry = list(zip(x.shape[2:], attrs.stride, kernel, attrs.dilation, strict=True))
    full = [(max(n, 1) - 1) * s + (k - 1) * step + 1 for n, s, k, step in geometry]
    parts = []
    for v, w in zip(np.split(x, attrs.groups, 1), np.split(weight, attrs.groups, 0), strict=True):
        spread = np.zeros((x.shape[0], w.shape[1], *full), x.dtype)
        for tap in np.ndindex(*kernel):
            at = [slice(t * step, t * step + n * s, s) for t, (n, s, _, step) in zip(tap, geometry, strict=True)]
            spread[(slice(None), slice(None), *at)] += np.moveaxis(np.tensordot(v, w[(slice(None), slice(None), *tap)], ([1], [0])), -1, 1)
        parts.append(spread)
    total = np.concatenate(parts, axis=1)
    less = [lo + hi - more for more, (lo, hi) in zip(attrs.output_padding, attrs.padding, strict=True)]
    sizes = [(n - 1) * s + (k - 1) * step + 1 - cut for (n, s, k, step), cut in zip(geometry, less, strict=True)]
    longer = [(0, 0), (0, 0), *((0, max(lo + size - n, 0)) for n, size, (lo, _) in zip(full, sizes, attrs.padding, strict=True))]
    cut = [slice(lo, lo + size) for size, (lo, _) in zip(sizes, attrs.padding, strict=True)]
    return _finished(np.pad(total, longer)[(slice(None), slice(None), *cut)], args)


@operator(
    deduce=_deduce_conv_transpose,
    reference=_conv_transpose_reference,
    stages=_conv_transpose_stages,
    attrs=ConvTransposeAttrs,
    arity=(2, 3),
)
def conv_transpose(
    op: OpCall,
    x: T,
    weight: T,
    bias: T | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> T:
    """The transposed convolution of `x` (n, c, …) with `weight` (c, out / groups, …): the gradient of `conv` for its operand."""
    value, kernel, rank = _spatial(op.name, x, weight)
    attrs = ConvTransposeAttrs(
        whole_numbers(op.name, "stride", stride, rank),
        pad_pairs(op.name, padding, rank),
        whole_numbers(op.name, "output_padding", output_padding, rank, least=0),
        whole_numbers(op.name, "dilation", dilation, rank),
        groups,
    )
    return op.emit(*(value, kernel) if bias is None else (value, kernel, op.operand(bias)), attrs=attrs)


def _spatial(name: str, x: Any, weight: Any) -> tuple[Any, Any, int]:
    values = operand(name, x), operand(name, weight)
    rank = len(tensor_of(values[0].annotation).shape) - 2
    return *values, max(rank, 1)


def _named_padding(window: Window, extents: tuple[Expr, ...], padding: str) -> Pads:
    if padding not in ("valid", "same", "same_upper", "same_lower"):
        raise ShapeError(f'conv has no padding "{padding}"', help='padding is given in numbers, or "same", "same_lower" or "valid"')
    if padding == "valid" or len(extents) != len(window.kernel):  # deduction reports ranks that differ
        return window.padding
    return same_padding(window, extents, padding == "same_lower")
