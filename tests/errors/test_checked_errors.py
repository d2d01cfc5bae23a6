"""Errors of checked mode as a user reads them: of kernels and operators in graph functions, of parallel loops, again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Out, Tensor, dim, f32, function, i64, kernel, ops, parallel

n = dim("n")
m = dim("m")


@kernel(scheduled=True)
def gather(x: Tensor[f32, n], idx: Tensor[i64, m], y: Out[f32, m]) -> None:
    for i in parallel(m, grain=1):
        y[i] = x[idx[i]]


@function
def model(x: Tensor[f32, n], idx: Tensor[i64, m]) -> Tensor[f32, m]:
    return ops.exp(gather(ops.neg(x), idx))


@function
def quotient(x: Tensor[i64, n], y: Tensor[i64, n]) -> Tensor[i64, n]:
    return ops.floor_divide(x, y)


X = np.arange(5, dtype=np.float32)


def line_of(text: str) -> int:
    return 1 + next(i for i, line in enumerate(Path(__file__).read_text().splitlines()) if text in line)


def test_the_message() -> None:
    f = pliant.compile(gather, checked=True)
    with pytest.raises(pliant.Error) as caught:
        f(X, np.array([0, 9]))
    shown = str(caught.value)
    assert shown.startswith("`x[idx[i]]` is out of range in `gather`: the index is 9, the extent is 5, i = 1\n")
    assert f"test_checked_errors.py:{line_of('y[i] = x[idx[i]]')}\n   | y[i] = x[idx[i]]" in shown
    assert "in this call" in shown
    assert "help: shorten the loop, or put the access under a condition" in shown


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failed_call_leaves_the_function_usable(threads: int) -> None:
    f: Any = pliant.compile(gather, checked=True, threads=threads)
    good, bad = np.arange(1000) % 5, np.arange(1000) % 6
    for _ in range(20):
        with pytest.raises(pliant.Error, match="the index is 5, the extent is 5"):
            f(X, bad)
        assert np.array_equal(f(X, good), X[good])


def test_a_kernel_in_a_function_is_named() -> None:
    f = pliant.compile(model, checked=True)
    assert np.allclose(f(X, np.array([1, 2])), np.exp(-X[[1, 2]]))
    with pytest.raises(pliant.Error, match=r"out of range in `.*gather.*`") as caught:
        f(X, np.array([1, -1]))
    assert caught.value.where is not None
    assert caught.value.where.line == line_of("y[i] = x[idx[i]]")


def test_an_operator_in_a_function_is_named() -> None:
    f = pliant.compile(quotient, checked=True)
    with pytest.raises(pliant.Error, match=r"divides by zero in `floor_divide`: .* is 8, .* is 0") as caught:
        f(np.array([6, 8]), np.array([3, 0]))
    assert caught.value.where is not None
    assert caught.value.where.line == line_of("return ops.floor_divide")


@function
def scaled(x: Tensor[f32, n], s: i64, t: i64) -> Tensor[f32, n]:
    share = s // (t - 3)
    return x * ops.cast(share, f32)


def test_arithmetic_of_host_scalars_is_checked() -> None:
    f = pliant.compile(scaled, checked=True)
    assert np.array_equal(f(X, 7, 5), X * 3)
    with pytest.raises(pliant.Error, match=r"`s // sub` divides by zero in `floor_divide`: `s` is 7, `sub` is 0") as caught:
        f(X, 7, 3)
    assert caught.value.where is not None
    assert caught.value.where.line == line_of("share = s // (t - 3)")
    assert np.array_equal(pliant.compile(scaled)(X, 7, 3), X * 0)  # what the quotient is where nobody looks


@function
def part(x: Tensor[f32, n], y: Tensor[f32, m]) -> Tensor[f32, n]:
    return x * ops.cast(n // (m - 2), f32)


def test_arithmetic_of_dims_is_checked() -> None:
    f = pliant.compile(part, checked=True)
    assert np.array_equal(f(X, X[:3]), X * 5)
    with pytest.raises(pliant.Error, match="divides by zero"):
        f(X, X[:2])


def test_checked_and_unchecked_are_different_entries_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path))
    x, y = np.array([6, 8]), np.array([3, 0])
    for _ in range(2):
        assert pliant.compile(quotient)(x, y)[0] == 2  # what is divided by zero is defined there
        with pytest.raises(pliant.Error, match="divides by zero"):
            pliant.compile(quotient, checked=True)(x, y)
    programs = [file for file in tmp_path.rglob("*.code") if not file.read_bytes()[56:].startswith(b"kernel\n")]  # a head, then the key
    assert len(programs) == 2
