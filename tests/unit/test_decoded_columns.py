"""Weights whose codes lie along the summed axis, `codes[j, k // 8]`: one kernel and one order of sums for any number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Out, Tensor, dim, f16, f32, function, grid, kernel, ops, u32

K, N = 256, 48
n = dim("n", min=1, max=512)


@kernel
def transposing(codes: Tensor[u32, N, K // 8], scales: Tensor[f32, N, K // 32], w: Out[f32, K, N]) -> None:
    for k, j in grid(K, N):
        w[k, j] = (f32((codes[j, k // 8] >> u32(k % 8 * 4)) & u32(15)) - 8.0) * scales[j, k // 32]


@kernel
def in_order(codes: Tensor[u32, N, K // 8], scales: Tensor[f32, N, K // 32], w: Out[f32, N, K]) -> None:
    for j, k in grid(N, K):
        w[j, k] = (f32((codes[j, k // 8] >> u32(k % 8 * 4)) & u32(15)) - 8.0) * scales[j, k // 32]


@kernel
def halves(w16: Tensor[f16, N, K], w: Out[f32, K, N]) -> None:
    for k, j in grid(K, N):
        w[k, j] = f32(w16[j, k])


@function
def product_transposing(x: Tensor[f32, n, K], codes: Tensor[u32, N, K // 8], scales: Tensor[f32, N, K // 32]) -> Tensor[f32, n, N]:
    return x @ transposing(codes, scales)


@function
def product_in_order(x: Tensor[f32, n, K], codes: Tensor[u32, N, K // 8], scales: Tensor[f32, N, K // 32]) -> Tensor[f32, n, N]:
    return x @ ops.permute(in_order(codes, scales), (1, 0))


@function
def product_of_halves(x: Tensor[f32, n, K], w16: Tensor[f16, N, K]) -> Tensor[f32, n, N]:
    return x @ halves(w16)


def weights(seed: int) -> tuple[tuple[Any, ...], np.ndarray]:
    """Codes and scales, and the matrix [N, K] that they stand for."""
    r = np.random.default_rng(seed)
    codes, scales = r.integers(0, 2**32, (N, K // 8), dtype=np.uint32), r.random((N, K // 32), np.float32)
    numbers = (codes[:, :, None] >> (np.arange(8, dtype=np.uint32) * 4) & 15).reshape(N, K).astype(np.float32) - 8
    return (codes, scales), numbers * np.repeat(scales, 32, 1)


@pytest.mark.parametrize("program", [product_transposing, product_in_order])
def test_weights_are_decoded_once_for_all_rows(program: Any) -> None:
    f = pliant.compile(program)
    arguments, w = weights(1)
    x = np.random.default_rng(2).standard_normal((200, K), dtype=np.float32)
    whole = f(x, *arguments)
    truth = x.astype(np.float64) @ w.T.astype(np.float64)
    assert np.abs(whole - truth).max() < 1e-6 * (np.abs(x) @ np.abs(w.T)).max()
    for rows in (1, 2, 17, 63, 64, 65):
        np.testing.assert_array_equal(f(x[:rows], *arguments), whole[:rows])
    assert "matmul: `dot`" in str(pliant.explain(program)) and "rows:" not in str(pliant.explain(program))


def test_weights_that_are_only_converted_keep_the_order_of_dot_products() -> None:
    f = pliant.compile(product_of_halves)
    w16 = np.random.default_rng(3).standard_normal((N, K)).astype(np.float16)
    x = np.random.default_rng(4).standard_normal((130, K), dtype=np.float32)
    whole = f(x, w16)
    truth = x.astype(np.float64) @ w16.T.astype(np.float64)
    assert np.abs(whole - truth).max() < 1e-6 * (np.abs(x) @ np.abs(w16.T.astype(np.float32))).max()
    for rows in (1, 63, 64):
        np.testing.assert_array_equal(f(x[:rows], w16), whole[:rows])
