"""Depthwise convolutions in channel blocks: strips of rows from padded copies on the stack; windows as loops if registers are few."""

from __future__ import annotations

import numpy as np
import pytest

from native_loops import Lifted
from pliant.loop.stmt import Func
from pliant.schedule import default_schedule
from pliant.schedule.decisions import Decisions, OfKernel
from pliant.target import target
from schedule_kernels import parse

LANES = 8
BLOCKS = 3
DEPTHWISE = """
@kernel(layouts={{"x": ("lambda d0, d1, d2, d3: (d1 // 8, d2, d3, d1 % 8)", None),
                  "y": ("lambda d0, d1, d2, d3: (d1 // 8, d2, d3, d1 % 8)", None)}})
def depthwise(x: Tensor[f32, 3, {h}, {w}, 8], k: Tensor[f32, 3, {r}, {r}, 8], y: Out[f32, 3, {p}, {q}, 8]) -> None:
    padded = alloc((3, {h} + 2 * {e}, {w} + 2 * {e}, 8), f32)
    for c, i, j, l in grid(3, {h} + 2 * {e}, {w} + 2 * {e}, 8):
        with block("padded", "SSSS", c, i, j, l) as (vc, vi, vj, vl):
            padded[vc, vi, vj, vl] = select({inside}, x[vc, vi - {e}, vj - {e}, vl], 0.0)
    for c, p, q, l, a, b in grid(3, {p}, {q}, 8, {r}, {r}):
        with block("sum", "SSSSRR", c, p, q, l, a, b) as (vc, vp, vq, vl, va, vb):
            with init():
                y[vc, vp, vq, vl] = 0.0
            y[vc, vp, vq, vl] += padded[vc, vp * {s} + va, vq * {s} + vb, vl] * k[vc, va, vb, vl]
"""


def depthwise(h: int, w: int, r: int, s: int) -> tuple[Func, tuple[int, int]]:
    """A depthwise convolution of images of h by w with windows of r by r at distances s, and the size of its result."""
    e = r // 2
    p, q = (h + 2 * e - r) // s + 1, (w + 2 * e - r) // s + 1
    inside = f"vi - {e} >= 0 and vi - {e} < {h} and vj - {e} >= 0 and vj - {e} < {w}"
    return parse(DEPTHWISE.format(h=h, w=w, r=r, s=s, e=e, p=p, q=q, inside=inside)), (p, q)


def scheduled(func: Func, machine: str, **values: object) -> tuple[Func, str, OfKernel]:
    kernel = Decisions({f"sum.{what}": value for what, value in values.items()}).of_kernel(func.name)
    made, why = default_schedule(func, target(machine), kernel)
    return made, why, kernel


@pytest.mark.parametrize(("h", "w", "r", "s"), [(12, 19, 3, 1), (12, 40, 5, 1), (11, 21, 3, 2), (7, 5, 5, 1), (6, 9, 7, 2)])
def test_all_strips_give_the_bits_of_a_padded_operand(h: int, w: int, r: int, s: int) -> None:
    func, size = depthwise(h, w, r, s)
    _, _, kernel = scheduled(func, "native")
    strips = list(kernel.made["sum.strip"].domain)
    assert strips == [0, *(n for n in range(1, size[0] + 1) if size[0] % n == 0)]  # all fit the stack at these sizes
    rng = np.random.default_rng(0)
    x, k = (rng.standard_normal(shape).astype(np.float32) for shape in ((BLOCKS, h, w, LANES), (BLOCKS, r, r, LANES)))
    results = []
    for strip in strips:
        made, why, _ = scheduled(func, "native", strip=strip)
        assert ("rows with their padding on the stack" in why) == (strip > 0)
        assert ("elementwise: `padded`" in why) == (strip == 0)
        y = np.full((BLOCKS, *size, LANES), np.nan, np.float32)
        assert Lifted([made], level=0).call(made, [x, k, y], [], threads=2) == 0
        results.append(y)
    assert all(np.array_equal(y, results[0]) for y in results)
    padded = np.pad(x.astype(np.float64), ((0, 0), (r // 2, r // 2), (r // 2, r // 2), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (r, r), axis=(1, 2))[:, ::s, ::s]  # [c, p, q, l, a, b]
    np.testing.assert_allclose(results[0], np.einsum("cpqlab,cabl->cpql", windows, k), rtol=1e-5, atol=1e-5)


def test_an_operand_whose_rows_do_not_fit_the_stack_is_padded_in_memory() -> None:
    func, _ = depthwise(8, 400, 5, 1)  # a row of the operand has 12.6 KiB, and a window five
    _, why, kernel = scheduled(func, "llvm:znver3")
    assert tuple(kernel.made["sum.strip"].domain) == (0,)
    assert "elementwise: `padded`" in why


@pytest.mark.parametrize(("machine", "unrolled"), [("llvm:znver3", 0), ("llvm:znver4", 2)])
def test_windows_are_unrolled_where_registers_hold_what_they_share(machine: str, unrolled: int) -> None:
    """A tile of 8 sums and the 12 vectors of a row that its windows of 5 read need more than 16 registers, and fewer than 32."""
    func, _ = depthwise(16, 16, 5, 1)
    _, _, kernel = scheduled(func, machine)
    assert kernel.made["sum.tile"].value == (8, 1)
    assert kernel.made["sum.unroll"].value == unrolled
