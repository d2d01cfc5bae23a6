"""Long sums are summed in parts: equal terms, whose rounding errors all have one sign, do not add up to more than a few units."""

from __future__ import annotations

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, ops
from pliant.schedule.library.register_sums import MOST_PARTS, part_of

n = dim("n", max=64)
TERM, WEIGHT = np.float32(0.02158), np.float32(0.02)
EXACT = float(TERM) * float(WEIGHT)  # one product, in double precision


@function
def product(x: Tensor[f32, n, 1024], w: Tensor[f32, 1024, 40]) -> Tensor[f32, n, 40]:
    return x @ w


@function
def convolution(x: Tensor[f32, n, 128, 5, 5], w: Tensor[f32, 32, 128, 3, 3]) -> Tensor[f32, n, 32, 3, 3]:
    return ops.conv(x, w)


@function
def classifier(x: Tensor[f32, n, 1024, 1, 1], w: Tensor[f32, 300, 1024, 1, 1]) -> Tensor[f32, n, 300, 1, 1]:
    return ops.conv(x, w)


@pytest.mark.parametrize(
    ("what", "x", "w", "terms"),
    [
        (product, (5, 1024), (1024, 40), 1024),
        (convolution, (2, 128, 5, 5), (32, 128, 3, 3), 1152),
        (classifier, (3, 1024, 1, 1), (300, 1024, 1, 1), 1024),
    ],
    ids=["product", "convolution", "classifier"],
)
def test_equal_terms(what: object, x: tuple[int, ...], w: tuple[int, ...], terms: int) -> None:
    found = pliant.compile(what)(np.full(x, TERM), np.full(w, WEIGHT))
    assert np.max(np.abs(found.astype(np.float64) / (terms * EXACT) - 1)) < 1e-6  # in one piece it is 5e-6


def test_a_row_alone_equals_the_row_in_a_batch() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((9, 1024)).astype(np.float32), rng.standard_normal((1024, 40)).astype(np.float32)
    f = pliant.compile(product)
    np.testing.assert_array_equal(f(x, w), np.concatenate([f(x[k : k + 1], w) for k in range(9)]))


@pytest.mark.parametrize("terms", [1, 128, 576, 1023])
def test_short_sums_are_in_one_piece(terms: int) -> None:
    assert part_of(terms, terms) is None


@pytest.mark.parametrize(("steps", "terms"), [(1024, 1024), (8, 1152), (4096, 4096), (6625, 6625), (2**20, 2**20)])
def test_parts_are_equal_and_few(steps: int, terms: int) -> None:
    size = part_of(steps, terms)
    assert size is not None and steps % size == 0 and 2 <= steps // size <= MOST_PARTS


def test_what_cannot_be_divided_is_in_one_piece() -> None:
    assert part_of(1031, 1031) is None
