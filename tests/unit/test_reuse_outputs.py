"""Workspace in the memory of an output: where it is right, and where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np

from pliant import Out, Tensor, alloc, block, dim, exp, f32, init, kernel
from pliant.interp.loop import run_loop
from pliant.loop.stmt import Alloc, Func, walk_stmts
from pliant.lower.host.reuse_outputs import reuse_outputs

n = dim("n")
m = dim("m")


@kernel
def rows(x: Tensor[f32, n, m], y: Out[f32, n, m]) -> None:
    e = alloc((n, m), f32)
    total = alloc((n,), f32)
    for i in range(n):
        for j in range(m):
            with block("e", "SS", i, j) as (vi, vj):
                e[vi, vj] = exp(x[vi, vj])
        for k in range(m):
            with block("total", "SR", i, k) as (vi, vk):
                with init():
                    total[vi] = 0.0
                total[vi] += e[vi, vk]
        for j in range(m):
            with block("y", "SS", i, j) as (vi, vj):
                y[vi, vj] = e[vi, vj] / total[vi]


@kernel
def shifted(x: Tensor[f32, n, m], y: Out[f32, n, m]) -> None:
    e = alloc((n, m), f32)
    for i in range(n):
        for j in range(m):
            with block("e", "SS", i, j) as (vi, vj):
                e[vi, vj] = exp(x[vi, vj])
    for i in range(n):
        for j in range(m):
            with block("y", "SS", i, j) as (vi, vj):
                y[vi, vj] = e[vi, vj] + e[vi, m - 1 - vj]


@kernel
def previous(x: Tensor[f32, n, m], y: Out[f32, n, m]) -> None:
    e = alloc((n, m), f32)
    total = alloc((n,), f32)
    for i in range(n):
        for j in range(m):
            with block("e", "SS", i, j) as (vi, vj):
                e[vi, vj] = exp(x[vi, vj])
    for i in range(n):
        for k in range(m):
            with block("total", "SR", i, k) as (vi, vk):
                with init():
                    total[vi] = 0.0
                total[vi] += e[0, vk]
        for j in range(m):
            with block("y", "SS", i, j) as (vi, vj):
                y[vi, vj] = e[vi, vj] / total[vi]


def allocated(func: Func) -> set[str]:
    return {s.buffer.name for s in walk_stmts(func.body) if isinstance(s, Alloc)}


def run(func: Func, x: Any) -> Any:
    y = np.full_like(x, np.nan)
    run_loop(func, [x, y], x.shape)
    return y


def test_a_row_is_computed_in_its_output() -> None:
    after = reuse_outputs(rows.func)
    assert allocated(rows.func) == {"e", "total"} and allocated(after) == {"total"}
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    np.testing.assert_array_equal(run(after, x), run(rows.func, x))


def test_what_is_read_elsewhere_stays() -> None:
    assert reuse_outputs(shifted.func) is shifted.func


def test_what_later_rounds_read_stays() -> None:
    assert reuse_outputs(previous.func) is previous.func
