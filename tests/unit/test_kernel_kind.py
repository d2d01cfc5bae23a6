"""pliant.kind: the pattern of a kernel by its loops, the reason in terms of its own buffers, and that fusion agrees with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import InOut, Kernel, Out, Tensor, block, compute, dim, f32, function, i64, kernel, max_over, sum_over, where

n, m, k = dim("n"), dim("m"), dim("k")


@kernel
def doubled(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[i] * 2.0


@kernel
def rows(b: Tensor[f32, m], x: Tensor[f32, n], y: Out[f32, n, m]) -> None:
    for i in range(n):
        for j in range(m):
            y[i, j] = b[j]


@kernel
def turned(x: Tensor[f32, n, m], y: Out[f32, m, n]) -> None:
    for i in range(m):
        for j in range(n):
            y[i, j] = x[j, i]


@kernel
def table(x: Tensor[f32, n], t: Tensor[i64, k], y: Out[f32, k]) -> None:
    for i in range(k):
        y[i] = x[min(max(t[i], 0), n - 1)]


@kernel
def largest(x: Tensor[f32, n, m], y: Out[f32, n]) -> None:
    compute(y, lambda i: max_over(lambda j: x[i, j], m))


@kernel
def product(a: Tensor[f32, n, k], b: Tensor[f32, k, m], c: Out[f32, n, m]) -> None:
    compute(c, lambda i, j: sum_over(lambda p: a[i, p] * b[p, j], k))


@kernel
def running(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        with block("first", "S", i) as v:
            where(v == 0)
            y[v] = x[v]
        with block("next", "O", i) as v:
            where(v > 0)
            y[v] = y[v - 1] + x[v]


@kernel
def two_sizes(x: Tensor[f32, n], y: Out[f32, n], z: Out[f32, 2 * n]) -> None:
    for i in range(n):
        y[i] = x[i]
    for i in range(2 * n):
        z[i] = 1.0


@kernel
def put(row: Tensor[f32, n], cache: InOut[f32, n]) -> None:
    for i in range(n):
        cache[i] = cache[i] + row[i]


@pytest.mark.parametrize(
    ("program", "name", "words"),
    [
        (doubled, "elementwise", ["`y[vi]`", "`x[vi]`"]),
        (rows, "broadcast", ["`b[vj]`", "a part of the index"]),
        (turned, "injective", ["`x[vj, vi]`", "another index"]),
        (table, "gather", ["`x` is read at an index that `t` holds"]),
        (product, "matmul", ["products of `a` and `b`"]),
        (largest, "reduction", ["`y[vi]` combines values along `vj`"]),
        (running, "opaque", ["block `next` runs in order"]),
        (two_sizes, "opaque", ["`y` and `z` have different shapes"]),
    ],
)
def test_patterns(program: Kernel, name: str, words: list[str]) -> None:
    found = pliant.kind(program)
    assert found.name == name, found
    assert all(w in found.reason for w in words), found
    assert str(found) == f"{name}: {found.reason}" and isinstance(found, pliant.KernelKind)


def test_updates_are_told() -> None:
    found = pliant.kind(put)
    assert found.name == "elementwise" and found.updates == ("cache",) and "its place in the order is kept" in str(found)


def test_what_is_no_kernel() -> None:
    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return doubled(x)

    with pytest.raises(pliant.Error, match="kind is for kernels, not for an object of type `Function`"):
        pliant.kind(f)
    with pytest.raises(pliant.Error, match="`int`"):
        pliant.kind(3)


def launches(f: Any) -> int:
    return sum("(" in line and not line.startswith(" ") for line in pliant.explain(f).splitlines())


def test_fusion_agrees() -> None:
    """Elementwise kernels are one launch, and join what they read; a reader of other rows of an opaque one stays apart."""

    @function
    def chained(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return doubled(doubled(x))

    @function
    def ordered(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return doubled(running(doubled(x)))

    @function
    def backwards(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return running(x)[::-1]

    assert launches(chained) == 1 and launches(backwards) == 2
    np.testing.assert_array_equal(ordered(np.ones(3, np.float32)), [4, 8, 12])
    np.testing.assert_array_equal(backwards(np.ones(3, np.float32)), [3, 2, 1])
