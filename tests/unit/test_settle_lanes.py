"""Which vector loops are lanes: what the pass makes of the others, and that it computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import native_loops
from pliant import InOut, Out, Tensor, alloc, check, dim, f32, i32, kernel, strides, vector, view
from pliant.interp.loop import run_loop
from pliant.loop.buffer import Buffer
from pliant.loop.parse import parse_module
from pliant.loop.passes.settle_lanes import settle_lanes
from pliant.loop.printer import print_func
from pliant.loop.stmt import Check, For, If, walk_stmts
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify

n, m, s = dim("n", max=64), dim("m", max=64), dim("s", max=64)


@kernel(scheduled=True)
def lanes(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for j in vector(n):
        y[j] = x[j] * 2.0


@kernel(scheduled=True)
def checked(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for j in vector(n):
        check(n < 60, "n is {0}", n)
        y[j] = x[j] * 2.0


@kernel(scheduled=True)
def checked_within(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for j in vector(n):
        check(j < 60, "j is {0}", j)
        y[j] = x[j] * 2.0


@kernel(scheduled=True)
def meeting(x: Tensor[i32, n, m], y: InOut[i32, n, m, strides(s, 1)]) -> None:
    for i in range(m):
        for j in vector(n):
            y[j, i] += x[j, i]


@kernel(scheduled=True)
def picked(at: Tensor[i32, n], y: InOut[i32, 64]) -> None:
    for j in vector(n):
        y[at[j]] += 1


@kernel(scheduled=True)
def registers(x: Tensor[f32, 4], y: Out[f32, 4]) -> None:
    acc = alloc((4, 2), f32, scope="register")
    for j in vector(4):
        acc[j, 1] = x[j]
    for j in vector(4):
        y[j] = acc[j, 1]


@kernel(scheduled=True)
def single(x: Tensor[f32, 4], y: Out[f32, 4]) -> None:
    for j in vector(3, 4):
        part = view(x[j], (1,))
        y[j] = part[0]
    for j in vector(2, 2):
        y[j] = 0.0
    for j in vector(3):
        y[j] = x[j]


# What becomes of each vector loop.
EXPECTED = {
    lanes: ["vector"],
    checked: ["vector"],
    checked_within: ["serial"],
    meeting: ["serial", "vector", "serial"],
    picked: ["serial"],
    registers: ["vector"],
    single: ["vector"],
}


@pytest.mark.parametrize("program", EXPECTED, ids=lambda p: p.func.name)
def test_loops_that_cannot_be_lanes_run_one_after_the_other(program: Any) -> None:
    func = program.func
    after = settle_lanes(func)
    verify(after)
    assert_same(after, parse_module(print_func(after))[after.name])
    assert [x.kind for x in walk_stmts(after.body) if isinstance(x, For)] == EXPECTED[program], print_func(after)
    assert settle_lanes(after) is after
    for stride in (8, 0) if program is meeting else (8,):
        results = []
        for run in (lambda v, d: run_loop(func, v, d), lambda v, d: run_loop(after, v, d), lambda v, d: native_loops.run(func, v, d)):
            values, dims = arguments(func, stride)
            run(values, dims)
            results.append([v.tobytes() for v in values])
        assert results[0] == results[1] == results[2]


def arguments(func: Any, stride: int) -> tuple[list[Any], list[int]]:
    random = np.random.default_rng(2)
    sizes = {"n": 11, "m": 5, "s": stride}
    values: list[Any] = []
    for p in func.params:
        assert isinstance(p.value, Buffer)
        shape = [sizes[e.name] if hasattr(e, "name") else e.value for e in p.value.shape]
        if p.value.strides is not None:
            whole = np.zeros(200, np.int32)
            values.append(np.lib.stride_tricks.as_strided(whole, shape, (4 * stride, 4)))
        elif p.value.dtype is i32:
            values.append(random.integers(0, 9, shape).astype(np.int32))
        else:
            values.append(random.normal(size=shape).astype(np.float32))
    return values, [sizes[v.name] for v in func.symbols]


def test_checks_of_all_lanes_are_made_once() -> None:
    after = settle_lanes(checked.func)
    (choice,) = [x for x in walk_stmts(after.body) if isinstance(x, If)]
    assert str(choice.cond) == "n > 0" and isinstance(choice.then, Check)


def test_a_program_whose_loops_are_lanes_is_left_alone() -> None:
    assert settle_lanes(lanes.func) is lanes.func
