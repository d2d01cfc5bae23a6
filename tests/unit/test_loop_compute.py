"""The shorthand `compute` is read as the loops and the block that it stands for."""

from __future__ import annotations

import numpy as np
import pytest

import pliant
from pliant import (
    Out,
    Tensor,
    alloc,
    block,
    compute,
    dim,
    f32,
    grid,
    i32,
    inf,
    init,
    kernel,
    max_over,
    min_over,
    prod_over,
    sum_over,
)
from pliant.loop.structural import assert_same

n = dim("n")


def test_compute_is_its_long_form() -> None:
    @kernel
    def short(a: Tensor[f32, n, 8], b: Tensor[f32, 8, 16], c: Out[f32, n, 16], m: Out[f32, n]) -> None:
        t = compute((n, 8), lambda i, j: a[i, j] * 2.0)
        compute(c, lambda i, j: sum_over(lambda k: t[i, k] * b[k, j], 8))
        compute(m, lambda i: max_over(lambda k: a[i, k], 8))

    @kernel
    def long(a: Tensor[f32, n, 8], b: Tensor[f32, 8, 16], c: Out[f32, n, 16], m: Out[f32, n]) -> None:
        t = alloc((n, 8), f32)
        for i, j in grid(n, 8):
            with block("t", "SS", i, j) as (vi, vj):
                t[vi, vj] = a[vi, vj] * 2.0
        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += t[vi, vk] * b[vk, vj]
        for i, k in grid(n, 8):
            with block("m", "SR", i, k) as (vi, vk):
                with init():
                    m[vi] = -inf
                m[vi] = max(m[vi], a[vi, vk])

    assert_same(short.func.with_(name="long"), long.func)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 8)).astype(np.float32), rng.standard_normal((8, 16)).astype(np.float32)
    c, m = short(a, b)
    np.testing.assert_allclose(c, 2 * a @ b, rtol=1e-5, atol=1e-5)
    assert np.array_equal(m, a.max(axis=1))


def test_every_reduction_over_several_axes_and_nothing() -> None:
    @kernel
    def f(x: Tensor[i32, n, 3, 4], s: Out[i32, n], p: Out[i32, n], lo: Out[i32, n], hi: Out[i32, n]) -> None:
        compute(s, lambda i: sum_over(lambda j, k: x[i, j, k], 3, 4))
        compute(p, lambda i: prod_over(lambda j, k: x[i, j, k], 3, 4))
        compute(lo, lambda i: min_over(lambda j, k: x[i, j, k], 3, 4))
        compute(hi, lambda i: max_over(lambda j, k: x[i, j, k], 3, 4))

    x = np.random.default_rng(1).integers(-5, 6, (6, 3, 4)).astype(np.int32)
    flat = x.reshape(6, 12)
    for ours, expected in zip(f(x), (flat.sum(1), flat.prod(1), flat.min(1), flat.max(1)), strict=True):
        assert np.array_equal(ours, expected.astype(np.int32))

    @kernel
    def empty(x: Tensor[i32, n, 0], s: Out[i32, n], hi: Out[i32, n]) -> None:
        compute(s, lambda i: sum_over(lambda j: x[i, j], 0))
        compute(hi, lambda i: max_over(lambda j: x[i, j], 0))

    s, hi = empty(np.zeros((2, 0), np.int32))
    assert s.tolist() == [0, 0] and hi.tolist() == [-(2**31)] * 2


def test_wrong_formulas() -> None:
    with pytest.raises(pliant.Error, match="`t` has 2 dimensions, the lambda has 1 argument"):

        @kernel
        def few(x: Tensor[f32, n], y: Out[f32, n]) -> None:
            t = compute((n, 4), lambda i: x[i])
            compute(y, lambda i: t[i, 0])

    with pytest.raises(pliant.Error, match="a formula is a lambda") as error:

        @kernel
        def plain(x: Tensor[f32, n], y: Out[f32, n]) -> None:
            compute(y, x)  # type: ignore[arg-type]

    assert error.value.where is not None and error.value.where.text.strip().startswith("compute(y, x)")
    with pytest.raises(pliant.Error, match="`sum_over` is not a value"):

        @kernel
        def inside(x: Tensor[f32, n], y: Out[f32, n]) -> None:
            compute(y, lambda i: 1.0 + sum_over(lambda k: x[k], n))
