"""Convolutions of windows of one element are matrix products of channels with all places of an image as one row.

    y = ops.conv(x, w)       # x: (n, c, h, w), w: (j, c, 1, 1)      ->      r = ops.reshape(x, (n, c, h * w))
    z = ops.relu(y)                                                          m = ops.matmul(ops.reshape(w, (j, c)), r)
                                                                             q = ops.relu(m)
                                                                             z = ops.reshape(q, (n, j, h, w))

A transposed convolution whose windows lie side by side is one of single elements, too: each place of a window is a channel of its own,
and places are moved to where they belong afterwards.

Reshapes only rename memory. What follows element by element is done before the last of them, so that it can still join the product. The sum
over channels keeps its order. Small images stay: their rows are shorter than what a tile of a product has columns. So do images between
other operators whose channels will lie in blocks. Images of one place, as they come out of a pool over everything, are rows of channels
themselves, `ops.matmul(ops.reshape(x, (n, c)), ops.permute(w, (1, 0)))`, where the weight is not small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...sym.expr import Const, Expr, const, product
from ...sym.simplify import simplify
from ..node import Function, Node, Op, Tensor, Value
from ..operators import TABLE
from ..ops.conv import ConvAttrs, ConvTransposeAttrs
from ..ops.reduce import accumulator
from ..ops.shape import PermuteAttrs, ShapeAttrs
from ..rewrite import Rewriter

LEAST_PLACES = 64  # of an image that is worth a row
CHANNELS = 4  # of the smallest block
LARGE = 2**18  # elements of a weight that are worth a product of few rows
Shape = tuple[Expr, ...]


def pointwise_convolutions(function: Function) -> Function:
    """The function whose convolutions of single elements are matrix products; the same object where there are none."""
    return _Products(function).run()


class _Products(Rewriter):
    def __init__(self, function: Function) -> None:
        super().__init__(function, lambda r, node: self.rewrite(node))
        self.flat: dict[Value, Value] = {}  # the rows of images

    def rewrite(self, node: Node) -> Sequence[Value] | None:
        if not isinstance(node, Op):
            return None
        if node.op == "conv_transpose":
            return self.spread(node)
        return self.convolution(node) if node.op == "conv" else self.elementwise(node)

    def spread(self, node: Op) -> Sequence[Value] | None:
        """The convolution that makes a channel of each place of a window, and what puts them side by side."""
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
        found = apart and self.made("permute", (apart,), PermuteAttrs(order), node)
        if found and len(node.args) == 3:
            bias = self.reshaped(node.args[2], (channels, *(const(1),) * 2 * rank), node)
            found = bias and self.made("add", (found, bias), None, node)
        return self.op("reshape", (found,), ShapeAttrs(node.outs[0].tensor.shape), node) if found else None

    def convolution(self, node: Op) -> Sequence[Value] | None:
        """The product that a convolution is."""
        x, weight = node.args[0], node.args[1]
        places = _flat(x.tensor.shape)[2]
        if not _is_pointwise(node):
            return None
        if isinstance(places, Const) and places.value == 1:
            return self.classifier(node)
        if (isinstance(places, Const) and places.value < LEAST_PLACES) or (x in self.makers and _in_blocks(weight)):
            return None
        out, channels = node.outs[0].tensor, weight.tensor.shape[:2]
        left, right = self.reshaped(weight, channels, node), self.row(x, _flat(x.tensor.shape), node)
        found = left and right and self.made("matmul", (left, right), None, node)
        if found and len(node.args) == 3:
            bias = self.reshaped(node.args[2], (channels[0], const(1)), node)
            found = bias and self.made("add", (found, bias), None, node)
        return None if not found else self.back(found, out, node)

    def classifier(self, node: Op) -> Sequence[Value] | None:
        """The product with channels as rows that a convolution of images of one place is."""
        x, weight = node.args[0], node.args[1]
        images, size = x.tensor.shape[:2], product(weight.tensor.shape)
        if not isinstance(size, Const) or size.value < LARGE:
            return None
        rows, flat = self.reshaped(x, images, node), self.reshaped(weight, weight.tensor.shape[:2], node)
        turned = flat and self.made("permute", (flat,), PermuteAttrs((1, 0)), node)
        found = rows and turned and self.made("matmul", (rows, turned), None, node)
        if found and len(node.args) == 3:
            found = self.made("add", (found, node.args[2]), None, node)
        return self.op("reshape", (found,), ShapeAttrs(node.outs[0].tensor.shape), node) if found else None

    def elementwise(self, node: Op) -> Sequence[Value] | None:
        """An elementwise operator on rows, where an operand is there as rows."""
        if not TABLE[node.op].broadcasts or len(node.outs) != 1 or not isinstance(node.outs[0].annotation, Tensor):
            return None
        out = node.outs[0].tensor
        if len(out.shape) == 3:  # one spatial dim: the image is its rows
            return None
        if not any(a in self.flat and a.tensor.shape == out.shape for a in node.args):
            return None
        rows = [self.operand(a, out.shape, node) for a in node.args]
        given = tuple(a for a in rows if a is not None)
        found = self.made(node.op, given, node.attrs, node) if len(given) == len(rows) else None
        return None if found is None else self.back(found, out, node)

    def operand(self, value: Value, image: Shape, node: Op) -> Value | None:
        """An operand that is broadcast to an image, as one that is broadcast to its rows."""
        if not isinstance(value.annotation, Tensor) or not value.tensor.shape:
            return value
        shape = value.tensor.shape
        if shape == image:
            return self.row(value, _flat(image), node)
        spatial = len(image) - 2
        ones = len(shape) >= spatial and all(isinstance(e, Const) and e.value == 1 for e in shape[-spatial:])
        return self.reshaped(value, (*shape[:-spatial], const(1)), node) if ones else None

    def row(self, value: Value, shape: Shape, node: Op) -> Value | None:
        """An image as rows."""
        if value not in self.flat:
            made = self.reshaped(value, shape, node)
            if made is None:
                return None
            self.flat[value] = made
        return self.flat[value]

    def back(self, rows: Value, image: Tensor, node: Op) -> Sequence[Value] | None:
        """Rows as the image that they are, in place of the node."""
        found = (rows,) if rows.annotation == image else self.op("reshape", (rows,), ShapeAttrs(image.shape), node)
        if found is not None:
            self.flat[found[0]] = rows
        return found

    def reshaped(self, value: Value, shape: Shape, node: Op) -> Value | None:
        return value if value.tensor.shape == shape else self.made("reshape", (value,), ShapeAttrs(shape), node)

    def made(self, name: str, args: Sequence[Value], attrs: Any, node: Op) -> Value | None:
        found = self.make(name, args, attrs, node)
        return None if found is None else found[0]


def _in_blocks(weight: Value) -> bool:
    """Whether what a convolution reads or makes will lie in blocks of channels (`lower/layout/layout_nchwc.py`), which are no rows."""
    return any(isinstance(n, Const) and n.value % CHANNELS == 0 for n in weight.tensor.shape[:2])


def _side_by_side(attrs: ConvTransposeAttrs, kernel: tuple[int, ...], rank: int) -> bool:
    """Whether the windows of a transposed convolution fill its result, and none meets another."""
    padded = any(not isinstance(p, Const) or p.value != 0 for pair in attrs.padding for p in pair)
    return len(kernel) == rank and kernel == attrs.stride and attrs.groups == 1 and not padded and not any(attrs.output_padding)


def _flat(image: Shape) -> Shape:
    return (*image[:2], simplify(product(image[2:])))


def _is_pointwise(node: Op) -> bool:
    """Whether windows are single elements, and each element is one; 16-bit floats round once more."""
    x, weight, attrs = node.args[0].tensor, node.args[1].tensor, node.attrs
    assert isinstance(attrs, ConvAttrs)
    ones = all(isinstance(e, Const) and e.value == 1 for e in weight.shape[2:])
    plain = all(s == 1 for s in attrs.stride) and all(isinstance(p, Const) and p.value == 0 for pair in attrs.padding for p in pair)
    return ones and plain and attrs.groups == 1 and accumulator(x.dtype) is x.dtype
