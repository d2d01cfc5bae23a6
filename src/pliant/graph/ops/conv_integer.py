"""Convolutions of 8-bit integers, computed with channels last (NHWC).

    ops.conv_integer(x, weight, x_zero, padding=1) # u8 or i8 (n, c, h, w) x (out, c, 3, 3) -> i32 (n, out, h, w)

The convolution is im2col (`unfold`) and a matmul with the weight as a matrix, for which CPUs have dot-product instructions: one matmul
for each group of channels. Where a group is one channel, it is a sum over windows (`depthwise_integer.py`). The padding is the zero
point. With channels last, the rows of im2col are runs of channels, and the result of one convolution is the operand of the next.
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import i8, i16, i32, u8
from ...support.errors import ShapeError, counted
from ...sym.expr import Const, Expr, const, product
from ...sym.simplify import simplify
from ..node import Value
from ..operators import OpCall, composite, operand, tensor_of
from .bits import bit_cast
from .bitwise import bitwise_xor
from .compare import cast
from .depthwise_integer import depthwise_integer
from .elementwise import mul, sub
from .matmul_integer import matmul_integer
from .reduce import sum as sum_of
from .shape import permute, reshape
from .unfold import unfold
from .window import ZERO, pad_pairs, whole_numbers


@composite
def conv_integer(
    op: OpCall,
    x: Any,
    weight: Any,
    x_zero: Any = None,
    weight_zero: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """The i32 convolution of u8 or i8 `x` (n, c, …) with `weight` (out, c / groups, …), each minus its zero point."""
    value = op.operand(x)
    _check(value, op.operand(weight), groups)
    rank = len(tensor_of(value.annotation).shape)
    last = permute(value, (0, *range(2, rank), 1))
    result = conv_integer_last(last, weight, x_zero, weight_zero, stride, padding, dilation, groups)
    return permute(result, (0, rank - 1, *range(1, rank - 1)))


def conv_integer_last(x: Any, weight: Any, x_zero: Any, weight_zero: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """As `conv_integer`, but for `x` with channels last, (n, …, c), and a result of that layout; kernel extents must be numbers.

    Codes are moved into the ranges that dot-product instructions take: u8 on the left, i8 on the right.
    """
    a, b = operand("conv_integer", x), operand("conv_integer", weight)
    outs, channels, *kernel = tensor_of(b.annotation).shape
    if groups > 1 and channels is const(1) and outs is const(groups):
        return _depthwise(a, b, x_zero, weight_zero, stride, padding, dilation)
    a, x_zero = _moved(a, x_zero, u8)
    b, weight_zero = _moved(b, weight_zero, i8)
    rank, zero = len(kernel), None if x_zero is None else reshape(x_zero, ())
    rows: Any = a
    if not _single(kernel, stride, padding):
        rows = unfold(a, 0 if zero is None else zero, kernel, stride, padding, dilation)
    n, *windows = tensor_of(rows.annotation).shape[: rank + 1]
    count, length = simplify(product((n, *windows))), simplify(product((*kernel, channels)))
    if groups == 1:
        matrix = reshape(permute(b, (*range(2, rank + 2), 1, 0)), (length, outs))
        return reshape(matmul_integer(reshape(rows, (count, length)), matrix, zero, weight_zero), (n, *windows, outs))
    taps, each = simplify(product(tuple(kernel))), simplify(outs // groups)
    apart = permute(reshape(rows, (count, taps, groups, channels)), (2, 0, 1, 3))
    matrices = permute(reshape(b, (groups, each, channels, taps)), (0, 3, 2, 1))
    right = None if weight_zero is None else _by_group(operand("conv_integer", weight_zero), groups, each)
    total = matmul_integer(reshape(apart, (groups, count, length)), reshape(matrices, (groups, length, each)), zero, right)
    return reshape(permute(total, (1, 0, 2)), (n, *windows, outs))


def _by_group(zero: Value, groups: int, each: Expr) -> Any:
    """Returns the zero points of the weight, reshaped to broadcast over the matmuls of the groups; a zero point without dims as it is."""
    return zero if not tensor_of(zero.annotation).shape else reshape(zero, (groups, 1, each))


def _depthwise(a: Value, b: Value, x_zero: Any, weight_zero: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """Emits an integer convolution whose groups are single channels, and returns its value.

    The zero point of the weight is subtracted from the weight; that of `x`, times the sum of the weights, from each sum.
    """
    outs, _, *kernel = tensor_of(b.annotation).shape
    rank = len(kernel)
    short: Any = i16
    long: Any = i32
    wide: Any = permute(cast(reshape(b, (outs, *kernel)), short), (*range(1, rank + 1), 0))
    if weight_zero is not None:
        wide = sub(wide, cast(operand("conv_integer", weight_zero), short))
    if x_zero is None:
        return depthwise_integer(a, wide, 0, kernel, stride, padding, dilation)
    zero = reshape(x_zero, ())
    total = depthwise_integer(a, wide, zero, kernel, stride, padding, dilation)
    return sub(total, mul(cast(zero, long), sum_of(cast(wide, long), axis=list(range(rank)))))


def _check(x: Value, weight: Value, groups: int) -> None:
    """Raises a ShapeError unless both operands are 8-bit integers of equal rank, kernel extents are numbers, and the groups fit."""
    a, b = tensor_of(x.annotation), tensor_of(weight.annotation)
    for value, t in ((x, a), (weight, b)):
        if t.dtype not in (i8, u8):
            raise ShapeError(f"conv_integer: `{value.name}` is {t.dtype}, not i8 or u8", help="cast both to i32 and use ops.conv")
    if len(a.shape) < 3 or len(a.shape) != len(b.shape):
        raise ShapeError(
            f"conv_integer: `{x.name}` has {counted(len(a.shape), 'dim')}, and `{weight.name}` {len(b.shape)}", help="(n, c, …)"
        )
    if not all(isinstance(k, Const) for k in b.shape[2:]):
        raise ShapeError(f"conv_integer: the extents of the kernel `{weight.name}` are not numbers", facts=[f"it is {b}"])
    outs, channels = b.shape[0], simplify(b.shape[1] * groups)
    if channels is not a.shape[1] or (isinstance(outs, Const) and outs.value % groups):
        raise ShapeError(f"conv_integer: {groups} groups of `{weight.name}` do not fit `{x.name}`", facts=[f"they are {b} and {a}"])


def _single(kernel: Sequence[Expr], stride: Any, padding: Any) -> bool:
    """True for a 1x1 convolution of stride 1 without padding, which needs no im2col."""
    single = (1,) * len(kernel)
    ones = tuple(kernel) == tuple(map(const, single)) and whole_numbers("conv_integer", "stride", stride, len(kernel)) == single
    return ones and all(p is ZERO for pair in pad_pairs("conv_integer", padding, len(kernel)) for p in pair)


def _moved(codes: Value, zero: Any, to: Any) -> tuple[Any, Any]:
    """Returns codes and their zero point as the 8-bit type `to`: both are shifted by 128, which flips the highest bit.

    They are returned as they are if the codes have this type. Without a zero point it is 0 before the shift.
    """
    of = tensor_of(codes.annotation).dtype
    if of is to:
        return codes, zero
    turn = -128 if of is i8 else 128
    known = np.asarray(0, of.numpy()) if zero is None else zero
    return bit_cast(bitwise_xor(codes, turn), to), bit_cast(bitwise_xor(operand("conv_integer", known, of), turn), to)
