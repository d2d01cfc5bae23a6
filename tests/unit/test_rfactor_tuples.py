"""Reductions of tuples by lanes: argmax, online softmax, Welford; and inits that lanes may not begin with."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.interp.loop import run_loop
from pliant.loop.stmt import Func
from pliant.schedule import Schedule
from pliant.support.errors import ScheduleError
from schedule_invariant import check_schedule
from schedule_kernels import make_arguments, parse

TEXT = """
from pliant import combine, i64, inf
n = dim("n")
m = dim("m")
@kernel
def f(x: Tensor[f32, n, m], {outs}) -> None:
    for i, k in grid(n, m):
        with block("y", "SR", i, k) as (vi, vk):
            with init():
                {init}
            {targets} = combine(lambda {lambda_}, ({targets}), ({values}))
"""
FIRST = "a < b or a == b and k < i"


def reduction(outs: str, init: list[str], targets: str, lambda_: str, values: str) -> Func:
    stores = "\n                ".join(init)
    return parse(TEXT.format(outs=outs, init=stores, targets=targets, lambda_=lambda_, values=values))


def argmax(index: str = "-1", best: str = "-inf") -> Func:
    return reduction(
        "y: Out[f32, n], p: Out[i64, n]",
        [f"y[vi] = {best}", f"p[vi] = {index}"],
        "y[vi], p[vi]",
        f"a, i, b, k: (select({FIRST}, b, a), select({FIRST}, k, i))",
        "x[vi, vk], vk",
    )


def softmax(least: str = "-1000.0", total: str = "0.0") -> Func:
    return reduction(
        "y: Out[f32, n], s: Out[f32, n]",
        [f"y[vi] = {least}", f"s[vi] = {total}"],
        "y[vi], s[vi]",
        "a, s, b, t: (max(a, b), s * exp(a - max(a, b)) + t * exp(b - max(a, b)))",
        "x[vi, vk], 1.0",
    )


def welford(count: str = "0.0") -> Func:
    return reduction(
        "y: Out[f32, n], a: Out[f32, n], p: Out[f32, n]",
        [f"y[vi] = {count}", "a[vi] = 0.0", "p[vi] = 0.0"],
        "y[vi], a[vi], p[vi]",
        "c, a, p, d, b, q: (c + d, a + (b - a) * (d / max(c + d, 1.0)), p + q + (b - a) * (b - a) * (c * (d / max(c + d, 1.0))))",
        "1.0, x[vi, vk], 0.0",
    )


@pytest.mark.parametrize("func", [argmax(), softmax(), welford()], ids=["argmax", "softmax", "welford"])
def test_lanes(func: Func) -> None:
    s = Schedule(func)
    _, lane = s.split(s.loop("y", "vk"), 4)
    total = s.rfactor("y", lane, s.loop("y", "vi"))
    assert total.block.name == "y_sum" and s.rounding
    check_schedule(func, s)


@pytest.mark.parametrize("func", [argmax(), softmax(), welford()], ids=["argmax", "softmax", "welford"])
def test_lanes_of_a_dynamic_loop(func: Func) -> None:
    s = Schedule(func)
    s.rfactor("y", s.loop("y", "vk"), s.loop("y", "vi"), scope="workspace")
    check_schedule(func, s)


def test_results_are_numpys() -> None:
    s = Schedule(argmax())
    _, lane = s.split(s.loop("y", "vk"), 4)
    s.rfactor("y", lane, s.loop("y", "vi"))
    arguments = make_arguments(argmax(), {"n": 5, "m": 13})
    run_loop(s.program, arguments)
    np.testing.assert_array_equal(arguments[2], arguments[0].argmax(1))
    np.testing.assert_array_equal(arguments[1], arguments[0].max(1))


@pytest.mark.parametrize("func", [welford("3.0"), softmax("0.0", "1.0"), softmax("-1000.0", "2.0")], ids=["count", "one", "two"])
def test_inits_that_are_part_of_the_result(func: Func) -> None:
    s = Schedule(func)
    _, lane = s.split(s.loop("y", "vk"), 4)
    with pytest.raises(ScheduleError, match="each lane would begin with its init, which changes what the combiner has reduced"):
        s.rfactor("y", lane, s.loop("y", "vi"))


def test_an_init_that_no_state_is_below() -> None:
    """A maximum that is at least 0.0 may begin so in every lane."""
    s = Schedule(argmax("-1", "0.0"))
    _, lane = s.split(s.loop("y", "vk"), 4)
    s.rfactor("y", lane, s.loop("y", "vi"))
    check_schedule(argmax("-1", "0.0"), s)
