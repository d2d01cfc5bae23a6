"""Loops of at most one iteration, which may have none: what begins a reduction runs exactly where the reduction is."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.interp.loop import run_loop
from pliant.loop.parse import parse_module
from pliant.loop.printer import print_func
from pliant.loop.structural import assert_same
from pliant.schedule import Schedule, default_schedule
from pliant.support.errors import ScheduleError
from pliant.target import target
from schedule_kernels import kernel, parse

SUMS = """
n = dim("n")
m = dim("m", max=8)
@kernel
def sums(x: Tensor[i32, n, m], y: Out[i32, n]) -> None:
    for i, k in grid(n, m):
        with block("y", "SR", i, k) as (vi, vk):
            with init():
                y[vi] = 5
            y[vi] += x[vi, vk]
"""


def test_an_empty_sum_is_its_init_where_one_part_holds_all_terms() -> None:
    s = Schedule(parse(SUMS))
    s.split(s.loops("y")[1], 16)
    y = np.full(2, 77, np.int32)
    run_loop(s.program, [np.zeros((2, 0), np.int32), y], [2, 0])
    assert y.tolist() == [5, 5]


def test_parts_that_are_not_there_are_not_begun() -> None:
    s = Schedule(kernel("matmul_i32"))
    i, j, k = s.loops("c")
    s.reorder(k, j, i)
    s.split(i, None, 10, 2, tail="balance")
    s.split(s.loops("c_tail1")[2], 8)
    for n in (0, 1, 20, 21):
        a, b = np.ones((n, 2), np.int32), np.ones((2, 3), np.int32)
        c = np.full((n, 3), 77, np.int32)
        run_loop(s.program, [a, b, c], [n, 2, 3])
        assert (c == 2).all()


def test_lanes_begin_where_a_guard_about_a_loop_of_one_iteration_leaves_them_out() -> None:
    s = Schedule(parse(SUMS))
    i, k = s.loops("y")
    _, k = s.split(k, 2)
    k, _ = s.split(k, 4)
    _, lane = s.split(k, 4)
    s.rfactor("y", lane, i)
    loops = s.loops("y")
    s.fuse(loops[1], loops[2])
    s.cache_write("y", s.loops("y")[0])
    x = np.arange(15, dtype=np.int32).reshape(3, 5)
    y = np.full(3, 77, np.int32)
    run_loop(s.program, [x, y], [3, 5])
    assert y.tolist() == (x.sum(axis=1) + 5).tolist()


def test_a_copy_that_an_init_would_read_before_it_is_made_is_refused() -> None:
    s = Schedule(parse(SUMS.replace("y[vi] = 5", "y[vi] = z[vi]").replace("y: Out", "z: Tensor[i32, n], y: Out")))
    _, k = s.loops("y")
    with pytest.raises(ScheduleError, match="the init of block `y` reads `z` before loop `k`"):
        s.cache_read("y", "z", k)


def test_what_an_init_reads_is_not_computed_after_it() -> None:
    text = SUMS.replace("y[vi] = 5", "y[vi] = t[vi]").replace(
        "    for i, k",
        """    t = alloc((n,), i32)
    for i in serial(n):
        with block("t", "S", i) as vi:
            t[vi] = 3
    for i, k""",
    )
    s = Schedule(parse(text))
    i, k = s.loops("y")
    with pytest.raises(ScheduleError, match="the init of block `y` reads `t` before loop `k`"):
        s.compute_at("t", k)
    s.compute_at("t", i)


def test_what_reads_a_part_is_not_computed_for_all() -> None:
    s = Schedule(kernel("transposed"))
    s.pad("c", 4, 2, 2)
    with pytest.raises(ScheduleError, match="it reads a part of `c_pad`"):
        s.reverse_compute_at("c_cut", s.loops("c")[1])


def test_an_arm_that_is_never_taken_is_not_in_the_text() -> None:
    text = """
n = dim("n")
@kernel
def scan(x: Tensor[f32, 1, n], y: Out[f32, 1, n]) -> None:
    for i, j in grid(1, n):
        with block("y", "OS", i, j) as (vi, vj):
            y[vi, vj] = select(vi > 0, y[vi - 1, vj], 3.0) + x[vi, vj]
"""
    scheduled, _ = default_schedule(parse(text), target("llvm:x86-64-v3"))
    assert_same(scheduled, parse_module(print_func(scheduled))["scan"])
