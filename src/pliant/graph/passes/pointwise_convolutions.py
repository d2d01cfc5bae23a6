"""Turns 1x1 (pointwise) convolutions into matmuls over channels, with all pixels of an image as one row.

    y = ops.conv(x, w)       # x: (n, c, h, w), w: (j, c, 1, 1)      ->      r = ops.reshape(x, (n, c, h * w))
    z = ops.relu(y)                                                          m = ops.matmul(ops.reshape(w, (j, c)), r)
                                                                             q = ops.relu(m)
                                                                             z = ops.reshape(q, (n, j, h, w))

A transposed convolution with stride = kernel size (non-overlapping windows) is a pointwise convolution too: each filter tap becomes a
channel of its own, and a permute moves the taps to their pixels (depth-to-space).

Reshapes are views. Elementwise operators that follow are moved before the last reshape, so that they can still be fused as the epilogue
of the matmul. The order of summation over channels does not change. Three cases differ:
- Small images stay convolutions: their rows are shorter than the register tile of a matmul is wide.
- Images between other operators stay if their channels get the NCHWc layout.
- Images of one pixel (after global pooling) are rows of channels, `ops.matmul(ops.reshape(x, (n, c)), ops.permute(w, (1, 0)))`, if the
  weight is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...support.choices import heuristic, worth
from ...sym.expr import Const, Expr, const, product
from ...sym.simplify import simplify
from ..node import Function, Node, Op, Tensor, Value
from ..op_table import TABLE
from ..ops.conv import ConvAttrs, ConvTransposeAttrs
from ..ops.reduce import accumulator
from ..ops.shape import PermuteAttrs, ShapeAttrs
from ..rewrite import Rewriter

LEAST_PLACES = 64  # fewer pixels do not fill the columns of a register tile
CHANNELS = 4  # the smallest channel block of the NCHWc layout
LARGE = 2**18  # elements (1 MiB of f32): such a weight streams from memory, which a GEMV does best; smaller ones stay convolutions
Shape = tuple[Expr, ...]


def pointwise_convolutions(function: Function) -> Function:
    """Returns the function with pointwise convolutions replaced by matmuls; the same object if there are none."""
    return _Products(function).run()


class _Products(Rewriter):
    """Rewrites pointwise (1x1) convolutions to matmuls, and keeps images flat between them."""

    def __init__(self, function: Function) -> None:
        super().__init__(function, lambda r, node: self.rewrite(node))
        self.flat: dict[Value, Value] = {}  # image (n, c, h, w) -> the same values as rows (n, c, h * w)

    def rewrite(self, node: Node) -> Sequence[Value] | None:
        """Returns the replacement of a convolution, or of an elementwise operator on an image that exists as rows.

        None if the node stays.
        """
        if not isinstance(node, Op):
            return None
        if node.op == "conv_transpose":
            return self.spread(node)
        return self.convolution(node) if node.op == "conv" else self.elementwise(node)

    def spread(self, node: Op) -> Sequence[Value] | None:
        """Returns a pointwise convolution with a channel per filter tap, and a permute, for a transposed convolution without overlap.

        None if windows overlap, deduction fails, or the dtype has a wider accumulator.
        """
        x, weight, attrs = node.args[0].tensor, node.args[1].tensor, node.attrs
        kernel = tuple(int(e.value) for e in weight.shape[2:] if isinstance(e, Const))
        rank = len(x.shape) - 2
        if not _side_by_side(attrs, kernel, rank) or accumulator(x.dtype) is not x.dtype:
            return None
        channels, window = weight.shape[1], tuple(const(k) for k in kernel)
        every = simplify(product((channels, *window)))
        turned = self.made("permute", (node.args[1],), PermuteAttrs((*range(1, rank + 2), 0)), node)
        flat = turned and self.reshaped(turned, (every, x.shape[1], *(const(1),) * rank), node)
        plain = ConvAttrs((1,) * rank, ((const(0), const(0)),) * rank, (1,) * rank)
        places = flat and self.made("conv", (node.args[0], flat), plain, node)
        apart = places and self.reshaped(places, (x.shape[0], channels, *window, *x.shape[2:]), node)
        order = (0, 1, *(axis for k in range(rank) for axis in (2 + rank + k, 2 + k)))
        result = apart and self.made("permute", (apart,), PermuteAttrs(order), node)
        if result and len(node.args) == 3:
            bias = self.reshaped(node.args[2], (channels, *(const(1),) * 2 * rank), node)
            result = bias and self.made("add", (result, bias), None, node)
        return self.op("reshape", (result,), ShapeAttrs(node.outs[0].tensor.shape), node) if result else None

    def convolution(self, node: Op) -> Sequence[Value] | None:
        """Returns the matmul that replaces a pointwise (1x1) convolution; None if the convolution stays."""
        x, weight = node.args[0], node.args[1]
        places = _flat(x.tensor.shape)[2]
        if not _is_pointwise(node):
            return None
        if isinstance(places, Const) and places.value == 1:
            return self.classifier(node)
        if (isinstance(places, Const) and not worth(places.value >= LEAST_PLACES)) or (x in self.makers and _in_blocks(weight)):
            return None
        out, channels = node.outs[0].tensor, weight.tensor.shape[:2]
        left, right = self.reshaped(weight, channels, node), self.row(x, _flat(x.tensor.shape), node)
        result = left and right and self.made("matmul", (left, right), None, node)
        if result and len(node.args) == 3:
            bias = self.reshaped(node.args[2], (channels[0], const(1)), node)
            result = bias and self.made("add", (result, bias), None, node)
        return None if not result else self.back(result, out, node)

    def classifier(self, node: Op) -> Sequence[Value] | None:
        """Returns a matmul whose rows are images for a convolution of one-pixel images, if the weight is large; else None."""
        x, weight = node.args[0], node.args[1]
        images, size = x.tensor.shape[:2], product(weight.tensor.shape)
        if not isinstance(size, Const) or not worth(size.value >= LARGE):
            return None
        rows, flat = self.reshaped(x, images, node), self.reshaped(weight, weight.tensor.shape[:2], node)
        turned = flat and self.made("permute", (flat,), PermuteAttrs((1, 0)), node)
        result = rows and turned and self.made("matmul", (rows, turned), None, node)
        if result and len(node.args) == 3:
            result = self.made("add", (result, node.args[2]), None, node)
        return self.op("reshape", (result,), ShapeAttrs(node.outs[0].tensor.shape), node) if result else None

    def elementwise(self, node: Op) -> Sequence[Value] | None:
        """Returns an elementwise operator on rows instead of images, if one of its operands exists as rows; else None."""
        if not TABLE[node.op].broadcasts or len(node.outs) != 1 or not isinstance(node.outs[0].annotation, Tensor):
            return None
        out = node.outs[0].tensor
        if len(out.shape) == 3:  # one spatial dim: the image has the shape of its rows already
            return None
        if not any(a in self.flat and a.tensor.shape == out.shape for a in node.args):
            return None
        rows = [self.operand(a, out.shape, node) for a in node.args]
        args = tuple(a for a in rows if a is not None)
        result = self.made(node.op, args, node.attrs, node) if len(args) == len(rows) else None
        return None if result is None else self.back(result, out, node)

    def operand(self, value: Value, image: Shape, node: Op) -> Value | None:
        """Reshapes an operand that broadcasts to an image so that it broadcasts to the rows; None if that is impossible."""
        if not isinstance(value.annotation, Tensor) or not value.tensor.shape:
            return value
        shape = value.tensor.shape
        if shape == image:
            return self.row(value, _flat(image), node)
        spatial = len(image) - 2
        ones = len(shape) >= spatial and all(isinstance(e, Const) and e.value == 1 for e in shape[-spatial:])
        return self.reshaped(value, (*shape[:-spatial], const(1)), node) if ones else None

    def row(self, value: Value, shape: Shape, node: Op) -> Value | None:
        """Returns the image `value` reshaped to (n, c, pixels), which is remembered for later calls; None if deduction fails."""
        if value not in self.flat:
            rows = self.reshaped(value, shape, node)
            if rows is None:
                return None
            self.flat[value] = rows
        return self.flat[value]

    def back(self, rows: Value, image: Tensor, node: Op) -> Sequence[Value] | None:
        """Returns the image reshaped from `rows`, (n, c, pixels), as the replacement of the node, and remembers its rows.

        None if deduction fails.
        """
        results = (rows,) if rows.annotation == image else self.op("reshape", (rows,), ShapeAttrs(image.shape), node)
        if results is not None:
            self.flat[results[0]] = rows
        return results

    def reshaped(self, value: Value, shape: Shape, node: Op) -> Value | None:
        """Returns `value` in another shape; None if deduction fails."""
        return value if value.tensor.shape == shape else self.made("reshape", (value,), ShapeAttrs(shape), node)

    def made(self, name: str, args: Sequence[Value], attrs: Any, node: Op) -> Value | None:
        """Returns the result of a new operator; None if deduction fails."""
        results = self.make(name, args, attrs, node)
        return None if results is None else results[0]


@heuristic
def _in_blocks(weight: Value) -> bool:
    """True if `lower/layout/layout_nchwc.py` will block the channels of a convolution's input or result: such images are not rows."""
    return any(isinstance(n, Const) and n.value % CHANNELS == 0 for n in weight.tensor.shape[:2])


def _side_by_side(attrs: ConvTransposeAttrs, kernel: tuple[int, ...], rank: int) -> bool:
    """True if the windows of a transposed convolution tile its result: stride = kernel size, no padding, one group."""
    padded = any(not isinstance(p, Const) or p.value != 0 for pair in attrs.padding for p in pair)
    return len(kernel) == rank and kernel == attrs.stride and attrs.groups == 1 and not padded and not any(attrs.output_padding)


def _flat(image: Shape) -> Shape:
    """Returns the shape of an image with its spatial dims merged: (n, c, pixels)."""
    return (*image[:2], simplify(product(image[2:])))


def _is_pointwise(node: Op) -> bool:
    """True for a 1x1 kernel with stride 1, no padding and one group; not for 16-bit floats, which a matmul would round once more."""
    x, weight, attrs = node.args[0].tensor, node.args[1].tensor, node.attrs
    assert isinstance(attrs, ConvAttrs)
    ones = all(isinstance(e, Const) and e.value == 1 for e in weight.shape[2:])
    plain = all(s == 1 for s in attrs.stride) and all(isinstance(p, Const) and p.value == 0 for pair in attrs.padding for p in pair)
    return ones and plain and attrs.groups == 1 and accumulator(x.dtype) is x.dtype
