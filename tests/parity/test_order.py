"""Sorting, selection and running extrema as native code: NaN, infinities, zeros of both signs, many equal ones, sizes around powers of two,
rows shared out to threads, arguments with strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, i32, ops, strides
from pliant.interp.graph import run_graph

n, m, s = dim("n"), dim("m"), dim("s")


@function
def order(x: Tensor[f32, n, m]):  # type: ignore[no-untyped-def]
    up, up_places = ops.sort(x)
    down, down_places = ops.sort(x, descending=True)
    best, best_places = ops.topk(x, 2)
    least, least_places = ops.topk(x, m, largest=False)
    high, high_places = ops.cummax(x)
    low, low_places = ops.cummin(x, axis=0)
    values, firsts, groups, sizes = ops.unique(x)
    found = ops.searchsorted(up, x, right=True)
    return (
        up,
        up_places,
        down,
        down_places,
        best,
        best_places,
        least,
        least_places,
        high,
        high_places,
        low,
        low_places,
        values,
        firsts,
        groups,
        sizes,
        found,
    )


@pytest.fixture(scope="module")
def compiled() -> Any:
    return pliant.compile(order, threads=2)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 3e38, 1e-45], np.float32)
SIZES = [(1, 2), (3, 2), (2, 3), (5, 15), (5, 16), (5, 17), (40, 130), (1, 1025), (0, 4)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kind", ["numbers", "equal", "special"])
def test_native_code_equals_the_reference(compiled: Any, size: tuple[int, int], kind: str) -> None:
    rng = np.random.default_rng(size)
    if kind == "numbers":
        x = rng.standard_normal(size).astype(np.float32)
    else:
        x = rng.choice(SPECIAL if kind == "special" else np.arange(3, dtype=np.float32), size)
    for found, expected in zip(compiled(x), run_graph(order.graph, [x]), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_sorted_by_numpy(compiled: Any) -> None:
    x = np.random.default_rng(5).integers(0, 50, (7, 300)).astype(np.float32)
    up, places = compiled(x)[:2]
    np.testing.assert_array_equal(up, np.sort(x, axis=-1))
    np.testing.assert_array_equal(places, np.argsort(x, axis=-1, kind="stable"))


def test_arguments_with_strides() -> None:
    @function
    def distinct(x: Tensor[i32, n, m, strides(s, 1)]):  # type: ignore[no-untyped-def]
        values, _firsts, groups, _sizes = ops.unique(x)
        return values, groups, ops.scatter(x, ops.argsort(x), x, axis=1)

    x = np.random.default_rng(3).integers(0, 5, (6, 9)).astype(np.int32)[:, 2:7]
    values, groups, back = pliant.compile(distinct)(x)
    np.testing.assert_array_equal(values, np.unique(x))
    np.testing.assert_array_equal(values[groups].reshape(x.shape), x)
    expected = np.empty_like(x)
    np.put_along_axis(expected, np.argsort(x, axis=1, kind="stable"), x, axis=1)
    np.testing.assert_array_equal(back, expected)
