"""Kernels for tests of search spaces: a product with an epilogue, and a variance over a middle axis."""

from __future__ import annotations

import numpy as np

from pliant import Out, Tensor, alloc, block, f32, grid, init, kernel


@kernel
def product(a: Tensor[f32, 13, 20], b: Tensor[f32, 20, 40], y: Out[f32, 13, 40]) -> None:
    c = alloc((13, 40), f32)
    for i, j, k in grid(13, 40, 20):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]
    for i, j in grid(13, 40):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = c[vi, vj] * 2.0 + 1.0


@kernel
def variance(x: Tensor[f32, 3, 70, 20], y: Out[f32, 3, 20]) -> None:
    m = alloc((3, 20), f32)
    for i, j, k in grid(3, 20, 70):
        with block("m", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                m[vi, vj] = 0.0
            m[vi, vj] += x[vi, vk, vj]
    for i, j, k in grid(3, 20, 70):
        with block("y", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                y[vi, vj] = 0.0
            y[vi, vj] += (x[vi, vk, vj] - m[vi, vj] / 70.0) * (x[vi, vk, vj] - m[vi, vj] / 70.0)


A, B = np.random.default_rng(0).random((13, 20), np.float32), np.random.default_rng(1).random((20, 40), np.float32)
X = np.random.default_rng(2).random((3, 70, 20), np.float32)
