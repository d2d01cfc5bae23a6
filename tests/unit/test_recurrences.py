"""The default rule of recurrences and scatters: what it takes, in chunks of how many columns, and that results stay those of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import InOut, Out, Tensor, block, dim, f32, grid, i32, kernel, select

n, m = dim("n"), dim("m")


@kernel
def average(x: Tensor[f32, 20, n], y: Out[f32, 20, n]) -> None:
    for j, t in grid(n, 20):
        with block("y", "SO", j, t) as (vj, vt):
            y[vt, vj] = select(vt == 0, x[vt, vj], y[vt - 1, vj] * 0.5 + x[vt, vj] * 0.5)


@kernel
def add_rows(x: Tensor[i32, m, n], at: Tensor[i32, m], y: InOut[i32, 7, n]) -> None:
    for i, j in grid(m, n):
        with block("y", "OS", i, j) as (vi, vj):
            y[at[vi], vj] = y[at[vi], vj] + x[vi, vj]


@kernel
def wavefront(x: Tensor[i32, m, n], y: Out[i32, m, n]) -> None:
    for i, j in grid(m, n):
        with block("y", "OO", i, j) as (vi, vj):
            y[vi, vj] = x[vi, vj] + select(vi > 0 and vj > 0, y[vi - 1, vj - 1], 0)


def averaged(x: Any) -> Any:
    y = x.copy()
    for t in range(1, len(x)):
        y[t] = y[t - 1] * np.float32(0.5) + x[t] * np.float32(0.5)
    return y


@pytest.mark.parametrize("width", [None, 8, 64])
def test_columns_are_lanes(width: int | None) -> None:
    f = pliant.compile(average, target="llvm:x86-64-v3", decisions={} if width is None else {"y.columns": width})
    assert f"recurrence: `y` in chunks of {width or 128} columns" in pliant.explain(f)  # 16 vectors of 8
    for size in (0, 1, 7, 8, 63, 64, 200, 515):
        x = np.random.default_rng(size).standard_normal((20, size)).astype(np.float32)
        for threads in (1, 2):
            with pliant.threads(threads):
                np.testing.assert_array_equal(f(x), averaged(x))


def test_rows_at_places_that_are_data_are_added_in_long_pieces() -> None:
    f = pliant.compile(add_rows, target="llvm:x86-64-v3")
    assert "recurrence: `y` in chunks of 512 columns" in pliant.explain(f)
    for size in (0, 3, 511, 1200):
        rng = np.random.default_rng(size)
        x, at = rng.integers(-99, 99, (40, size), np.int32), rng.integers(0, 7, 40, np.int32)
        y = rng.integers(-9, 9, (7, size), np.int32)
        expected = y.copy()
        np.add.at(expected, at, x)
        f(x, at, y)
        np.testing.assert_array_equal(y, expected)


def test_without_independent_columns_the_last_rule_takes_it() -> None:
    f = pliant.compile(wavefront)
    assert "recurrence:" not in pliant.explain(f) and "fallback" in pliant.explain(f)
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    expected = x.copy()
    for i in range(1, 3):
        expected[i, 1:] += expected[i - 1, :-1]
    np.testing.assert_array_equal(f(x), expected)
