"""The default rules of convolutions, windows and transposes: which is taken for what, and native results against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from native_loops import Lifted
from pliant import ops
from pliant.dtype import f32
from pliant.graph.builder import Builder
from pliant.graph.node import CallLoop, Tensor
from pliant.loop.analysis.nests import blocks
from pliant.loop.stmt import Func
from pliant.lower.callee import func_of
from pliant.lower.ops.lower_ops import lower_ops
from pliant.schedule import default_schedule
from pliant.schedule.library.convolution_roles import along_channels
from pliant.schedule.library.layouts import wanted_layouts
from pliant.sym.expr import Dim, const
from pliant.target import target

V3, ZEN4 = target("llvm:x86-64-v3"), target("llvm:znver4")
n, m = Dim("n"), Dim("m")


def program(call: Callable[..., Any], *shapes: tuple[Any, ...]) -> Func:
    builder = Builder("f")
    params = [builder.param(f"x{k}", Tensor(f32, tuple(const(e) if isinstance(e, int) else e for e in s))) for k, s in enumerate(shapes)]
    with builder:
        result = call(*params)
    (node,) = (node for node in lower_ops(builder.finish([result])).nodes if isinstance(node, CallLoop))
    return func_of(node.callee)


def conv(channels: int, out: int, side: Any, window: int, **how: Any) -> Func:
    groups = how.get("groups", 1)
    return program(lambda x, w: ops.conv(x, w, **how), (1, channels, side, side), (out, channels // groups, window, window))


@pytest.mark.parametrize(
    ("func", "rule"),
    [
        (conv(64, 64, 56, 3, padding=1), "convolution: `sum`"),
        (conv(64, 64, n, 3, padding=1), "convolution: `sum`"),
        (conv(64, 128, 80, 3, padding=1, stride=2), "convolution: `sum`"),
        (conv(64, 64, 7, 1), "convolution: `sum`"),
        (conv(3, 16, 320, 3, padding=1, stride=2), "windows: `sum`"),  # few elements are summed: storing them one by one costs as much
        (conv(16, 16, 160, 3, padding=1), "windows: `sum`"),
        (conv(64, 1, 80, 3, padding=1), "windows: `sum`"),
        (conv(32, 32, 112, 3, padding=1, groups=32), "windows: `sum` in tiles of 8x16 in registers, rows with their padding on the stack"),
        (conv(64, 64, 28, 3, padding=1, groups=4), "windows: `sum`"),
        (program(lambda x: ops.max_pool(x, 3, stride=2, padding=1), (1, 8, 56, 56)), "windows: `total`"),
        (program(lambda x: ops.permute(x, (0, 2, 1)), (2, n, m)), "transpose: `permute`"),
        (program(lambda x: ops.permute(x, (0, 2, 1)), (2, 3, 40)), "elementwise: `permute`"),
    ],
    ids=[
        "3x3",
        "dynamic",
        "stride",
        "small images",
        "first",
        "few channels",
        "one channel",
        "depthwise",
        "groups",
        "pool",
        "transpose",
        "thin",
    ],
)
def test_the_rule(func: Func, rule: str) -> None:
    why = default_schedule(func, ZEN4)[1]
    assert rule in why and "not convolution" not in why and "not windows" not in why


def test_sums_have_no_condition() -> None:
    """Padding is a copy: nothing is asked for each product."""
    func, _ = default_schedule(conv(16, 32, 20, 3, padding=1), V3)
    products = [str(b.body) for b in blocks(func.body) if "fma" in str(b.body)]
    assert products and not any("select" in text or "where" in text for text in products)


def test_weights_are_wanted_in_packs_where_lanes_are_channels() -> None:
    deep, shallow = conv(64, 64, 56, 3, padding=1), conv(3, 16, 320, 3, padding=1)
    (layout,) = wanted_layouts(deep, ZEN4).values()
    assert str(layout) == "lambda d0, d1, d2, d3: (d0 // 16, d1, d2, d3, d0 % 16)"
    assert wanted_layouts(shallow, ZEN4) == {}
    (block,) = (b for b in blocks(shallow.body) if b.name == "sum")
    assert not along_channels(shallow, block, ZEN4)


@pytest.mark.parametrize("sizes", [(16, 16), (32, 48), (17, 33), (15, 40), (40, 3), (0, 5), (1, 1)])
def test_transposes_of_any_size(sizes: tuple[int, int]) -> None:
    func = program(lambda x: ops.permute(x, (0, 2, 1)), (3, n, m))
    scheduled, _ = default_schedule(func, target("native"))
    x = np.random.default_rng(0).standard_normal((3, *sizes)).astype(np.float32)
    y = np.full((3, *sizes[::-1]), 7, np.float32)
    assert Lifted([scheduled], level=0).call(scheduled, [x, y], [dict(zip("nm", sizes, strict=True))[v.name] for v in func.symbols], 2) == 0
    assert np.array_equal(y, x.transpose(0, 2, 1))


def test_a_place_alone_equals_the_place_in_a_row() -> None:
    """The order of a sum does not depend on the tile."""
    func, _ = default_schedule(program(lambda x, w: ops.conv(x, w), (1, 19, n, m), (35, 19, 3, 3)), target("native"))
    native = Lifted([func], level=0)
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((1, 19, 5, 23)).astype(np.float32), rng.standard_normal((35, 19, 3, 3)).astype(np.float32)
    whole = np.empty((1, 35, 3, 21), np.float32)
    sizes = {"n": 5, "m": 23}
    assert native.call(func, [x, w, whole], [sizes[v.name] for v in func.symbols]) == 0
    for at in range(21):
        sizes = {"n": 3, "m": 3}
        one = np.empty((1, 35, 1, 1), np.float32)
        part = np.ascontiguousarray(x[:, :, 1:4, at : at + 3])
        assert native.call(func, [part, w, one], [sizes[v.name] for v in func.symbols]) == 0
        assert one[0, :, 0, 0].tobytes() == whole[0, :, 1, at].tobytes()
