"""Reductions over rows of tensors of several unknown dims: the loops over rows need not all fuse for the rule of rows to take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, ops

b, k, n, m = (dim(name, min=1) for name in "bknm")


@function
def softmax(x: Tensor[f32, b, k, n, m]) -> Tensor[f32, b, k, n, m]:
    return ops.softmax(x)


@function
def softmax_of_rows(x: Tensor[f32, n, m]) -> Tensor[f32, n, m]:
    return ops.softmax(x)


@function
def mean(x: Tensor[f32, b, k, n, m]) -> Tensor[f32, b, k, n]:
    return ops.mean(x, axis=-1)


@function
def mean_of_rows(x: Tensor[f32, n, m]) -> Tensor[f32, n]:
    return ops.mean(x, axis=-1)


def softmax_by_numpy(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


CASES = [(softmax, softmax_of_rows, softmax_by_numpy), (mean, mean_of_rows, lambda x: x.mean(axis=-1))]


@pytest.mark.parametrize(("of_four_dims", "of_rows", "by_numpy"), CASES, ids=["softmax", "mean"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 130), (1, 1, 1, 7), (3, 1, 2, 1)])
def test_rows_of_four_dims_are_rows(of_four_dims: Any, of_rows: Any, by_numpy: Any, shape: tuple[int, ...]) -> None:
    f = pliant.compile(of_four_dims, threads=2)
    assert "rows: " in pliant.explain(f) and "fallback" not in pliant.explain(f)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found = f(x)
    np.testing.assert_allclose(found, by_numpy(x.astype(np.float64)), rtol=1e-5, atol=1e-6)
    assert found.tobytes() == of_rows(x.reshape(-1, shape[-1])).tobytes()
    assert found[-1:].tobytes() == f(x[-1:]).tobytes()
