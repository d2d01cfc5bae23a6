"""Blocks side by side as one block: its iterators, and what can be done with it."""

from __future__ import annotations

import pytest

from pliant import ScheduleError
from pliant.schedule import Schedule
from schedule_invariant import check_schedule
from schedule_kernels import kernel, parse


def test_rows_of_two_blocks() -> None:
    s = Schedule(kernel("chain"))
    i = s.loop("u", "vi")
    s.compute_at("t", i)
    outer = s.blockize("t", "u")
    assert [(x.var.name, x.kind) for x in outer.block.iters] == [("vi", "S")]
    assert [b.block.name for b in s.child_blocks(outer)] == ["t", "u"]
    s.split(i, 4)
    s.parallel(s.loops(outer)[0])
    check_schedule(kernel("chain"), s)


def test_whole_programs() -> None:
    s = Schedule(kernel("softmax"))
    outer = s.blockize("top", "e", "total", "out")
    assert outer.block.iters == () and s.child_blocks() == (outer,)
    check_schedule(kernel("softmax"), s)


def test_iterations_that_need_earlier_ones_are_ordered() -> None:
    func = parse("""
n = dim("n")
@kernel
def f(x: Tensor[i32, n, 4], out: Out[i32, n, 4]) -> None:
    t = alloc((n, 4), i32)
    for i in serial(n):
        for j in serial(4):
            with block("t", "SS", i, j) as (vi, vj):
                t[vi, vj] = x[vi, vj] * 2
        for j in serial(4):
            with block("out", "SS", i, j) as (vi, vj):
                out[vi, vj] = t[vi, vj] + select(vi > 0, t[vi - 1, vj], 0)
""")
    s = Schedule(func)
    i, _ = s.loops("t")
    outer = s.blockize("t", "out")
    assert [x.kind for x in outer.block.iters] == ["O"]
    s.split(i, 3)
    check_schedule(func, s)


def test_memory_that_is_used_after_the_block_cannot_be_inside_it() -> None:
    func = parse("""
n = dim("n")
@kernel
def f(x: Tensor[i32, n], y: Out[i32, n], z: Out[i32, n]) -> None:
    for i in serial(n):
        with block("y", "S", i) as vi:
            y[vi] = x[vi] + 1
    t = alloc((n,), i32)
    for i in serial(n):
        with block("t", "S", i) as vi:
            t[vi] = x[vi] * 2
    for i in serial(n):
        with block("z", "S", i) as vi:
            z[vi] = t[vi] - 3
""")
    s = Schedule(func)
    inner = s.blockize(s.loops("t")[0])  # a user of `t` that is inside, and looked at first
    with pytest.raises(ScheduleError, match="block `z` uses memory that is allocated in it"):
        s.blockize("y", inner)
    s.blockize("y", inner, "z")
    check_schedule(func, s)
