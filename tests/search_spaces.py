"""Kernels for tests of search spaces: a product with an epilogue, and a variance over a middle axis."""

from __future__ import annotations

import numpy as np

from pliant import Out, Tensor, alloc, block, cast, dim, f32, grid, i8, i32, init, kernel, u8, where

n, m = dim("n"), dim("m")


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


@kernel
def dense(a: Tensor[f32, 16, 20], b: Tensor[f32, 20, 64], c: Out[f32, 16, 64]) -> None:
    for i, j, k in grid(16, 64, 20):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


@kernel
def dense_relu(a: Tensor[f32, 16, 20], b: Tensor[f32, 20, 64], y: Out[f32, 16, 64]) -> None:
    c = alloc((16, 64), f32)
    for i, j, k in grid(16, 64, 20):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]
    for i, j in grid(16, 64):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = max(c[vi, vj], 0.0)


@kernel
def chain(x: Tensor[f32, 6, 32], y: Out[f32, 6, 32]) -> None:
    t = alloc((6, 32), f32)
    for i, j in grid(6, 32):
        with block("t", "SS", i, j) as (vi, vj):
            t[vi, vj] = x[vi, vj] * 2.0
    for i, j in grid(6, 32):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = t[vi, vj] + 1.0


@kernel
def norms(x: Tensor[f32, 6, 48], y: Out[f32, 6]) -> None:
    for i, k in grid(6, 48):
        with block("y", "SR", i, k) as (vi, vk):
            with init():
                y[vi] = 0.0
            y[vi] += x[vi, vk]


@kernel
def int8_dense(a: Tensor[u8, 6, 32], b: Tensor[i8, 32, 24], c: Out[i32, 6, 24]) -> None:
    for i, j, k in grid(6, 24, 32):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0
            c[vi, vj] += cast(i32, a[vi, vk]) * cast(i32, b[vk, vj])


@kernel
def depthwise(x: Tensor[f32, 8, 10, 16], w: Tensor[f32, 3, 3, 16], y: Out[f32, 6, 8, 16]) -> None:
    for i, j, c, p, q in grid(6, 8, 16, 3, 3):
        with block("y", "SSSRR", i, j, c, p, q) as (vi, vj, vc, vp, vq):
            with init():
                y[vi, vj, vc] = 0.0
            y[vi, vj, vc] += x[vi + vp, vj + vq, vc] * w[vp, vq, vc]


@kernel
def masked(x: Tensor[f32, 10, 70, 12], y: Out[f32, 10, 12]) -> None:
    """The sum of a part of each column: a block with a predicate."""
    for i, j, k in grid(10, 12, 70):
        with block("y", "SSR", i, j, k) as (vi, vj, vk):
            where(vk <= vi * 7)
            with init():
                y[vi, vj] = 0.0
            y[vi, vj] += x[vi, vk, vj]


@kernel
def two_sums(x: Tensor[f32, 10, 70, 12], y: Out[f32, 10, 12], z: Out[f32, 10, 12]) -> None:
    """Two sums in the same loops."""
    for i, j, k in grid(10, 12, 70):
        with block("y", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                y[vi, vj] = 0.0
            y[vi, vj] += x[vi, vk, vj]
        with block("z", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                z[vi, vj] = 0.0
            z[vi, vj] += x[vi, vk, vj] * x[vi, vk, vj]


@kernel
def triangle(x: Tensor[f32, 10, 12, 70], y: Out[f32, 10, 12]) -> None:
    """Sums whose length depends on the row."""
    for i, j in grid(10, 12):
        for k in range(i * 7 + 1):
            with block("y", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    y[vi, vj] = 0.0
                y[vi, vj] += x[vi, vj, vk]


@kernel
def rows(x: Tensor[f32, n, m], y: Out[f32, n]) -> None:
    """Sums of dynamic length."""
    for i, k in grid(n, m):
        with block("y", "SR", i, k) as (vi, vk):
            with init():
                y[vi] = 0.0
            y[vi] += x[vi, vk]
