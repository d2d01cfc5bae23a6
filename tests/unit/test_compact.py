"""Buffers that shrink to what an iteration uses: which, how far, and that threads may share the loop then."""

from __future__ import annotations

import pytest

from pliant.loop.verify import verify
from pliant.schedule import Schedule
from pliant.support.errors import Error, ScheduleError
from schedule_invariant import check_schedule
from schedule_kernels import kernel, parse

PYRAMID = """
n = dim("n")
@kernel
def pyramid(x: Tensor[i32, n * 4 + 2, 8], out: Out[i32, n * 4, 8]) -> None:
    t = alloc((n * 4 + 2, 8), i32)
    for i, j in grid(n * 4 + 2, 8):
        with block("t", "SS", i, j) as (vi, vj):
            t[vi, vj] = x[vi, vj] * 3
    for i, j in grid(n * 4, 8):
        with block("out", "SS", i, j) as (vi, vj):
            out[vi, vj] = t[vi, vj] + t[vi, 7 - vj]
"""


def shapes(s: Schedule) -> list[str]:
    return [line.strip() for line in str(s.program).splitlines() if "= alloc(" in line]


def test_rows_of_any_length() -> None:
    s = Schedule(kernel("chain"))
    i = s.loop("out", "vi")
    s.compute_at("u", i)
    s.compute_at("t", i)
    for name in ("u", "t"):
        s.compact(name, name, i)
    assert shapes(s) == ["t = alloc((1, m), f32)", "u = alloc((1, m), f32)"]
    s.parallel(i)
    check_schedule(kernel("chain"), s)


def test_tiles_of_constant_size() -> None:
    func = parse(PYRAMID)
    s = Schedule(func)
    i_0, _ = s.split(s.loop("out", "vi"), None, 4)
    s.compute_at("t", i_0)
    s.compact("out", "t", i_0, scope="stack")
    assert shapes(s) == ['t = alloc((4, 8), i32, scope="stack")']
    s.parallel(i_0)
    check_schedule(func, s)


def test_sums_with_their_init_apart() -> None:
    s = Schedule(kernel("softmax"))
    i = s.loop("out", "vi")
    for name in ("total", "e", "top"):
        s.compute_at(name, i)
    for name in ("total", "e", "top"):
        s.compact("out" if name != "top" else "e", name, i)
    s.decompose_reduction("total", s.loop("total", "vk"))
    s.parallel(i)
    check_schedule(kernel("softmax"), s)


def test_what_earlier_iterations_have_written_stays() -> None:
    """A row of the sums is read an iteration later: nothing may shrink."""
    func = parse("""
n = dim("n")
@kernel
def f(x: Tensor[i32, n], out: Out[i32, n]) -> None:
    t = alloc((n,), i32)
    for i in serial(n):
        with block("t", "S", i) as vi:
            t[vi] = x[vi]
        with block("out", "S", i) as vi:
            out[vi] = t[vi] + select(vi > 0, t[vi - 1], 0)
""")
    s = Schedule(func)
    with pytest.raises(ScheduleError, match="block `out` may read what block `t` has not written in the same iteration"):
        s.compact("out", "t", s.loops("out")[0])


def test_sums_that_go_on() -> None:
    """The init runs before the loop, where the buffer would not be yet."""
    func = parse("""
@kernel
def f(x: Tensor[i32, 8], out: Out[i32]) -> None:
    t = alloc((), i32)
    for i in serial(8):
        with block("t", "R", i) as vi:
            with init():
                t[()] = 0
            t[()] += x[vi]
    for i in serial(8):
        with block("out", "R", i) as vi:
            with init():
                out[()] = 0
            out[()] += x[vi]
""")
    s = Schedule(func)
    with pytest.raises(ScheduleError, match="the reduction of block `t` goes on in other iterations of `i`"):
        s.compact("t", "t", s.loop("t", "vi"))


def test_blocks_that_take_turns() -> None:
    s = Schedule(kernel("chain"))
    i, j = s.loops("u")
    s.compute_at("t", j)
    with pytest.raises(ScheduleError, match="blocks `t` and `u` take turns"):
        s.compact("u", "t", i)
    s.compact("u", "t", j, scope="register")
    check_schedule(kernel("chain"), s)


@pytest.mark.parametrize("first", ["copy", "threads"])
def test_registers_are_not_shared_by_threads(first: str) -> None:
    """A register buffer of an outer loop is not seen by the threads of an inner one: native code read something else."""
    s = Schedule(kernel("rms_norm"))
    i, j = s.loops("out")
    cache = lambda: s.cache_read("out", "ss", i, scope="register")  # noqa: E731
    threads = lambda: s.parallel(j)  # noqa: E731
    one, other = (cache, threads) if first == "copy" else (threads, cache)
    one()
    with pytest.raises(ScheduleError, match="threads share memory and no registers"):
        other()


def test_the_verifier_refuses_registers_of_other_threads() -> None:
    func = parse("""
n = dim("n")
@kernel
def f(x: Tensor[i32, n], out: Out[i32, n]) -> None:
    t = alloc((1,), i32, scope="register")
    t[0] = 3
    for i in parallel(n):
        out[i] = x[i] + t[0]
""")
    with pytest.raises(Error, match="register buffer `t` is used in parallel loop `i`, and allocated outside of it"):
        verify(func)
