"""Buffers that roll: rows are computed once, and kept as long as a window reads them."""

from __future__ import annotations

import pytest

from pliant.schedule import Schedule
from pliant.support.errors import ScheduleError
from schedule_invariant import check_schedule
from schedule_kernels import kernel, parse

WINDOWS = """
n = dim("n")
m = dim("m")
@kernel
def f(x: Tensor[i32, n * {step} + {window}, m], out: Out[i32, n, m]) -> None:
    t = alloc((n * {step} + {window}, m), i32)
    for i, j in grid(n * {step} + {window}, m):
        with block("t", "SS", i, j) as (vi, vj):
            t[vi, vj] = x[vi, vj] * 3 + cast(i32, vi)
    for i, j, r in grid(n, m, {window}):
        with block("out", "SSR", i, j, r) as (vi, vj, vr):
            with init():
                out[vi, vj] = 0
            out[vi, vj] += t[vi * {step} + vr, vj] * cast(i32, vr + 1)
"""


@pytest.mark.parametrize(("step", "window"), [(1, 2), (1, 3), (2, 3), (2, 5), (3, 4)])
def test_windows_that_overlap(step: int, window: int) -> None:
    func = parse(WINDOWS.format(step=step, window=window))
    s = Schedule(func)
    i = s.loops("out")[0]
    s.rolling_buffer("t", i)
    assert f"t = alloc(({window}, m), i32)" in str(s.program)
    assert [x.kind for x in s.block("t").block.iters] == ["O", "S"]
    check_schedule(func, s)
    with pytest.raises(ScheduleError, match="feeds an ordered iterator"):
        s.parallel(i)
    s.split(i, 4)
    check_schedule(func, s)


def test_rows_of_a_padded_image() -> None:
    s = Schedule(kernel("conv"))
    s.rolling_buffer("p", s.loops("out")[0])
    assert "p = alloc((3, 3), i32)" in str(s.program)
    check_schedule(kernel("conv"), s)


def test_results_at_ordered_places_are_not_cached() -> None:
    """The copy of a result goes through S iterators alone: it would not know which row it is."""
    s = Schedule(kernel("conv"))
    s.rolling_buffer("p", s.loops("out")[0])
    with pytest.raises(ScheduleError, match="which is no S iterator"):
        s.cache_write("p_first")
