"""Convolutions at batch 1 as compiled by default, against torch and onnxruntime where installed, and as a part of the machine's FMA rate.

Each contestant runs in a child process of its own, in alternating rounds; the table shows the best and the median of the rounds.

    python benchmarks/conv.py [--rounds 5]        # on as many threads as PLIANT_NUM_THREADS or OMP_NUM_THREADS says, else on two

Inputs and outputs are (n, c, h, w), weights are literals. A depthwise convolution is bound by memory: its part is of the bandwidth.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import pliant
from contest import Times, contest, ratio
from pliant import ops
from pliant.dtype import f32
from pliant.graph.builder import Builder
from pliant.graph.node import Tensor
from pliant.machine_peak import fma_rate, read_bandwidth
from pliant.sym.expr import const

THREADS = int(os.environ.get("PLIANT_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or 2)


class Shape(NamedTuple):
    """Channels in and out, the side of the image, of the window, groups, the stride."""

    channels: int
    out: int
    side: int
    window: int
    groups: int = 1
    stride: int = 1

    @property
    def padding(self) -> int:
        return self.window // 2

    @property
    def side_out(self) -> int:
        return (self.side + 2 * self.padding - self.window) // self.stride + 1

    @property
    def operations(self) -> float:
        return 2.0 * self.out * self.channels // self.groups * self.window**2 * self.side_out**2

    @property
    def bytes(self) -> float:
        return 4.0 * (self.channels * self.side**2 + self.out * self.side_out**2)


SHAPES = {
    "3x3 64->64 56": Shape(64, 64, 56, 3),
    "3x3 128->128 28": Shape(128, 128, 28, 3),
    "1x1 256->64 56": Shape(256, 64, 56, 1),
    "3x3 64->128 80 /2": Shape(64, 128, 80, 3, stride=2),
    "3x3 3->16 320 /2": Shape(3, 16, 320, 3, stride=2),
    "depthwise 3x3 32 112": Shape(32, 32, 112, 3, groups=32),
}


def weights(s: Shape) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    shapes = ((1, s.channels, s.side, s.side), (s.out, s.channels // s.groups, s.window, s.window), (s.out,))
    x, w, b = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    return x, w * 0.1, b


def best_of(call: Callable[[], object], rounds: int = 60) -> float:
    """Milliseconds of the best call."""
    call()
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best * 1e3


def measure_pliant(s: Shape) -> float:
    """Milliseconds of a call of the compiled convolution."""
    x, w, b = weights(s)
    builder = Builder("conv")
    image = builder.param("x", Tensor(f32, tuple(const(n) for n in x.shape)))
    with builder:
        result = ops.conv(image, w, b, stride=s.stride, padding=s.padding, groups=s.groups)
    f = pliant.compile(builder.finish([result]), threads=THREADS)
    y = np.empty((1, s.out, s.side_out, s.side_out), np.float32)
    return best_of(lambda: f(x, out=y))


def measure_torch(s: Shape) -> float:
    """Milliseconds of a call of torch's function."""
    import torch

    torch.set_num_threads(THREADS)
    x, w, b = (torch.from_numpy(a) for a in weights(s))
    with torch.no_grad():
        return best_of(lambda: torch.nn.functional.conv2d(x, w, b, stride=s.stride, padding=s.padding, groups=s.groups))


def measure_onnxruntime(s: Shape) -> float:
    """Milliseconds of a run of a model of the convolution alone."""
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    x, w, b = weights(s)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], strides=[s.stride] * 2, pads=[s.padding] * 4, group=s.groups)
    tensors = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n, shape in (("x", x.shape), ("y", None))]
    graph = helper.make_graph([node], "conv", tensors[:1], tensors[1:], [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return best_of(lambda: session.run(None, {"x": x}))


def measure_limit(s: Shape) -> float:
    """Milliseconds that the operations take at the machine's FMA rate, or its memory takes, whichever is longer."""
    return max(s.operations / fma_rate(THREADS), s.bytes / read_bandwidth(THREADS)) * 1e3


PEERS = {"pliant": measure_pliant, "torch": measure_torch, "onnxruntime": measure_onnxruntime, "limit": measure_limit}
CONTESTANTS: dict[str, Callable[[], float]] = {
    f"{shape}: {peer}": lambda s=s, measure=measure: measure(s) for shape, s in SHAPES.items() for peer, measure in PEERS.items()
}


def report(times: Times) -> None:
    """How many times faster than the peers, and the part of the limit."""
    for shape in SHAPES:
        for peer, what in (("torch", "against torch"), ("onnxruntime", "against onnxruntime"), ("limit", "of the limit")):
            ratio(times, f"{shape}: pliant", f"{shape}: {peer}", f"{shape}, {what}")


if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, unit="ms", report=report)
