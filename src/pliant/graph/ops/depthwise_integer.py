"""Depthwise convolutions of 8-bit integers, channels last: each channel of the result sums over the window of one channel.

    ops.depthwise_integer(x, weight, fill, (3, 3), stride=2, padding=1)      # u8 (n, h, w, c) x i16 (3, 3, c) -> i32 (n, h, w, c)

Channels are contiguous, so they are the vector lanes, and no im2col is needed. Windows of up to 49 elements are unrolled into one
expression, so that elementwise operators after it fuse with it.
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ...dtype import i8, i16, i32, u8
from ...sym.expr import Add, Cast, Const, Expr, Mul, const
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operator, tensor_of
from ..stage import Indices, Read, Stage
from .unfold import UnfoldAttrs
from .window import padded_windows, read_inside, whole_numbers, window_of, window_sizes

WRITTEN_OUT = 49  # the number of elements of the largest window that is unrolled, 7 x 7


def _deduce(d: Deduction, attrs: UnfoldAttrs) -> tuple[Annotation, ...]:
    rank = len(attrs.kernel)
    x, weight = d.rank(0, rank + 2), d.rank(1, rank + 1)
    d.rank(2, 0)
    if x.dtype not in (i8, u8) or weight.dtype is not i16 or d.tensor(2).dtype is not x.dtype:
        raise d.error(f"{d.what} of {x.dtype}, {weight.dtype} and {d.tensor(2).dtype}", help="codes of a byte, weights of i16")
    for axis, n in enumerate(attrs.kernel):
        d.equal(weight.shape[axis], const(n), f"`{d.args[1].name}` has windows of {{0}}, of {{1}} are said", arg=1)
    d.equal(weight.shape[rank], x.shape[-1], f"`{d.args[1].name}` has {{0}} channels, `{d.args[0].name}` {{1}}", arg=1)
    return (Tensor(i32, (x.shape[0], *attrs.window().sizes(d, x.shape[1 : rank + 1]), x.shape[-1])),)


def _stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: UnfoldAttrs) -> tuple[Stage, ...]:
    x, window, rank = args[0], attrs.window(), len(attrs.kernel)

    def term(i: Indices, tap: Indices, read: Read) -> Expr:
        places = window.places(i[1 : rank + 1], tap)
        inside = window.inside(places, x.shape[1 : rank + 1])
        code = read_inside(read, 0, (i[0], *places, i[-1]), inside, read(2))
        return Mul(Cast(i32, code), Cast(i32, read(1, *tap, i[-1])))

    def whole(i: Indices, r: Indices, read: Read) -> Expr:
        taps = [tuple(map(const, t)) for t in product(*map(range, attrs.kernel))]
        total = term(i, taps[0], read)
        for tap in taps[1:]:
            total = Add(total, term(i, tap, read))
        return total

    if prod(attrs.kernel) <= WRITTEN_OUT:
        return (Stage("sums", i32, outs[0].shape, whole),)
    kernel = tuple(map(const, attrs.kernel))
    return (Stage("sums", i32, outs[0].shape, term, kernel, "add", Const(0, i32)),)


def _reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    rank = len(attrs.kernel)
    first = np.moveaxis(args[0], -1, 1)
    views = padded_windows(first, attrs.kernel, attrs, window_sizes(first, attrs.kernel, attrs), args[2])  # [n, c, …, kernel…]
    rows = np.moveaxis(views, 1, 2 * rank + 1).astype(np.int64) * args[1].astype(np.int64)
    return [rows.sum(axis=tuple(range(rank + 1, 2 * rank + 1))).astype(np.int32)]


@operator(deduce=_deduce, reference=_reference, stages=_stages, attrs=UnfoldAttrs, arity=3)
def depthwise_integer(op: OpCall, x: Any, weight: Any, fill: Any, kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Any:
    """i32 sums over windows of `x` (n, …, c) of products with `weight` (kernel…, c); `fill` is the value of the padding."""
    value = op.operand(x)
    t = tensor_of(value.annotation)
    rank = len(t.shape) - 2
    sizes = whole_numbers(op.name, "kernel", kernel, rank)
    window = window_of(op.name, rank, tuple(map(const, sizes)), stride, padding, dilation)
    attrs = UnfoldAttrs(sizes, window.stride, window.padding, window.dilation)
    return op.emit(value, op.operand(weight), op.operand(fill, t.dtype), attrs=attrs)
