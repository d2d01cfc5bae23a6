"""`Schedule.widen`: fewer roundings, and the same program otherwise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pliant
from pliant.interp.loop import run_loop
from pliant.schedule import Schedule
from pliant.schedule.library import default_schedule
from pliant.target import target
from schedule_kernels import parse

MEAN = """
n = dim("n")
m = dim("m")
@kernel
def mean(x: Tensor[f32, n, m], y: Out[f32, n]) -> None:
    total = alloc((n,), f32)
    for i, k in grid(n, m):
        with block("total", "SR", i, k) as (vi, vk):
            with init():
                total[vi] = 0.0
            total[vi] += x[vi, vk]
    for i in range(n):
        with block("y", "S", i) as vi:
            y[vi] = total[vi] / cast(f32, m)
"""


def rows(m: int) -> np.ndarray:
    return np.random.default_rng(m).random((7, m), np.float32)


@pytest.mark.parametrize("m", [1, 3, 1000])
def test_blocks_that_are_both_wide_round_once(m: int) -> None:
    """A mean whose sum and quotient are in f64 is the float that is nearest to numpy's in f64."""
    s = Schedule(parse(MEAN))
    s.widen("total")
    s.widen("y", buffer=False)
    x, y = rows(m), np.empty(7, np.float32)
    run_loop(s.func, [x, y])
    np.testing.assert_array_equal(y, (x.astype(np.float64).cumsum(1)[:, -1] / m).astype(np.float32))
    np.testing.assert_array_equal(pliant.compile(s)(x), y)


@pytest.mark.parametrize("order", [("total", "y"), ("y", "total")])
def test_the_order_of_two_widenings_does_not_matter(order: tuple[str, str]) -> None:
    s, other = Schedule(parse(MEAN)), Schedule(parse(MEAN))
    for name in order:
        s.widen(name, buffer=name == "total")
    other.widen("total")
    other.widen("y", buffer=False)
    assert str(s.program) == str(other.program)


def test_a_reader_that_is_not_wide_rounds_what_it_reads() -> None:
    s = Schedule(parse(MEAN))
    s.widen("total")
    x, y = rows(1000), np.empty(7, np.float32)
    run_loop(s.func, [x, y])
    np.testing.assert_array_equal(y, x.astype(np.float64).cumsum(1)[:, -1].astype(np.float32) / np.float32(1000))
    assert list(s.rounding) == ["block `total` computes in f64"]


def test_machines_without_f64_sum_in_f32_alone() -> None:
    """They sum in more levels of parts: their error is in the same class."""
    small = replace(target("native"), has_f64=False)
    func, _ = default_schedule(parse(MEAN), small)
    assert "f64" not in str(func)
    assert "f64" in str(default_schedule(parse(MEAN), target("native"))[0])
    x, y = rows(100_000), np.empty(7, np.float32)
    run_loop(func, [x, y], [{"n": 7, "m": 100_000}[v.name] for v in func.symbols])
    np.testing.assert_allclose(y, x.astype(np.float64).mean(1), rtol=3e-7)
