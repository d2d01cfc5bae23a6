"""Buffers on the stack: there is a limit for all of a program together, which the verifier and the primitives know."""

from __future__ import annotations

import numpy as np
import pytest

import pliant
from pliant import Out, Tensor, alloc, f32, kernel
from pliant.codegen.llvm import generate
from pliant.loop.buffer import MOST_STACK
from pliant.loop.verify import verify_written
from pliant.schedule import Schedule
from pliant.support.errors import Error, ScheduleError, UnsupportedError
from pliant.target import target
from schedule_kernels import parse

SUMS = """
@kernel
def f(x: Tensor[f32, {rows}, 64], y: Out[f32, {rows}]) -> None:
    for i, k in grid({rows}, 64):
        with block("y", "SR", i, k) as (vi, vk):
            with init():
                y[vi] = 0.0
            y[vi] += x[vi, vk]
"""


def test_a_program_says_how_much_it_would_take() -> None:
    text = """
@kernel
def f(x: Tensor[f32, 4], y: Out[f32, 4]) -> None:
    t = alloc(({size},), f32, scope="stack")
    u = alloc((16,), f32, scope="{scope}")
    for i in serial(4):
        t[i] = x[i]
        u[i] = t[i]
        y[i] = u[i]
"""
    most = MOST_STACK // 4
    for scope in ("stack", "register"):
        verify_written(parse(text.format(size=most - 16, scope=scope)))
        with pytest.raises(Error, match="buffers on the stack take 131,076 bytes with `u`, of 131,072 at most"):
            verify_written(parse(text.format(size=most - 15, scope=scope)))
    verify_written(parse(text.format(size=most - 16, scope="workspace")))


@kernel(scheduled=True)
def through_the_stack(x: Tensor[f32, 30000], y: Out[f32, 30000]) -> None:
    t = alloc((30000,), f32, scope="stack")
    for i in range(30000):
        t[i] = x[i] * 2.0
    for i in range(30000):
        y[i] = t[i] + 1.0


def test_checks_need_no_room_of_the_programs_own() -> None:
    """The bytes that checked mode has beside each element are not the program's."""
    x = np.arange(30000, dtype=np.float32)
    np.testing.assert_array_equal(pliant.compile(through_the_stack, checked=True)(x), x * 2 + 1)


def test_a_primitive_does_not_make_what_no_stack_can_hold() -> None:
    s = Schedule(parse(SUMS.format(rows=512)))
    k = s.loops("y")[1]
    s.rfactor("y", k)  # 512 rows of 64 lanes are just what fits
    s = Schedule(parse(SUMS.format(rows=513)))
    k = s.loops("y")[1]
    with pytest.raises(ScheduleError, match="cannot rfactor: buffers on the stack would take 131,328 bytes"):
        s.rfactor("y", k)
    s.rfactor("y", k, scope="workspace")
    with pytest.raises(ScheduleError, match="cannot set_scope: buffers on the stack would take 131,328 bytes"):
        s.set_scope("y", "y_lanes", "stack")


def test_a_vector_loop_of_unknown_length_over_registers_is_refused_in_words() -> None:
    func = parse("""
n = dim("n", max=16)
@kernel
def f(x: Tensor[i32, n, 4], y: Out[i32, n]) -> None:
    t = alloc((16, 4), i32, scope="register")
    for k in unroll(4):
        for i in vector(n):
            t[i, k] = x[i, k]
    for i in range(n):
        y[i] = t[i, 0] + t[i, 3]
""")
    with pytest.raises(UnsupportedError, match="register buffer `t` is indexed by"):
        generate([func], target("native"))
