"""Windows laid out as rows, and convolutions of small integers made of them, channels last.

    ops.unfold(x, fill, (3, 3), padding=1)         # (n, h, w, c) -> (n, h, w, 3, 3, c): the elements that each result is made of
    ops.conv_integer(x, weight, x_zero, padding=1) # u8 or i8 (n, c, h, w) x (out, c, 3, 3) -> i32 (n, out, h, w)

A convolution of integers is a product of the windows' rows with the weight as a matrix, which machines have instructions for. Outside of
the image lies its zero point. With channels last, rows are runs of channels, and one convolution's result is the next one's operand.
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import i8, u8
from ...support.errors import ShapeError, counted
from ...support.record import dataclass
from ...sym.expr import Const, Expr, const, product
from ...sym.simplify import simplify
from ..deduce import Deduction
from ..node import Annotation, Tensor, Value
from ..operators import Array, OpDef, emit, operand, register, tensor_of
from ..stage import Indices, Read, Stage
from .bits import bit_cast
from .bitwise import bitwise_xor
from .integers import matmul_integer
from .shape import permute, reshape
from .window import ZERO, Pads, Window, pad_pairs, padded_windows, read_inside, whole_numbers, window_of, window_sizes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UnfoldAttrs:
    """The windows."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Pads
    dilation: tuple[int, ...]

    def window(self) -> Window:
        """Where their taps lie."""
        return window_of("unfold", len(self.kernel), _exprs(self.kernel), self.stride, self.padding, self.dilation)


def _exprs(numbers: Sequence[int]) -> tuple[Expr, ...]:
    return tuple(map(const, numbers))


def _deduce(d: Deduction, attrs: UnfoldAttrs) -> tuple[Annotation, ...]:
    x, rank = d.rank(0, len(attrs.kernel) + 2), len(attrs.kernel)
    d.rank(1, 0)
    if d.tensor(1).dtype is not x.dtype:
        raise d.error(f"unfold: outside lies {d.tensor(1).dtype}, and `{d.args[0].name}` is {x.dtype}", arg=1)
    outs = attrs.window().sizes(d, x.shape[1 : rank + 1])
    return (Tensor(x.dtype, (x.shape[0], *outs, *_exprs(attrs.kernel), x.shape[-1])),)


def _stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: UnfoldAttrs) -> tuple[Stage, ...]:
    x, window, rank = args[0], attrs.window(), len(attrs.kernel)

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        places = window.places(i[1 : rank + 1], i[rank + 1 : 2 * rank + 1])
        inside = window.inside(places, x.shape[1 : rank + 1])
        return read_inside(read, 0, (i[0], *places, i[-1]), inside, read(1))

    return (Stage("unfold", x.dtype, outs[0].shape, value),)


def _reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    rank = len(attrs.kernel)
    first = np.moveaxis(args[0], -1, 1)
    views = padded_windows(first, attrs.kernel, attrs, window_sizes(first, attrs.kernel, attrs), args[1])
    return [np.ascontiguousarray(np.moveaxis(views, 1, 2 * rank + 1))]


register(OpDef("unfold", _deduce, _reference, _stages, (2, 2), UnfoldAttrs))


def unfold(x: T, fill: Any, kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> T:
    """The windows over the spatial dims of `x` (n, …, c): (n, windows…, kernel…, c); `fill` lies outside."""
    value = operand("unfold", x)
    t = tensor_of(value.annotation)
    rank = len(t.shape) - 2
    sizes = whole_numbers("unfold", "kernel", kernel, rank)
    window = window_of("unfold", rank, _exprs(sizes), stride, padding, dilation)
    return emit("unfold", (value, operand("unfold", fill, t.dtype)), UnfoldAttrs(sizes, window.stride, window.padding, window.dilation))


def conv_integer(
    x: Any, weight: Any, x_zero: Any = None, weight_zero: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1
) -> Any:
    """The convolution of u8 or i8 `x` (n, c, …) with `weight` (out, c, …), each less its zero point, in i32."""
    value = operand("conv_integer", x)
    _check(value, operand("conv_integer", weight))
    rank = len(tensor_of(value.annotation).shape)
    last = permute(value, (0, *range(2, rank), 1))
    found = conv_integer_last(last, weight, x_zero, weight_zero, stride, padding, dilation)
    return permute(found, (0, rank - 1, *range(1, rank - 1)))


def conv_integer_last(
    x: Any, weight: Any, x_zero: Any = None, weight_zero: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1
) -> Any:
    """As `conv_integer`, of `x` (n, …, c), with the channels of the result last; the extents of the kernel are numbers.

    Codes are moved into the ranges that instructions take: u8 on the left, i8 on the right.
    """
    a, b = operand("conv_integer", x), operand("conv_integer", weight)
    a, x_zero = _moved(a, x_zero, u8)
    b, weight_zero = _moved(b, weight_zero, i8)
    outs, channels, *kernel = tensor_of(b.annotation).shape
    rank = len(kernel)
    rows: Any = a
    if not _single(kernel, stride, padding):
        rows = unfold(a, 0 if x_zero is None else reshape(x_zero, ()), kernel, stride, padding, dilation)
    n, *windows = tensor_of(rows.annotation).shape[: rank + 1]
    length = simplify(product((*kernel, channels)))
    rows = reshape(rows, (simplify(product((n, *windows))), length))
    matrix = reshape(permute(b, (*range(2, rank + 2), 1, 0)), (length, outs))
    return reshape(matmul_integer(rows, matrix, None if x_zero is None else reshape(x_zero, ()), weight_zero), (n, *windows, outs))


def _check(x: Value, weight: Value) -> None:
    """Both operands are small integers of as many dims, and the extents of the kernel are numbers."""
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


def _single(kernel: Sequence[Expr], stride: Any, padding: Any) -> bool:
    """Whether windows are single elements, and each element is one."""
    ones = tuple(kernel) == _exprs((1,) * len(kernel)) and whole_numbers("conv_integer", "stride", stride, len(kernel)) == (1,) * len(
        kernel
    )
    return ones and all(p is ZERO for pair in pad_pairs("conv_integer", padding, len(kernel)) for p in pair)


def _moved(codes: Value, zero: Any, to: Any) -> tuple[Any, Any]:
    """Codes and their zero point as another type of a byte: both move by 128, which turns the highest bit."""
    of = tensor_of(codes.annotation).dtype
    if of is to:
        return codes, zero
    turn = -128 if of is i8 else 128
    known = np.asarray(0, of.numpy()) if zero is None else zero
    return bit_cast(bitwise_xor(codes, turn), to), bit_cast(bitwise_xor(operand("conv_integer", known, of), turn), to)
