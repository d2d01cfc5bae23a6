"""Batches of products whose columns are no whole panels: every element, for any number of batches, and what threads share."""

from __future__ import annotations

import numpy as np
import pytest

from native_loops import Lifted
from pliant.schedule import default_schedule
from pliant.schedule.library.layouts import wanted_layouts
from pliant.schedule.primitives.layout import transform_layout
from pliant.target import target
from pliant.target.instructions import INSTRUCTIONS
from schedule_kernels import make_arguments, pack, parse

TEXT = """
g = dim("g")
n = dim("n")
@kernel
def product(a: Tensor[f32, g, n, 7], b: Tensor[f32, 7, COLUMNS], c: Out[f32, g, n, COLUMNS]) -> None:
    for x, i, j, k in grid(g, n, COLUMNS, 7):
        with block("c", "SSSR", x, i, j, k) as (vx, vi, vj, vk):
            with init():
                c[vx, vi, vj] = 0.0
            c[vx, vi, vj] += a[vx, vi, vk] * b[vk, vj]
"""


def test_several_batches_are_shared_out_alone() -> None:
    text = TEXT.replace("[f32, g, ", "[f32, g, 3, ").replace("x, i, j, k in grid(g, ", "x, y, i, j, k in grid(g, 3, ")
    text = text.replace("SSSR", "SSSSR").replace("x, i, j, k) as (vx, ", "x, y, i, j, k) as (vx, vy, ").replace("[vx, ", "[vx, vy, ")
    for batches in ("3", "h"):
        other = ("h = dim('h')\n" if batches == "h" else "") + text.replace("3, ", f"{batches}, ").replace("COLUMNS", "131")
        func, why = default_schedule(parse(other), target("llvm:x86-64-v3"))
        assert why.startswith("matmul: ")
        assert [" in parallel(" in line for line in str(func).splitlines() if line.startswith("    for ")] == [True]


@pytest.mark.parametrize("columns", [5, 16, 64, 70, 131])
@pytest.mark.parametrize("machine", ["llvm:x86-64-v3", "llvm:znver4", "native"])
def test_dot_products_are_shared_out_with_what_is_left_of_columns(columns: int, machine: str) -> None:
    """Panels of each size are a loop of their own, which all threads share: a batch may be alone."""
    text = TEXT.replace("COLUMNS", str(columns)).replace("7", "12").replace("c[vx, vi, vj] = 0.0", "c[vx, vi, vj] = 0")
    text = text.replace("a[vx, vi, vk] * b[vk, vj]", "cast(i32, a[vx, vi, vk]) * cast(i32, b[vk, vj])")
    text = text.replace("Tensor[f32, g", "Tensor[i8, g").replace("Tensor[f32, 12", "Tensor[i8, 12").replace("Out[f32", "Out[i32")
    plain, to = parse(text), target(machine)
    multiplies = any(i.is_on(to) and ".dot_s8s8" in i.name for i in INSTRUCTIONS.values())
    assert multiplies or machine == "native"
    for buffer, layout in wanted_layouts(plain, to).items():
        func, why = default_schedule(transform_layout(plain, buffer.name, layout, 0)[0], to)
        assert why.startswith("dot products: " if multiplies else "matmul: ")
        outermost = [line for line in str(func).splitlines() if line.startswith("    for ")]
        assert all(" in parallel(" in line for line in outermost)
        if machine == "native":
            a, b, c = make_arguments(plain, {"g": 3, "n": 5})
            sizes = [{"g": 3, "n": 5}[v.name] for v in func.symbols]
            given = pack(func, [a, b, c], sizes)
            assert Lifted([func], level=0).call(func, given, sizes, threads=2) == 0
            assert np.array_equal(given[-1], a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("columns", ["5", "131", "m"])
def test_batches_and_panels_are_shared_out(columns: str) -> None:
    text = ("m = dim('m')\n" if columns == "m" else "") + TEXT.replace("COLUMNS", columns)
    func, why = default_schedule(parse(text), target("llvm:x86-64-v3"))
    assert why.startswith("matmul: ")
    outermost = [line for line in str(func).splitlines() if line.startswith("    for ")]
    assert len(outermost) == (2 if columns == "131" else 1)
    assert all(" in parallel(" in line for line in outermost)
    native = Lifted([func], level=1)
    for batches, rows in ((1, 13), (3, 1), (2, 8), (0, 4)):
        sizes = {"g": batches, "n": rows, "m": 77}
        a, b, c = make_arguments(func, sizes)
        assert native.call(func, [a, b, c], [sizes[v.name] for v in func.symbols], threads=2) == 0
        np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
