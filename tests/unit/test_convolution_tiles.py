"""Register tiles of convolutions: what the model takes fits the registers, in the code too; channels whose number is no constant."""

from __future__ import annotations

import re

import numpy as np
import pytest

from native_loops import Lifted
from pliant.codegen.emit import emit_assembly
from pliant.codegen.llvm import generate
from pliant.loop.stmt import Func
from pliant.lower.host.lift_workspace import lift_workspace
from pliant.schedule import default_schedule
from pliant.schedule.library.accumulate import PRODUCTS
from pliant.target import target
from schedule_kernels import parse

BLOCKED = """
h = dim("h", min=1)
w = dim("w", min=1)
{dims}
@kernel(layouts={{"x": ("lambda d0, d1, d2, d3: (d1 // {lanes}, d2, d3, d1 % {lanes})", None),
                  "y": ("lambda d0, d1, d2, d3: (d1 // {lanes}, d2, d3, d1 % {lanes})", None)}})
def conv(x: Tensor[f32, {inner}, h + 2, w + 2, {lanes}], k: Tensor[f32, {outer}, {inner}, {lanes}, 3, 3, {lanes}],
         y: Out[f32, {outer}, h, w, {lanes}]) -> None:
    for j, p, q, l, c, m, a, b in grid({outer}, h, w, {lanes}, {inner}, {lanes}, 3, 3):
        with block("sum", "SSSSRRRR", j, p, q, l, c, m, a, b) as (vj, vp, vq, vl, vc, vm, va, vb):
            with init():
                y[vj, vp, vq, vl] = 0.0
            y[vj, vp, vq, vl] += x[vc, vp + va, vq + vb, vm] * k[vj, vc, vm, va, vb, vl]
"""


def blocked(lanes: int, outer: str, inner: str, dims: str = "") -> Func:
    """A 3x3 convolution of images in blocks of channels."""
    return parse(BLOCKED.format(lanes=lanes, outer=outer, inner=inner, dims=dims))


def inner_loops(func: Func, machine: str) -> list[str]:
    """The code of the loops that multiply and add, one round of each."""
    to = target(machine)
    text = emit_assembly(generate([lift_workspace(func)[0]], to).text, to)
    rounds = (part.split("\tj", 1)[0] for part in re.split(r"^\.LBB\w+:", text, flags=re.MULTILINE))
    return [code for code in rounds if code.count("vfmadd") > 1]


@pytest.mark.parametrize(("machine", "lanes"), [("llvm:znver3", 8), ("llvm:znver4", 16)])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 6, 8])
def test_tiles_stay_in_registers(machine: str, lanes: int, channels: int) -> None:
    """No loop writes a vector to the stack; the widest does as many products as the tile has sums."""
    func, why = default_schedule(blocked(lanes, str(channels), "4"), target(machine))
    rows, columns = map(int, re.findall(r"tiles of (\d+)x(\d+) in registers", why)[0])
    loops = inner_loops(func, machine)
    assert max(code.count("vfmadd") for code in loops) == rows * columns // lanes
    assert not any(re.search(r"^\tv\w+\t%[yz]mm\d+, .*\(%rsp", code, flags=re.MULTILINE) for code in loops)
    assert "by the model" not in why  # the terms are with the decision


DIMS = 'jb = dim("jb", min=1, multiple_of={})\ncb = dim("cb", min=1)'


@pytest.mark.parametrize(("multiple", "vectors"), [(1, {1}), (2, {2}), (3, {3}), (4, {2, 4})])
def test_panels_divide_a_number_of_channels_that_is_no_constant(multiple: int, vectors: set[int]) -> None:
    _, why = default_schedule(blocked(16, "jb", "cb", DIMS.format(multiple)), target("llvm:znver4"))
    assert why.startswith("convolution: `sum`")
    (columns,) = re.findall(r"tiles of \d+x(\d+) in registers", why)
    assert int(columns) // 16 in vectors


CHANNELS = {"bounded": DIMS.format(2).replace("min=1)", "min=1, max=3)"), "unbounded": DIMS.format(2)}


@pytest.mark.parametrize("channels", CHANNELS)
def test_channels_that_are_no_constants_give_the_same_numbers(channels: str) -> None:
    """About those of numpy; exactly those of the convolution for these channels alone where both sums are known to be short."""
    lanes = target("native").vector_bits // 32
    some, _ = default_schedule(blocked(lanes, "jb", "cb", CHANNELS[channels]), target("native"))
    these, _ = default_schedule(blocked(lanes, "4", "3"), target("native"))
    rng = np.random.default_rng(0)
    height, width = 3, 13
    x, k = (rng.standard_normal(s).astype(np.float32) for s in ((3, height + 2, width + 2, lanes), (4, 3, lanes, 3, 3, lanes)))
    results = []
    for func in (some, these):
        y = np.empty((4, height, width, lanes), np.float32)
        sizes = {"h": height, "w": width, "jb": 4, "cb": 3}
        assert Lifted([func], level=0).call(func, [x, k, y], [sizes[v.name] for v in func.symbols], threads=2) == 0
        results.append(y)
    if channels == "bounded" and 3 * lanes * 9 <= PRODUCTS.long:
        assert np.array_equal(*results)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))  # [c, p, q, m, a, b]
    truth = np.einsum("cpqmab,jcmabl->jpql", windows.astype(np.float64), k)
    for y in results:
        np.testing.assert_allclose(y, truth, rtol=1e-4, atol=1e-4)


POINTWISE = """
@kernel(layouts={{"x": ("lambda d0, d1, d2, d3: (d1 // 8, d2, d3, d1 % 8)", None)}})
def conv(x: Tensor[f32, 3, {h}, {w}, 8], k: Tensor[f32, 12, 24, 8], y: Out[f32, 96, {h}, {w}]) -> None:
    for j, p, q, c, m in grid(96, {h}, {w}, 3, 8):
        with block("sum", "SSSRR", j, p, q, c, m) as (vj, vp, vq, vc, vm):
            with init():
                y[vj, vp, vq] = 0.0
            y[vj, vp, vq] += x[vc, vp, vq, vm] * k[vj // 8, vc * 8 + vm, vj % 8]
"""


@pytest.mark.parametrize(("h", "w", "tile"), [(160, 160, "8x8"), (32, 64, "8x8"), (160, 152, "4x24")])
def test_stores_to_planes_of_whole_pages_stay_in_one_set_of_the_cache(h: int, w: int, tile: str) -> None:
    """160 by 160 floats are 25 pages and 32 by 64 are two: all planes are in one set, which has 8 lines. 160 by 152 are no whole pages."""
    _, why = default_schedule(parse(POINTWISE.format(h=h, w=w)), target("llvm:znver3"))
    assert f"in tiles of {tile} in registers" in why
