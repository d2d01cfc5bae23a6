"""Elementwise programs with short rows: the loop around a row stays a loop, so that its indices are no quotients."""

from __future__ import annotations

import numpy as np
import pytest

from native_loops import Lifted
from pliant.loop.stmt import Func
from pliant.schedule import default_schedule
from pliant.schedule.decisions import Decisions
from pliant.target import target
from schedule_kernels import parse

PERMUTE = """
@kernel
def interleave(x: Tensor[f32, 6, {rows}, 5, 7], y: Out[f32, 6, 5, 7, {rows}]) -> None:
    for i, j, k, l in grid(6, 5, 7, {rows}):
        with block("y", "SSSS", i, j, k, l) as (vi, vj, vk, vl):
            y[vi, vj, vk, vl] = x[vi, vl, vj, vk] + 1.0
"""


def scheduled(rows: int, **values: int) -> tuple[Func, str]:
    kernel = Decisions({f"y.{what}": value for what, value in values.items()}).of_kernel("interleave")
    func, _ = default_schedule(parse(PERMUTE.format(rows=rows)), target("native"), kernel)
    return func, str(func)


@pytest.mark.parametrize("shared", [2, 3])
def test_either_way_gives_the_same_elements(shared: int) -> None:
    func, text = scheduled(2, shared=shared)
    assert ("//" in text) and ("parallel(210)" in text) == (shared == 3)
    x = np.random.default_rng(0).standard_normal((6, 2, 5, 7), dtype=np.float32)
    y = np.empty((6, 5, 7, 2), np.float32)
    assert Lifted([func], level=0).call(func, [x, y], [], threads=2) == 0
    assert np.array_equal(y, x.transpose(0, 2, 3, 1) + np.float32(1))


def test_only_short_rows_keep_a_loop() -> None:
    assert "parallel(30)" in scheduled(2)[1]
    assert "parallel(210)" in scheduled(8)[1]
