"""Weight-only quantization of literal weights to 8 or 4 bits, which divides memory and memory traffic by about 4 or 8.

    y = ops.matmul(x, w)                ->      y = ops.block_linear(x, codes of w, "Q8_0")
    e = ops.take(table, ids)            ->      e = ops.block_take(codes of table, ids, "Q8_0")
    y = ops.conv(x, w)                  ->      y = ops.conv(x, ops.dequantize_linear(codes of w, a scale for each result))

Matmuls also round their activations to 8 bits in groups of 32 (see `graph/ops/block_quantized.py`). Weights of convolutions are small in
the file only: they become floats again when the program is loaded. Weights with few elements, or whose reduction dim is not a multiple
of 32, stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import f32
from ...quantization.encode import BLOCK, encode
from ...support.errors import Error
from .. import opset as _ops
from ..node import Function, Node, Op, Value
from ..ops.linalg import PLAIN
from ..rewrite import Rewriter
from .in_place import replacement

ops: Any = _ops  # Any: the types of `ops` describe what users pass, not values inside a pass
FORMATS = {"int8": "Q8_0", "int4": "Q4_1"}  # the formats that `quantization/encode.py` can write
LEAST = 4096  # elements: biases and norm weights are smaller; they save no memory but cost accuracy


def quantize_weights(function: Function, weights: str = "int8", least: int = LEAST) -> Function:
    """Returns the function with its large literal weights quantized; the same object if there are none.

    `weights` is "int8" or "int4"; raises an Error for another. `least` is the number of elements from which on a weight is quantized.
    """
    if weights not in FORMATS:
        raise Error(f'weights="{weights}" is not known', help=f"one of {', '.join(FORMATS)}")
    return _Quantizing(function, FORMATS[weights], least).run()


class _Quantizing(Rewriter):
    """Rewrites matmuls, lookups and convolutions with large literal weights to use block-quantized weights."""

    def __init__(self, function: Function, format: str, least: int) -> None:
        super().__init__(function, lambda r, node: self.changed(node))
        self.format, self.least = format, least
        self.raw: dict[tuple[Value, bool], Value] = {}  # (weight, transposed) -> its codes, so that shared weights are encoded once

    def changed(self, node: Node) -> Sequence[Value] | None:
        """The replacement of a matmul, take or conv with a literal weight; None if it stays."""
        make = {"matmul": self.product, "take": self.rows, "conv": self.convolution}.get(node.op) if isinstance(node, Op) else None
        return replacement(self, node, make) if make is not None and isinstance(node, Op) else None

    def weight(self, value: Value) -> np.ndarray[Any, Any] | None:
        """The array of a literal that should be quantized (f32, finite, at least `least` elements), else None."""
        array = self.array_of(value)
        if array is None or array.dtype != np.float32 or array.size < self.least or not np.isfinite(array).all():
            return None
        return array

    def codes(self, value: Value, array: np.ndarray[Any, Any], turned: bool) -> Value | None:
        """A literal with the encoded bytes of a matrix, or of its transpose if `turned`; None if its rows do not divide into blocks."""
        matrix = array.T if turned else array
        if array.ndim != 2 or matrix.shape[1] % BLOCK:
            return None
        if (value, turned) not in self.raw:
            self.raw[value, turned] = self.constant(encode(self.format, np.ascontiguousarray(matrix)), value.name)
        return self.raw[value, turned]

    def product(self, node: Op) -> Value | None:
        """Returns a matmul with the weight block-quantized; None if it cannot be."""
        x, w = node.args
        attrs, array = node.attrs or PLAIN, self.weight(w)
        if array is None or attrs.transpose_a or x.tensor.dtype is not f32 or len(x.tensor.shape) < 2:
            return None
        raw = self.codes(w, array, not attrs.transpose_b)
        if raw is None:
            return None
        rows = ops.reshape(x, (-1, x.tensor.shape[-1]))
        result: Value = ops.reshape(ops.block_linear(rows, raw, self.format), node.outs[0].tensor.shape)
        return result

    def rows(self, node: Op) -> Value | None:
        """Returns a lookup of rows in a block-quantized table; None if it cannot be."""
        array = self.weight(node.args[0])
        raw = None if array is None or node.attrs.axis != 0 else self.codes(node.args[0], array, False)
        if raw is None:
            return None
        ids = ops.reshape(node.args[1], (-1,))
        result: Value = ops.reshape(ops.block_take(raw, ids, self.format), node.outs[0].tensor.shape)
        return result

    def convolution(self, node: Op) -> Value | None:
        """Returns a convolution whose weight is stored as i8 with one scale per output channel; None if the weight is no large literal."""
        array = self.weight(node.args[1])
        if array is None:
            return None
        scale = np.maximum(np.abs(array).reshape(len(array), -1).max(axis=1) / 127, np.finfo(np.float32).tiny).astype(np.float32)
        codes = np.rint(array / scale.reshape(-1, *[1] * (array.ndim - 1))).astype(np.int8)
        number = ops.dequantize_linear(codes, scale, axis=0)
        result: Value = self.op("conv", (node.args[0], number, *node.args[2:]), node.attrs, node)[0]  # type: ignore[index]
        return result
