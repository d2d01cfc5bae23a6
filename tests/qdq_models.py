"""A residual net of convolutions as ONNX writes it: with floats, and with the same weights as 8-bit codes between QuantizeLinear and
DequantizeLinear, as tools that quantize models leave it.

    model = residual_net(quantized=True, width=64, blocks=(2, 2, 2, 2), size=224)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

SCALE = 4.0 / 127  # of activations, whose deviation is about 1


class _Net:
    def __init__(self, quantized: bool, signed: bool) -> None:
        self.quantized, self.rng = quantized, np.random.default_rng(1)
        self.code = np.int8 if signed else np.uint8
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def literal(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def codes(self, x: str, zero: int) -> str:
        """A tensor through 8-bit codes."""
        if not self.quantized:
            return x
        zero = zero - 128 if self.code is np.int8 else zero
        ends = self.literal(np.float32(SCALE)), self.literal(self.code(zero))
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, *ends), *ends)

    def weight(self, array: Any) -> str:
        """A weight, by codes with a scale for each result."""
        if not self.quantized:
            return self.literal(array.astype(np.float32))
        scale = np.abs(array).reshape(len(array), -1).max(axis=1) / 127
        codes = np.rint(array / scale.reshape(-1, *[1] * (array.ndim - 1))).astype(np.int8)
        zeros = self.literal(np.zeros(len(array), np.int8))
        return self.add("DequantizeLinear", self.literal(codes), self.literal(scale.astype(np.float32)), zeros, axis=0)

    def conv(self, x: str, channels: int, outs: int, kernel: int, stride: int = 1) -> str:
        weight = self.rng.standard_normal((outs, channels, kernel, kernel)) * np.sqrt(1.0 / (channels * kernel * kernel))
        bias = self.literal(self.rng.standard_normal(outs).astype(np.float32) * 0.1)
        pads = [kernel // 2] * 4
        return self.add("Conv", x, self.weight(weight), bias, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)


def residual_net(quantized: bool, width: int, blocks: tuple[int, ...], size: int, signed: bool = False, classes: int = 10) -> Any:
    """The model: a stem, `blocks` residual blocks at each width, the mean of every channel, a classifier."""
    net = _Net(quantized, signed)
    x = net.codes("x", 128)
    x = net.codes(net.add("Relu", net.conv(x, 3, width, 3, 2)), 0)
    x = net.codes(net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), 0)
    channels = width
    for level, count in enumerate(blocks):
        for k in range(count):
            outs, stride = width << level, 2 if level and not k else 1
            y = net.codes(net.add("Relu", net.conv(x, channels, outs, 3, stride)), 0)
            y = net.codes(net.conv(y, outs, outs, 3), 128)
            short = x if channels == outs and stride == 1 else net.codes(net.conv(x, channels, outs, 1, stride), 128)
            x, channels = net.codes(net.add("Relu", net.add("Add", y, short)), 0), outs
    x = net.codes(net.add("Flatten", net.add("GlobalAveragePool", x)), 0)
    out = net.add("Gemm", x, net.weight(net.rng.standard_normal((classes, channels)) / np.sqrt(channels)), transB=1)
    shapes = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, size, size])]
    results = [helper.make_tensor_value_info(out, TensorProto.FLOAT, ["n", classes])]
    graph = helper.make_graph(net.nodes, "residual", shapes, results, net.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
