"""Conditions that a user states are checked, whatever comes after them in the function."""

from __future__ import annotations

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, ops

n = dim("n")


@function
def before_a_literal(a: Tensor[f32, n]) -> Tensor[f32, n]:
    ops.require(n % 2 == 0, "n is even")
    two = ops.constant(2.0)
    return a * two


@function
def before_a_size(a: Tensor[f32, n]) -> Tensor[f32, n]:
    ops.require(n % 2 == 0, "n is even")
    return a * ops.cast(ops.scalar(n), f32)


@pytest.mark.parametrize("source", [before_a_literal, before_a_size])
def test_a_condition_before_a_literal_or_a_size_is_checked(source: object) -> None:
    f = pliant.compile(source)
    assert f(np.ones(4, np.float32)).shape == (4,)
    with pytest.raises(pliant.ShapeError, match=r"step 2|n is even"):
        f(np.ones(3, np.float32))
