"""Mistakes with weights of block formats: each names the user's line and value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pliant import Tensor, dim, f32, function, ops, u8
from pliant.support.errors import Error

n, m = dim("n"), dim("m")
RAW = np.zeros((5, 2, 20), np.uint8)


def unknown_format() -> Any:
    @function
    def f(x: Tensor[f32, n, 64]) -> Tensor[f32, n, 5]:
        return ops.block_linear(x, ops.constant(RAW), format="Q4_9")

    return f


def rows_of_a_run() -> Any:
    @function
    def f(x: Tensor[f32, n, 64], w: Tensor[u8, m, 2, 20]) -> Tensor[f32, n, m]:
        return ops.block_linear(x, w, format="Q4_1")

    return f


def three_dims() -> Any:
    @function
    def f(x: Tensor[f32, n, 4, 64]) -> Tensor[f32, n, 5]:
        return ops.block_linear(x, ops.constant(RAW), format="Q4_1")

    return f


def other_block_size() -> Any:
    @function
    def f(x: Tensor[f32, n, 64]) -> Tensor[f32, n, 5]:
        return ops.block_linear(x, ops.constant(RAW), format="Q8_0")

    return f


def other_length() -> Any:
    @function
    def f(x: Tensor[f32, n, 96]) -> Tensor[f32, n, 5]:
        return ops.block_linear(x, ops.constant(RAW), format="Q4_1")

    return f


MISTAKES = {
    unknown_format: ("there is no block format `Q4_9`", "Q4_1"),
    rows_of_a_run: ("`w` is `m`, which only a run tells", "literals"),
    three_dims: ("a matrix is expected", "reshape"),
    other_block_size: ("a block of Q8_0 has 34 bytes", ""),
    other_length: ("rows of 64 elements, there are 96", ""),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake(mistake: Any) -> None:
    what, help_ = MISTAKES[mistake]
    with pytest.raises(Error) as info:
        mistake()
    error = info.value
    assert what in error.what and help_ in error.help
    assert error.where is not None and Path(error.where.file) == Path(__file__) and "ops.block_linear" in error.where.text
