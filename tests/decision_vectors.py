"""Layers whose schedules have choices, and random vectors of decisions for them.

vector = random_vector("matmul", target("native"), Stream(7))      # {"matmul.dot.tile": (3, 2), "matmul.dot.unroll": 4, …}
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pliant.dtype import f32
from pliant.graph import ops
from pliant.graph.builder import Builder
from pliant.graph.node import CallLoop, Tensor
from pliant.lower.callee import func_of
from pliant.pipeline import compile_as_far_as
from pliant.program import Program
from pliant.schedule.decisions import Drawn, Value
from pliant.schedule.library import default_family
from pliant.support.random import Stream
from pliant.sym.expr import Dim, const
from pliant.target import Target

Shape = tuple[int | str, ...]
# An expression over operators and the shapes of its tensors, by what rule takes it; `n` and `m` are dims. The sizes are those of layers
# of benchmarks, or smaller where these would take long.
LAYERS: dict[str, tuple[str, tuple[Shape, ...], str]] = {
    "matmul": ("matmul(x0, x1)", (("n", 300), (300, 200)), "matmul"),
    "matmul_crowded": ("matmul(x0, x1)", (("n", 512), (512, 512)), "matmul"),
    "matmul_static": ("matmul(x0, x1)", ((70, 96), (96, 130)), "matmul"),
    "matmul_relu": ("relu(matmul(x0, x1))", ((33, 280), (280, 72)), "matmul"),
    "matmul_batch": ("matmul(x0, x1)", ((3, "n", 40), (3, 40, "n")), "matmul"),
    "matmul_batch_cut": ("matmul(x0, x1)", ((4, 17, 96), (4, 96, 150)), "matmul"),
    "one_row": ("matmul(x0, x1)", ((1, 576), (576, 1536)), "one row"),
    "conv": ("conv(x0, x1, padding=1)", ((1, 32, 14, 14), (48, 32, 3, 3)), "convolution"),
    "conv_stem": ("conv(x0, x1, stride=2, padding=1)", ((1, 3, 40, 40), (20, 3, 3, 3)), "windows"),
    "conv_dynamic": ("conv(x0, x1, padding=1)", ((2, 16, "n", 30), (24, 16, 3, 3)), "convolution"),
    "conv_long": ("conv(x0, x1, padding=1)", ((1, 64, 10, 12), (40, 64, 3, 3)), "convolution"),
    "depthwise": ("conv(x0, x1, padding=1, groups=12)", ((1, 12, 28, 28), (12, 1, 3, 3)), "windows"),
    "depthwise_stride": ("conv(x0, x1, stride=2, padding=2, groups=8)", ((1, 8, 30, 26), (8, 1, 5, 5)), "windows"),
    "max_pool": ("max_pool(x0, 3, stride=2)", ((1, 16, 41, 70),), "windows"),
    "gelu": ("gelu(x0)", (("n", 130),), "elementwise"),
    "add_broadcast": ("add(x0, x1)", ((3, 6, 9, 14), (6, 1, 1)), "elementwise"),
    "transpose": ("permute(x0, (0, 2, 1))", ((2, "n", 70),), "transpose"),
    "softmax": ("softmax(x0)", (("n", 300),), "rows"),
    "sum_rows": ("sum(x0, axis=(-1,))", (("n", 5000),), "rows"),
    "sum_all": ("sum(x0)", (("n", 384),), "rows"),
}
SIZES = {"n": 45, "m": 7}


def layer(name: str) -> Any:
    """A layer as a graph function."""
    call, shapes, _ = LAYERS[name]
    builder, dims = Builder("layer"), {name: Dim(name) for name in SIZES}
    tensors = {
        f"x{k}": builder.param(f"x{k}", Tensor(f32, tuple(dims[s] if isinstance(s, str) else const(s) for s in shape)))
        for k, shape in enumerate(shapes)
    }
    with builder:
        result = eval(call, {name: getattr(ops, name) for name in dir(ops)} | tensors)
    return builder.finish([result])


def arrays(name: str, seed: int = 3) -> list[np.ndarray[Any, Any]]:
    """Arguments of a layer."""
    rng = np.random.default_rng(seed)
    sizes = (tuple(SIZES[s] if isinstance(s, str) else s for s in shape) for shape in LAYERS[name][1])
    return [rng.standard_normal(size).astype(np.float32) for size in sizes]


def random_vector(name: str, machine: Target, stream: Stream, may_reorder: bool = False) -> dict[str, Value]:
    """Legal decisions for all kernels of a layer; those that change the order of sums only where they may."""
    program = Program.of(layer(name))
    vector: dict[str, Value] = {}
    for node in compile_as_far_as("promote_sizes", program, machine).function.nodes:
        if isinstance(node, CallLoop):
            drawn = Drawn(node.callee.name, stream, may_reorder)
            default_family(func_of(node.callee), machine, drawn)
            vector.update((f"{node.callee.name}.{name}", value) for name, value in drawn.vector().items())
    return vector
