"""Loops written as parallel or vector whose iterations depend on each other: refused with a witness, or found by checked mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import InOut, Out, Tensor, alloc, cast, dim, f32, i64, kernel, parallel, vector
from pliant.support.errors import Error, InternalError

n, m = dim("n", min=16), dim("m", min=8)


def chain() -> Any:
    @kernel(scheduled=True)
    def f(y: InOut[f32, n]) -> None:
        for i in parallel(n - 1):
            y[i + 1] = y[i] + 1.0  # here

    return f


def chain_of_lanes() -> Any:
    @kernel(scheduled=True)
    def f(y: InOut[f32, n]) -> None:
        for i in vector(8):
            y[i + 1] = y[i] + 1.0  # here

    return f


def halves() -> Any:
    @kernel(scheduled=True)
    def f(x: Tensor[f32, n], y: InOut[f32, n]) -> None:
        for i in parallel(n):
            j = i // 2
            y[j] = x[i]  # here

    return f


def written_before_it_is_read() -> Any:
    @kernel(scheduled=True)
    def f(x: Tensor[f32, n], y: InOut[f32, n], z: InOut[f32, n]) -> None:
        for i in vector(8):
            y[i] = x[i]  # here
            z[i] = y[i + 1]

    return f


def inner_loop() -> Any:
    @kernel(scheduled=True)
    def f(x: Tensor[f32, n], y: InOut[f32, n + 2]) -> None:
        for i in parallel(n):
            for k in range(3):
                y[i + k] = x[i]  # here

    return f


def not_scheduled() -> Any:
    @kernel
    def f(y: InOut[f32, n]) -> None:
        for i in parallel(n - 1):
            y[i] = y[i + 1]  # here

    return f


@pytest.mark.parametrize("mistake", [chain, chain_of_lanes, halves, written_before_it_is_read, inner_loop, not_scheduled])
def test_a_dependence_is_refused_with_two_iterations(mistake: Any) -> None:
    with pytest.raises(Error, match="depend on each other") as info:
        mistake()
    error = info.value
    assert not isinstance(error, InternalError) and "iteration i = 1" in error.facts[0] and "serial" in error.help
    assert error.where is not None and "# here" in Path(__file__).read_text().splitlines()[error.where.line - 1]


@kernel(scheduled=True)
def read_ahead(y: InOut[f32, n]) -> None:
    for i in vector(8):
        y[i] = y[i + 1] + 1.0  # all lanes load before one stores


@kernel(scheduled=True)
def own_memory(x: Tensor[f32, n, 4], y: Out[f32, n, 4]) -> None:
    for i in parallel(n):
        t = alloc((4,), f32, scope="stack")
        for j in vector(4):
            t[j] = x[i, j]
        for j in vector(4):
            y[i, j] = t[3 - j]


def test_what_keeps_the_order_is_taken() -> None:
    y = np.arange(16, dtype=np.float32)
    want = y.copy()
    want[:8] = y[1:9] + 1
    read_ahead(y)
    assert (y == want).all()
    x = np.arange(64, dtype=np.float32).reshape(16, 4)
    assert (own_memory(x) == x[:, ::-1]).all()
    assert (pliant.compile(own_memory, checked=True)(x) == x[:, ::-1]).all()


@kernel(scheduled=True)
def scatter(x: Tensor[f32, n], at: Tensor[i64, n], y: InOut[f32, m]) -> None:
    for i in parallel(n):
        y[at[i]] = x[i]  # scatter


@kernel(scheduled=True)
def histogram(at: Tensor[i64, n], y: InOut[f32, m]) -> None:
    for i in parallel(n):
        y[at[i]] += 1.0  # histogram


@kernel(scheduled=True)
def lanes(at: Tensor[i64, 8], y: InOut[f32, m]) -> None:
    for i in vector(8):
        y[i] = y[at[i]] + 1.0  # lanes


@kernel(scheduled=True)
def rounds(at: Tensor[i64, 8, 2], y: InOut[f32, m]) -> None:
    for i in vector(8):
        for j in range(2):  # all lanes do this before one of them begins the next round
            y[at[i, j]] = cast(f32, i)  # rounds


@kernel(scheduled=True)
def readers(at: Tensor[i64, n], y: InOut[f32, n], z: Out[f32, n]) -> None:
    for i in parallel(n):
        z[i] = y[0]
        if at[i] > 0:
            y[at[i] - 1] = 7.0  # readers


X = np.arange(16, dtype=np.float32)
SAME = np.array([3, *range(1, 16)])


def run(f: Any, *args: Any) -> Any:
    return pliant.compile(f, checked=True)(*args)


def test_checked_mode_finds_races_of_data() -> None:
    for f, args, line in (
        (scatter, (X, SAME, np.zeros(16, np.float32)), "# scatter"),
        (histogram, (SAME, np.zeros(16, np.float32)), "# histogram"),
        (lanes, (np.maximum(np.arange(8) - 1, 0), np.zeros(8, np.float32)), "# lanes"),
        (readers, (np.array([*[0] * 15, 1]), X.copy()), "# readers"),
        (rounds, (np.arange(16).reshape(8, 2) % 9, np.zeros(16, np.float32)), "# rounds"),
    ):
        with pytest.raises(Error, match="depend on each other") as info:
            run(f, *args)
        assert line in str(info.value)


def test_checked_mode_takes_what_is_independent() -> None:
    y = np.zeros(16, np.float32)
    run(scatter, X, np.arange(16)[::-1].copy(), y)
    assert (y == X[::-1]).all()
    y = X.copy()
    run(histogram, np.arange(16), y)
    assert (y == X + 1).all()
    y = np.arange(8, dtype=np.float32)
    run(lanes, np.minimum(np.arange(8) + 1, 7), y)  # reads ahead
    assert y.tolist() == [2, 3, 4, 5, 6, 7, 8, 8]
    y = np.zeros(16, np.float32)
    run(rounds, np.arange(16).reshape(8, 2), y)
    assert y.tolist() == [k // 2 for k in range(16)]
    y = X.copy()
    assert run(readers, np.array([*[0] * 15, 3]), y)[-1].tolist() == [0] * 16


def test_a_program_with_many_iterations_is_taken_in_bounded_time() -> None:
    """Nothing is accessed in most iterations: these have to be counted as well, else it would take years."""

    @kernel(scheduled=True)
    def f(y: InOut[f32, n]) -> None:
        for _ in range(1_000_000):
            for _ in range(1_000_000):
                if n > 1_000_000:
                    for i in parallel(n):
                        y[i] = y[i] + 1.0

    assert "parallel" in str(f)
