"""Runs quantized (QDQ) models in integer arithmetic: convs and matmuls of dequantized tensors run on the integer codes.

    a = ops.dequantize_linear(qx, sx, zx)           ->      t = ops.conv_integer(qx, qw, zx, zw)          # in i32
    w = ops.dequantize_linear(qw, sw, zw)                   y = ops.cast(t, f32) * (sx * sw) + b
    y = ops.conv(a, w, b)

The integer sum is exact. Scale, bias and the elementwise operators that follow (activation, residual, requantization) become the epilogue
of the kernel. The activation has one scale and zero point, the weight one, or one per output channel. Sums that could overflow i32, and
scales that differ along the reduction dim, are left alone.

Integer convolutions use the NHWC layout. A transpose to NHWC moves up through elementwise operators until it cancels the transpose back
to NCHW of the previous convolution, so none is left between two convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...dtype import f32, i8, u8
from ...sym.expr import Const, product
from ...sym.simplify import simplify
from .. import opset as _ops
from ..node import Function, Node, Op, Tensor, Value
from ..op_table import TABLE
from ..ops.conv_integer import conv_integer_last
from ..ops.linalg import PLAIN
from ..ops.shape import PermuteAttrs, ShapeAttrs
from ..rewrite import Rewriter
from .in_place import replacement

ops: Any = _ops  # Any: the types of `ops` describe what users pass, not values inside a pass
MOST_TERMS = (1 << 31) // (255 * 128)  # a sum of this number of terms of size u8 max * |i8 min| cannot overflow i32
BY_ELEMENT = ("cast", "bit_cast", "quantize_linear", "dequantize_linear")  # elementwise too, though they do not broadcast


def integer_products(function: Function) -> Function:
    """Returns the function with convs and matmuls of dequantized tensors replaced by integer ones; the same object if there are none."""
    return _Products(function).run()


class _Codes:
    """A dequantized operand: its integer codes, with one scale and zero point, or one for each index along `axis`."""

    def __init__(self, node: Op) -> None:
        self.codes, self.scale = node.args[:2]
        self.zero = node.args[2] if len(node.args) > 2 else None
        self.axis = node.attrs.axis if self.scale.tensor.shape else None


class _Products(Rewriter):
    """Rewrites matmuls and convolutions of dequantized tensors to integer ones on their codes."""

    def __init__(self, function: Function) -> None:
        super().__init__(function, lambda r, node: self.changed(node))
        self.rows: dict[Value, Value | None] = {}  # NCHW image -> its NHWC rows (pixels, c) if they need no transpose, else None

    def changed(self, node: Node) -> Sequence[Value] | None:
        """Returns the replacement of a conv or matmul of dequantized tensors, or of a transpose to NHWC; None for other nodes."""
        if not isinstance(node, Op):
            return None
        if node.op in ("conv", "matmul") and node.outs[0].tensor.dtype is f32:
            return replacement(self, node, self.convolution if node.op == "conv" else self.product)
        if node.op == "permute" and node.attrs.axes == _to_last(len(node.attrs.axes)) and len(node.attrs.axes) > 2:
            rows = self.rows_of(node.args[0], node)
            return None if rows is None else self.op("reshape", (rows,), ShapeAttrs(node.outs[0].tensor.shape), node)
        return None

    # Products.

    def codes(self, value: Value, axis: int | None) -> _Codes | None:
        """Returns the codes of an operand that dequantize_linear computes from i8 or u8; its scale may differ along `axis`.

        None for other operands. A zero point that is all zeros is left out.
        """
        node = self.op_of(value, "dequantize_linear")
        if node is None or node.attrs.block_size or node.args[0].tensor.dtype not in (i8, u8) or node.args[1].tensor.dtype is not f32:
            return None
        operand = _Codes(node)
        zero = None if operand.zero is None else self.array_of(operand.zero)
        if zero is not None and not zero.any():
            operand.zero = None
        return operand if operand.axis is None or (operand.axis == axis and self.makers.get(operand.scale) is not None) else None

    def convolution(self, node: Op) -> Value | None:
        """Returns the integer form of a convolution of dequantized tensors; None if it has no such form."""
        x, w = self.codes(node.args[0], None), self.codes(node.args[1], 0)
        if x is None or w is None or not _fits(w.codes.tensor.shape[1:]):
            return None
        rank, a = len(node.outs[0].tensor.shape), node.attrs
        last = ops.permute(x.codes, _to_last(rank))
        total = conv_integer_last(last, w.codes, x.zero, w.zero, a.stride, list(a.padding), a.dilation, a.groups)
        rows = ops.reshape(total, (-1, w.codes.tensor.shape[0]))
        real = _scaled(rows, x, w, node.args[2] if len(node.args) > 2 else None)
        result: Value = ops.permute(ops.reshape(real, total.tensor.shape), _to_first(rank))
        return result

    def product(self, node: Op) -> Value | None:
        """Returns the integer form of a matmul of dequantized tensors; None if it has no such form."""
        (a, b), attrs = node.args, node.attrs or PLAIN
        right = len(b.tensor.shape) - (2 if attrs.transpose_b else 1)
        x, w = self.codes(a, None), self.codes(b, right)
        if x is None or w is None or len(b.tensor.shape) != 2 or len(a.tensor.shape) < 2 or attrs.transpose_a:
            return None
        matrix = ops.permute(w.codes, (1, 0)) if attrs.transpose_b else w.codes
        if not _fits(matrix.tensor.shape[:1]):
            return None
        result: Value = _scaled(ops.matmul_integer(x.codes, matrix, x.zero, w.zero), x, w, None)
        return result

    # Channels last.

    def rows_of(self, image: Value, near: Op) -> Value | None:
        """An NCHW image as NHWC rows, if elementwise operators lead back to a transpose from NHWC, else None."""
        if image not in self.rows:
            self.rows[image] = None
            self.rows[image] = self.turned(image, near)
        return self.rows[image]

    def turned(self, image: Value, near: Op) -> Value | None:
        """Returns the rows of an image, computed from those of its operands, or from the transpose that created it.

        None if neither works.
        """
        node = self.makers.get(image)
        if not isinstance(node, Op) or node.requires or not isinstance(image.annotation, Tensor):
            return None
        if node.op == "permute":
            return self.flat(node.args[0], near) if node.attrs.axes == _to_first(len(image.tensor.shape)) else None
        if len(node.outs) != 1 or not (TABLE[node.op].broadcasts or node.op in BY_ELEMENT):
            return None
        whole = [a for a in node.args if isinstance(a.annotation, Tensor) and a.tensor.shape == image.tensor.shape]
        if not any(self.rows_of(a, near) is not None for a in whole):
            return None
        args = [self.operand(a, image, near) for a in node.args]
        rows = [a for a in args if a is not None]
        results = self.make(node.op, rows, node.attrs, near) if len(rows) == len(args) else None
        return None if results is None else results[0]

    def operand(self, value: Value, image: Value, near: Op) -> Value | None:
        """An operand of an elementwise operator as NHWC rows; None if it is neither a scalar nor an image of the same shape."""
        if not isinstance(value.annotation, Tensor) or not value.tensor.shape:
            return value
        if value.tensor.shape != image.tensor.shape:
            return None
        rows = self.rows_of(value, near)
        if rows is None:
            transposed = self.make("permute", (value,), PermuteAttrs(_to_last(len(image.tensor.shape))), near)
            rows = None if transposed is None else self.flat(transposed[0], near)
        return rows

    def flat(self, image: Value, near: Op) -> Value | None:
        """Returns an NHWC image reshaped to rows (pixels, channels); None if deduction fails."""
        shape = image.tensor.shape
        rows = (simplify(product(shape[:-1])), shape[-1])
        before = self.op_of(image, "reshape")
        if before is not None and before.args[0].tensor.shape == rows:
            return before.args[0]
        reshaped = self.make("reshape", (image,), ShapeAttrs(rows), near)
        return None if reshaped is None else reshaped[0]


def _scaled(total: Any, x: _Codes, w: _Codes, bias: Value | None) -> Any:
    """Returns the real values of integer sums (channels last): multiplied by the scales, with the bias added."""
    real = ops.mul(ops.cast(total, f32), ops.mul(x.scale, w.scale))
    return real if bias is None else ops.add(real, bias)


def _fits(summed: Sequence[Any]) -> bool:
    """True if sums over these dims cannot overflow i32."""
    terms = simplify(product(tuple(summed)))
    return isinstance(terms, Const) and terms.value <= MOST_TERMS


def _to_last(rank: int) -> tuple[int, ...]:
    """Returns the permutation from NCHW to NHWC for a rank."""
    return (0, *range(2, rank), 1)


def _to_first(rank: int) -> tuple[int, ...]:
    """Returns the permutation from NHWC to NCHW for a rank."""
    return (0, rank - 1, *range(1, rank - 1))
