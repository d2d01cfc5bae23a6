"""Maps of contiguous tensors whose dims are known at run time: values against numpy; over two dims they are one loop through memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from levels import assembly_for, rules_for
from pliant import Tensor, bf16, dim, f32, function, ops

a, b, c = dim("a"), dim("b"), dim("c")


@function
def of_two(x: Tensor[f32, a, b], y: Tensor[f32, a, b]) -> Tensor[f32, a, b]:
    return x * 2.0 + y


@function
def of_three(x: Tensor[f32, a, b, c]) -> Tensor[f32, a, b, c]:
    return ops.abs(x)


@function
def narrower(x: Tensor[f32, a, 3, c]) -> Tensor[bf16, a, 3, c]:
    return ops.cast(x, bf16)


SHAPES = [(0, 5), (5, 0), (1, 1), (3, 5), (1, 1023), (1, 1024), (1025, 1), (33, 31), (700, 3), (64, 65)]


@pytest.mark.parametrize("checked", [False, True])
def test_two_dims(checked: bool) -> None:
    f: Any = pliant.compile(of_two, checked=checked)
    rng = np.random.default_rng(1)
    for shape in SHAPES:
        x, y = rng.standard_normal((2, *shape)).astype(np.float32)
        np.testing.assert_array_equal(f(x, y), x * np.float32(2.0) + y)


@pytest.mark.parametrize("shape", [(0, 2, 3), (1, 1, 1), (7, 11, 13), (2, 1, 2000), (1500, 1, 2)])
def test_three_dims(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(of_three(x), np.abs(x))


def test_another_dtype() -> None:
    x = np.random.default_rng(3).standard_normal((41, 3, 29)).astype(np.float32)
    got: Any = narrower(x)
    np.testing.assert_array_equal(got, x.astype(bf16.numpy()))


def test_one_loop_through_memory() -> None:
    """No quotient by a dim is left in the addresses, and no element is looked up by itself."""
    assert "as one flat vector loop" in rules_for(of_two, "llvm:x86-64-v4")
    kernels = [text for name, text in assembly_for(of_two, "llvm:x86-64-v4").items() if name]
    assert kernels and not any("gather" in text or "idiv" in text for text in kernels)
