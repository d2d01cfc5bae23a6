"""Literal weights as small codes: a program that takes a quarter or an eighth of the memory, and reads as much less.

    y = ops.matmul(x, w)                ->      y = ops.block_linear(x, codes of w, "Q8_0")
    e = ops.take(table, ids)            ->      e = ops.block_take(codes of table, ids, "Q8_0")
    y = ops.conv(x, w)                  ->      y = ops.conv(x, ops.dequantize_linear(codes of w, a scale for each result))

Products round their operand to 8 bits in groups of 32, as `graph/ops/block_quantized.py` tells; weights of convolutions are small in the
file, and floats again once a program is loaded. Weights with few elements, or whose summed dim is no multiple of 32, stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import f32
from ...quantization.encode import BLOCK, encode
from ...support.errors import Error
from .. import ops as _ops
from ..node import Function, Node, Op, Value
from ..operators import building
from ..ops.linalg import PLAIN
from ..rewrite import Rewriter
from .in_place import InPlace

ops: Any = _ops  # its types are about dtypes of what users write
FORMATS = {"int8": "Q8_0", "int4": "Q4_1"}
LEAST = 4096  # elements of a weight


def quantize_weights(function: Function, weights: str = "int8", least: int = LEAST) -> Function:
    """The function with its literal weights as codes; the same object where there are none."""
    if weights not in FORMATS:
        raise Error(f'weights="{weights}" is not known', help=f"one of {', '.join(FORMATS)}")
    return _Quantizing(function, FORMATS[weights], least).run()


class _Quantizing(Rewriter):
    def __init__(self, function: Function, format: str, least: int) -> None:
        super().__init__(function, lambda r, node: self.changed(node))
        self.format, self.least = format, least
        self.raw: dict[tuple[Value, bool], Value] = {}  # the codes of weights that were seen

    def changed(self, node: Node) -> Sequence[Value] | None:
        make = {"matmul": self.product, "take": self.rows, "conv": self.convolution}.get(node.op) if isinstance(node, Op) else None
        if make is None or not isinstance(node, Op):
            return None
        with building(InPlace(self, node)):  # type: ignore[arg-type]
            try:
                found = make(node)
            except Error:
                return None
        return None if found is None or found.annotation != node.outs[0].annotation else (found,)

    def weight(self, value: Value) -> np.ndarray[Any, Any] | None:
        """A literal that is worth it: f32, finite, not small."""
        array = self.array_of(value)
        if array is None or array.dtype != np.float32 or array.size < self.least or not np.isfinite(array).all():
            return None
        return array

    def codes(self, value: Value, array: np.ndarray[Any, Any], turned: bool) -> Value | None:
        """The bytes of a matrix, or of its transpose."""
        matrix = array.T if turned else array
        if array.ndim != 2 or matrix.shape[1] % BLOCK:
            return None
        if (value, turned) not in self.raw:
            self.raw[value, turned] = self.constant(encode(self.format, np.ascontiguousarray(matrix)), value.name)
        return self.raw[value, turned]

    def product(self, node: Op) -> Value | None:
        x, w = node.args
        attrs, array = node.attrs or PLAIN, self.weight(w)
        if array is None or attrs.transpose_a or x.tensor.dtype is not f32 or len(x.tensor.shape) < 2:
            return None
        raw = self.codes(w, array, not attrs.transpose_b)
        if raw is None:
            return None
        rows = ops.reshape(x, (-1, x.tensor.shape[-1]))
        found: Value = ops.reshape(ops.block_linear(rows, raw, self.format), node.outs[0].tensor.shape)
        return found

    def rows(self, node: Op) -> Value | None:
        array = self.weight(node.args[0])
        raw = None if array is None or node.attrs.axis != 0 else self.codes(node.args[0], array, False)
        if raw is None:
            return None
        ids = ops.reshape(node.args[1], (-1,))
        found: Value = ops.reshape(ops.block_take(raw, ids, self.format), node.outs[0].tensor.shape)
        return found

    def convolution(self, node: Op) -> Value | None:
        array = self.weight(node.args[1])
        if array is None:
            return None
        scale = np.maximum(np.abs(array).reshape(len(array), -1).max(axis=1) / 127, np.finfo(np.float32).tiny).astype(np.float32)
        codes = np.rint(array / scale.reshape(-1, *[1] * (array.ndim - 1))).astype(np.int8)
        number = ops.dequantize_linear(codes, scale, axis=0)
        found: Value = self.op("conv", (node.args[0], number, *node.args[2:]), node.attrs, node)[0]  # type: ignore[index]
        return found
