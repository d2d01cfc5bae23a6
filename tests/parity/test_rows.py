"""Reductions of long rows, of columns and of everything, which run by lanes: places of extrema, sums and means against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from levels import assembly_for
from pliant import Tensor, bf16, dim, f16, f32, function, i32, ops
from pliant.dtype import DType

n, m, h, w = dim("n"), dim("m"), dim("h"), dim("w")
RNG = np.random.default_rng(7)
SHAPES = [(1, 1), (3, 63), (5, 64), (2, 129), (4, 1000), (301, 70)]


def place(dtype: DType, axis: int | None, largest: bool, last: bool) -> Any:
    """A compiled argmax or argmin."""
    find = ops.argmax if largest else ops.argmin

    def found(x: Tensor[dtype, n, m]):  # type: ignore[valid-type,no-untyped-def]
        return find(x, axis=axis, select_last_index=last)

    return pliant.compile(function(found))


def first(x: np.ndarray, axis: int | None, largest: bool) -> np.ndarray:
    return (np.argmax if largest else np.argmin)(x, axis=axis)


@pytest.mark.parametrize("dtype", [f32, f16, bf16, i32], ids=str)
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("largest", [True, False])
def test_places_of_extrema(dtype: DType, axis: int | None, largest: bool) -> None:
    """Few different numbers, so that most are there many times: the first counts."""
    f = place(dtype, axis, largest, False)
    for shape in SHAPES:
        x = RNG.integers(-3, 3, shape).astype(dtype.numpy())
        np.testing.assert_array_equal(f(x), first(x, axis, largest))


@pytest.mark.parametrize("axis", [0, 1])
def test_the_last_of_equal_ones(axis: int) -> None:
    f = place(f32, axis, True, True)
    for shape in SHAPES:
        x = RNG.integers(-3, 3, shape).astype(np.float32)
        np.testing.assert_array_equal(f(x), shape[axis] - 1 - np.argmax(np.flip(x, axis), axis))


@pytest.mark.parametrize("dtype", [f32, f16], ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_a_nan_is_first(dtype: DType, largest: bool) -> None:
    """As in numpy: NaN of either sign beats all numbers, also infinite ones; the first of several counts."""
    f = place(dtype, 1, largest, False)
    x = RNG.standard_normal((8, 300)).astype(dtype.numpy())
    x[0, 200], x[1, [70, 71]], x[2, 299], x[3, 0] = np.nan, -np.float32(np.nan), np.nan, np.nan
    x[4, 17], x[5, 18], x[6, :] = np.inf, -np.inf, np.inf if largest else -np.inf
    x[0, 3] = x[1, 100] = np.inf
    np.testing.assert_array_equal(f(x), first(x, 1, largest))


@function
def pooled(x: Tensor[f32, n, m, h, w]):  # type: ignore[no-untyped-def]
    return ops.mean(x, axis=(2, 3)), ops.max(x, axis=(1, 2, 3)), ops.sum(x), ops.argmin(x), ops.sum(x, axis=(0, 1)), ops.min(x, axis=(1, 2))


@function
def fixed(x: Tensor[f32, 3, 10, 7, 9]):  # type: ignore[no-untyped-def]
    return ops.mean(x, axis=(2, 3)), ops.max(x, axis=(1, 2, 3)), ops.sum(x), ops.argmin(x), ops.sum(x, axis=(0, 1)), ops.min(x, axis=(1, 2))


def in_numpy(x: np.ndarray) -> tuple[Any, ...]:
    wide = x.astype(np.float64)
    return wide.mean((2, 3)), x.max((1, 2, 3)), wide.sum(), x.argmin(), wide.sum((0, 1)), x.min((1, 2))


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 7, 7), (1, 5, 32, 32), (3, 1, 13, 65), (2, 40, 1, 200), (4, 3, 129, 1)])
def test_over_several_axes(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    for got, want in zip(pooled(x), in_numpy(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3)


def test_over_several_axes_of_known_size() -> None:
    x = RNG.standard_normal((3, 10, 7, 9)).astype(np.float32)
    for got, want in zip(fixed(x), in_numpy(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_neighbors_of_joined_loops_are_loaded_together() -> None:
    """Quotients and remainders by the sizes of axes are gone: no address is looked up lane by lane."""
    code = assembly_for(pooled, "llvm:x86-64-v4")
    assert any("vaddps" in text for text in code.values())
    assert not any("gather" in text for text in code.values())


@function
def everything(x: Tensor[f32, m]):  # type: ignore[no-untyped-def]
    return ops.sum(x), ops.max(x), ops.sum(x * x)


@pytest.mark.parametrize("size", [0, 1, 64, 16383, 16384, 16385, 3 * 16384, 3 * 16384 + 65, 1 << 19])
def test_sums_of_everything(size: int) -> None:
    """By pieces, which any number of threads may share: the bits are the same."""
    x = RNG.standard_normal(size).astype(np.float32)
    one, two = (pliant.compile(everything, threads=t)(x) for t in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(one[0], wide.sum(), rtol=1e-6, atol=1e-6 * np.abs(wide).sum())
    np.testing.assert_array_equal(one[1], x.max(initial=-np.inf))
    np.testing.assert_allclose(one[2], (wide * wide).sum(), rtol=1e-6)


@function
def all_rows(x: Tensor[f32, n, m]):  # type: ignore[no-untyped-def]
    return ops.sum(x), ops.max(x), ops.sum(x * x)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (127, 129), (128, 128), (5, 16385), (16385, 5)])
def test_sums_of_all_rows(shape: tuple[int, int]) -> None:
    """Pieces go on from one row to the next: the bits are those of one long row, for any number of threads."""
    x = RNG.standard_normal(shape).astype(np.float32)
    want = pliant.compile(everything, threads=1)(x.reshape(-1))
    for threads in (1, 2):
        for a, b in zip(pliant.compile(all_rows, threads=threads)(x), want, strict=True):
            np.testing.assert_array_equal(a, b)


@function
def weights(x: Tensor[f32, m]) -> Tensor[f32, m]:
    return ops.softmax(x)


@pytest.mark.parametrize("size", [1, 64, 1001])
def test_softmax_of_one_row(size: int) -> None:
    x = (RNG.standard_normal(size) * 30).astype(np.float32)
    e = np.exp(x.astype(np.float64) - x.max())
    np.testing.assert_allclose(weights(x), e / e.sum(), rtol=1e-5, atol=1e-37)  # differences of up to 90 are rounded


def test_softmax_at_the_ends() -> None:
    """What is masked out has weight 0; a NaN or nothing but minus infinity makes the row NaN."""
    x = np.full((4, 200), -np.inf, np.float32)
    x[0, 150], x[1, 3], x[1, 4], x[3, 0], x[3, 7] = 5.0, 1e30, -1e30, 1.0, np.nan
    got = rows_of_weights(x)
    want = np.zeros_like(x)
    want[0, 150] = want[1, 3] = 1.0
    want[2:] = np.nan
    np.testing.assert_array_equal(got, want)


@function
def rows_of_weights(x: Tensor[f32, n, m]) -> Tensor[f32, n, m]:
    return ops.softmax(x)


@pytest.mark.parametrize("width", [1, 2, 15, 17, 63, 64, 65, 127, 128, 129, 191, 257, 1009])
def test_softmax_of_rows_of_any_length(width: int) -> None:
    """Also of no row, and of rows with nothing in them; a row alone has the bits it has among others."""
    x = (RNG.standard_normal((5, width)) * 10).astype(np.float32)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    got = rows_of_weights(x)
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=5e-6, atol=1e-37)  # differences of up to 90 are rounded
    for i in range(5):
        np.testing.assert_array_equal(rows_of_weights(x[i : i + 1].copy())[0], got[i])
    assert rows_of_weights(x[:0]).shape == (0, width) and rows_of_weights(np.zeros((3, 0), np.float32)).shape == (3, 0)


@function
def extremes(x: Tensor[f32, n, m]):  # type: ignore[no-untyped-def]
    return ops.max(x, axis=1), ops.min(x, axis=1), ops.sum(x, axis=1)


@pytest.mark.parametrize("width", [1, 3, 64, 70, 130])
def test_extremes_and_sums_at_the_ends(width: int) -> None:
    """Wherever they are in a row: a NaN of either sign wins, -0.0 is below 0.0, and a sum of nothing but -0.0 is 0.0."""
    x = np.full((3 * width, width), -0.0, np.float32)
    here = np.arange(width)
    x[here, here], x[width + here, here], x[2 * width + here, here] = 0.0, np.nan, -np.float32(np.nan)
    most, least, total = extremes(x)
    assert not np.signbit(most[:width]).any() and not most[:width].any()
    assert not least[:width].any() and np.signbit(least[:width]).all() == (width > 1)
    assert np.isnan(most[width:]).all() and np.isnan(least[width:]).all() and np.isnan(total[width:]).all()
    most, least, total = extremes(np.full((2, width), -0.0, np.float32))
    assert np.signbit(most).all() and np.signbit(least).all() and not np.signbit(total).any()
    x = RNG.standard_normal((4, width)).astype(np.float32)
    x[0, -1], x[1, 0] = np.inf, -np.inf
    np.testing.assert_array_equal(extremes(x)[0], x.max(1))
    np.testing.assert_array_equal(extremes(x)[1], x.min(1))


@pytest.mark.parametrize("axis", [0, 1])
def test_spread_and_logarithms_of_sums(axis: int) -> None:
    for shape in SHAPES:
        x = RNG.standard_normal(shape).astype(np.float32)
        wide = x.astype(np.float64)
        for got, want in zip(spread(axis)(x), (wide.var(axis), np.log(np.exp(wide).sum(axis))), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def spread(axis: int) -> Any:
    """Variance and logsumexp along an axis."""

    def found(x: Tensor[f32, n, m]):  # type: ignore[no-untyped-def]
        return ops.var(x, axis=axis, correction=0), ops.logsumexp(x, axis=axis)

    return function(found)


def test_extremes_of_lanes_are_found_by_halves() -> None:
    """With one instruction for each register of 256 bits: eight in the loop and in what remains after it, then half of them, and so on."""
    code = assembly_for(rows_of_weights, "llvm:x86-64-v4")
    assert sum(text.count("vrangeps") for text in code.values()) == 8 + 8 + (4 + 2 + 1 + 1 + 1 + 1)


@function
def normalized(x: Tensor[f32, n, m], weight: Tensor[f32, m], bias: Tensor[f32, m]) -> Tensor[f32, n, m]:
    return ops.layer_norm(x, weight, bias)


@pytest.mark.parametrize("shape", [(1, 1), (3, 63), (2, 129), (5, 1000)])
@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_norms_of_rows_far_from_zero(shape: tuple[int, int], mean: float) -> None:
    """The variance is made about the mean: numbers that differ little for their size lose no more than their own rounding."""
    x = (RNG.standard_normal(shape) + mean).astype(np.float32)
    weight, bias = RNG.standard_normal((2, shape[1])).astype(np.float32)
    wide = x.astype(np.float64)
    centered = wide - wide.mean(1, keepdims=True)
    want = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5) * weight + bias
    np.testing.assert_allclose(normalized(x, weight, bias), want, rtol=1e-5, atol=2e-6 + 1e-6 * mean)


def test_sums_of_squares_round_once() -> None:
    assert any("vfmadd" in text for text in assembly_for(normalized, "llvm:x86-64-v4").values())
