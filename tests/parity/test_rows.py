"""Reductions of long rows, of columns and of everything, which run by lanes: places of extrema, sums and means against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, bf16, dim, f16, f32, function, i32, ops
from pliant.dtype import DType

n = dim("n")
m = dim("m")
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
