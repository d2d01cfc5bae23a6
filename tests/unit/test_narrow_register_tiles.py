"""Register tiles that do not fit the machine are cut into groups of columns, and only where the columns are independent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pliant import InOut, Out, Tensor, alloc, dim, f32, kernel, muladd, unroll, vector, view
from pliant.interp.loop import run_loop
from pliant.loop.passes.narrow_register_tiles import narrow_register_tiles
from pliant.loop.stmt import Alloc, For, walk_stmts
from pliant.loop.verify import verify

n = dim("n", max=64)


@kernel(scheduled=True)
def added(a: Tensor[f32, 6, n], b: Tensor[f32, n, 2, 64], c: InOut[f32, 6, 128]) -> None:
    for j in range(2):
        acc = alloc((6, 64), f32, scope="register")
        for r in unroll(6):
            for x in vector(64):
                acc[r, x] = c[r, j * 64 + x]
        for k in range(n):
            for r in unroll(6):
                shift = a[r, k] + 1.0
                for x in vector(64):
                    acc[r, x] = muladd(shift, b[k, j, x], acc[r, x])
        for r in unroll(6):
            for x in vector(64):
                c[r, j * 64 + x] = acc[r, x]


def columns(func: Any) -> list[int]:
    return [s.buffer.shape[1].value for s in walk_stmts(func.body) if isinstance(s, Alloc) and s.buffer.scope == "register"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("lanes", "registers", "width"), [(16, 32, 64), (8, 16, 16), (4, 32, 16), (4, 16, 8), (8, 0, 64), (1, 8, 64)])
def test_a_tile_fits_the_machine_and_computes_the_same(lanes: int, registers: int, width: int) -> None:
    func = narrow_register_tiles(added.func, lanes, registers)
    assert columns(func) == [width]
    assert (func is added.func) == (width == 64) or str(func) == str(added.func)
    verify(func)
    rng = np.random.default_rng(4)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((6, 5), (5, 2, 64), (6, 128)))
    before, after = c.copy(), c.copy()
    run_loop(added.func, [a, b, before])
    run_loop(func, [a, b, after])
    assert after.tobytes() == before.tobytes()
    np.testing.assert_allclose(after, c + (a.astype(np.float64) + 1) @ b.reshape(5, 128), rtol=1e-5, atol=1e-5)


@kernel(scheduled=True)
def neighbors(a: Tensor[f32, 6, 64], c: Out[f32, 6, 64]) -> None:
    acc = alloc((6, 64), f32, scope="register")
    for r in unroll(6):
        for x in vector(64):
            acc[r, x] = a[r, x]
    for r in unroll(6):
        for x in vector(64):
            c[r, x] = acc[r, 63 - x]  # another column


@kernel(scheduled=True)
def shifted(c: InOut[f32, 6, 65]) -> None:
    acc = alloc((6, 64), f32, scope="register")
    for r in unroll(6):
        for x in vector(64):
            acc[r, x] = c[r, x]
    for r in unroll(6):
        for x in vector(64):
            c[r, x + 1] = acc[r, x]  # what the next column reads


@kernel(scheduled=True)
def one_place(a: Tensor[f32, 6, 64], c: Out[f32, 6]) -> None:
    acc = alloc((6, 64), f32, scope="register")
    for r in unroll(6):
        for x in vector(64):
            acc[r, x] = a[r, x]
    for r in unroll(6):
        c[r] = acc[r, 63]  # not in a loop over columns


@kernel(scheduled=True)
def read_as_number(c: InOut[f32, 6, 64]) -> None:
    acc = alloc((6, 64), f32, scope="register")
    for r in unroll(6):
        for x in vector(64):
            acc[r, x] = c[r, x] * 2.0
    for r in unroll(6):
        first = c[r, 0]  # written by the first group of columns
        for x in vector(64):
            c[r, x] = acc[r, x] + first


@kernel(scheduled=True)
def other_name(c: InOut[f32, 6, 64]) -> None:
    backwards = view(c[0, 0], (6, 64))
    acc = alloc((6, 64), f32, scope="register")
    for r in unroll(6):
        for x in vector(64):
            acc[r, x] = backwards[5 - r, x]
    for r in unroll(6):
        for x in vector(64):
            c[r, x] = acc[r, x]


@kernel(scheduled=True)
def half_of_it(a: Tensor[f32, 6, 64], c: Out[f32, 6, 32]) -> None:
    acc = alloc((6, 64), f32, scope="register")
    for r in unroll(6):
        for x in vector(64):
            acc[r, x] = a[r, x]
    for r in unroll(6):
        for x in vector(32):
            c[r, x] = acc[r, x]


@kernel(scheduled=True)
def two_tiles(a: Tensor[f32, 2, 64], c: Out[f32, 2, 64]) -> None:
    sums = alloc((2, 64), f32, scope="register")
    for r in unroll(2):
        for x in vector(64):
            sums[r, x] = a[r, x]
    acc = alloc((6, 64), f32, scope="register")
    for r in unroll(6):
        for x in vector(64):
            acc[r, x] = sums[0, x]
    for r in unroll(2):
        for x in vector(64):
            c[r, x] = acc[r + 4, x] + sums[r, x]


def test_a_tile_beside_another_one_in_registers_stays() -> None:
    assert columns(narrow_register_tiles(two_tiles.func, 8, 16)) == [64, 64]


@pytest.mark.parametrize("tile", [neighbors, shifted, one_place, read_as_number, other_name, half_of_it], ids=lambda k: k.func.name)
def test_columns_that_depend_on_each_other_stay_together(tile: Any) -> None:
    assert columns(narrow_register_tiles(tile.func, 8, 16)) == [64]


def test_a_tile_inside_other_loops_is_found() -> None:
    func = narrow_register_tiles(added.func, 8, 16)
    loops = [s.var.name for s in walk_stmts(func.body) if isinstance(s, For)][:2]
    assert loops == ["j", "group"]
