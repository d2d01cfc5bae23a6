"""Indices at which nothing is read or put, since what stands there has no elements, may be anything; others are checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiled_graphs import compiled
from pliant import Tensor, dim, f32, function, i64, ops
from pliant.interp.graph import run_graph
from pliant.support.errors import Error

n, m = dim("n"), dim("m")


@function
def taken(x: Tensor[f32, n, m], at: Tensor[i64, 2]) -> Tensor[f32, 2, m]:
    return ops.take(x, at, 0)


@function
def gathered(x: Tensor[f32, n, m], at: Tensor[i64, 2]) -> Tensor[f32, 2, m]:
    return ops.gather_nd(x, ops.reshape(at, (2, 1)))


@function
def scattered(x: Tensor[f32, n, m], at: Tensor[i64, 2], y: Tensor[f32, 2, m]) -> Tensor[f32, n, m]:
    return ops.scatter_nd(x, ops.reshape(at, (2, 1)), y)


@function
def put(x: Tensor[f32, n, m], at: Tensor[i64, 2], y: Tensor[f32, 2, m]) -> Tensor[f32, n, m]:
    return ops.index_put(x, y, at)


@pytest.mark.parametrize("f", [taken, gathered, scattered, put], ids=["take", "gather_nd", "scatter_nd", "index_put"])
@pytest.mark.parametrize(("rows", "columns"), [(3, 0), (0, 0), (3, 2)])
def test_indices_of_nothing_are_not_checked(f: Any, rows: int, columns: int) -> None:
    given = [np.ones((rows, columns), np.float32), np.array([7, -9]), np.ones((2, columns), np.float32)][: len(f.graph.params)]
    program = compiled(f.graph)
    if columns:
        for run in (lambda: run_graph(f.graph, given), lambda: program(*given)):
            with pytest.raises(Error, match="7 is outside"):
                run()
    else:
        (expected,) = run_graph(f.graph, given)
        assert program(*given).shape == expected.shape == ((2, 0) if f in (taken, gathered) else (rows, 0))
