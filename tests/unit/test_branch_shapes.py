"""Branches whose results differ in shape: a new dim, at most the larger one; interpreted and compiled as numpy computes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, bool_, dim, f32, function, i64, ops
from pliant.interp.graph import run_graph
from pliant.support.errors import Error, ShapeError

n, m, u = dim("n", max=64), dim("m", max=32), dim("u")


@function
def head_or_all(x: Tensor[f32, n, 4], head: bool_) -> tuple[Tensor[f32, u, 4], Tensor[f32, 4]]:
    if head:
        y = x[:1] * 2.0
    else:
        y = x + 1.0
    return y, ops.sum(y, axis=0)


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 2, 3, 64])
@pytest.mark.parametrize("head", [True, False])
def test_rows(rows: int, head: bool) -> None:
    x = random(rows, 4)
    wanted = x[:1] * 2 if head else x + 1
    for y, total in (head_or_all(x, head), run_graph(head_or_all.graph, [x, np.bool_(head)])):
        np.testing.assert_array_equal(y, wanted)
        np.testing.assert_allclose(total, wanted.sum(0), rtol=1e-5, atol=1e-6)


def test_no_rows() -> None:
    """The branch that needs a row is checked where it runs; the other one gives nothing."""
    assert head_or_all(random(0, 4), False)[0].shape == (0, 4)
    with pytest.raises(ShapeError, match="slice: 0:1 is not within the 0 elements"):
        head_or_all(random(0, 4), True)


@pytest.mark.parametrize("first", [True, False])
def test_several_axes_and_values(first: bool) -> None:
    @function
    def f(x: Tensor[f32, n, m], first: bool_):
        if first:
            y = x[:, :1]
            z = ops.cast(x, i64)
        else:
            y = x[:1]
            z = ops.cast(x * 2.0, i64)[:, 1:]
        return ops.exp(y), z

    x = random(5, 7)
    for y, z in (f(x, first), run_graph(f.graph, [x, np.bool_(first)])):
        np.testing.assert_allclose(y, np.exp(x[:, :1] if first else x[:1]), rtol=1e-6)
        np.testing.assert_array_equal(z, x.astype(np.int64) if first else (x * 2).astype(np.int64)[:, 1:])


def test_text_reads_back_and_the_most_is_planned() -> None:
    assert str(pliant.parse(str(head_or_all))) == str(head_or_all)
    f = pliant.compile(head_or_all)
    assert "counted while it runs" in str(f.contract) and f.workspace.max is not None


def test_what_still_has_to_agree() -> None:
    with pytest.raises(Error, match="the branches disagree about `y`"):

        @function
        def ranks(x: Tensor[f32, n, 4], c: bool_):
            if c:
                y = x[0]
            else:
                y = x
            return y

    with pytest.raises(Error, match="the branches disagree about `y`"):

        @function
        def dtypes(x: Tensor[f32, n, 4], c: bool_):
            if c:
                y = ops.cast(x, i64)
            else:
                y = x
            return y


def test_a_name_that_nothing_defines() -> None:
    """Only a dim that a run tells gets its name in the return annotation: others are typing errors."""
    with pytest.raises(ShapeError, match="dim `u` is used before it is defined"):

        @function
        def f(x: Tensor[f32, n]) -> Tensor[f32, u]:
            return ops.exp(x)

    @function
    def g(x: Tensor[f32, n]) -> Tensor[i64, u, 1]:
        return ops.nonzero(x > 0.0)

    assert g(np.array([1, -1, 2], np.float32)).tolist() == [[0], [2]]
