"""Operators of users: deduction, loop program or Python function; they fuse, are checked, and their mistakes are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, i64, ops
from pliant.graph import node as g
from pliant.interp.graph import run_graph
from pliant.support.errors import Error, ShapeError
from pliant.sym.expr import Select

n = dim("n", max=64)
m = dim("m", max=64)


@pliant.operator
def roll(x: Any, shift: int = 1) -> Any:
    return x


@roll.element
def _(i: Any, x: Any, shift: int) -> Any:
    return x[(*i[:-1], (i[-1] - shift) % x.shape[-1])]


@roll.python
def _(x: Any, shift: int) -> Any:
    return np.roll(x, shift, axis=-1)


@pliant.operator
def outer(x: Any, y: Any) -> Any:
    if len(x.shape) != 1:
        raise ShapeError("outer takes rows")
    return Tensor[x.dtype, x.shape[0], y.shape[0]]


@outer.element
def _(i: Any, x: Any, y: Any) -> Any:
    return x[i[0]] * y[i[1]]


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 4)])
def test_a_loop_program_by_elements(shape: tuple[int, int]) -> None:
    @function
    def f(x: Tensor[f32, n, m]) -> Tensor[f32, n, m]:
        return roll(x + 1.0, shift=2) * 2.0

    x = random(*shape)
    np.testing.assert_array_equal(f(x), np.roll(x + 1, 2, -1) * 2)
    np.testing.assert_array_equal(run_graph(f.graph, [x])[0], np.roll(x + 1, 2, -1) * 2)
    assert len(pliant.compile(f).interface.kernels) == 1  # it has fused


def test_dims_that_are_expressions_and_several_operands() -> None:
    @function
    def f(x: Tensor[f32, n], y: Tensor[f32, m]) -> Tensor[f32, n + m, m + m]:
        return roll(outer(ops.concat([x, y], axis=0), ops.concat([y, y], axis=0)))

    x, y = random(3), random(4, seed=1)
    expected = np.roll(np.outer(np.concatenate([x, y]), np.concatenate([y, y])), 1, -1)
    np.testing.assert_array_equal(f(x, y), expected)
    assert pliant.parse(str(pliant.api.program_of(f))) is not None


def test_a_host_scalar_and_a_literal_are_operands() -> None:
    @pliant.operator
    def chosen(x: Any, k: Any) -> Any:
        return x

    @chosen.element
    def _(i: Any, x: Any, k: Any) -> Any:
        return Select(i[0] < k[()], x[i], x[i] * 0.0)

    @function
    def f(x: Tensor[f32, n], k: i64) -> Tensor[f32, n]:
        return chosen(x, k)

    np.testing.assert_array_equal(f(random(4), 2), random(4) * np.array([1, 1, 0, 0], np.float32))


def test_several_results() -> None:
    @pliant.operator
    def halves(x: Any) -> Any:
        return Tensor[x.dtype, x.shape[0]], Tensor[x.dtype, x.shape[0]]

    @halves.element
    def _(i: Any, x: Any) -> Any:
        return x[i] * 0.5, x[i] * 0.25

    @function
    def f(x: Tensor[f32, n]) -> tuple[Tensor[f32, n], Tensor[f32, n]]:
        a, b = halves(x)
        return a, b

    a, b = f(random(5))
    np.testing.assert_array_equal(a, random(5) * 0.5)
    np.testing.assert_array_equal(b, random(5) * 0.25)


def test_a_python_function_with_attributes() -> None:
    @pliant.operator
    def kth(x: Any, k: int) -> Any:
        return Tensor[x.dtype, x.shape[0]]

    @kth.python
    def _(x: Any, k: int) -> Any:
        return np.sort(x, axis=1)[:, k]

    @function
    def f(x: Tensor[f32, n, m]) -> Tensor[f32, n]:
        return kth(x, k=1) + kth(x, 0)

    ordered = np.sort(random(3, 4), axis=1)
    np.testing.assert_array_equal(f(random(3, 4)), ordered[:, 1] + ordered[:, 0])


def test_both_ways_are_compared() -> None:
    roll.check(random(3, 5), shift=4)

    @pliant.operator
    def wrong(x: Any) -> Any:
        return x

    wrong.element(lambda i, x: x[i] + 1.0)
    wrong.python(lambda x: x)
    with pytest.raises(AssertionError):
        wrong.check(random(3))


def test_mistakes_are_named_where_they_are() -> None:
    @pliant.operator
    def empty(x: Any) -> Any:
        return x

    with pytest.raises(Error, match="says what it results in, but not how"):

        @function
        def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
            return empty(x)

    with pytest.raises(Error, match="outer takes rows") as found:

        @function
        def h(x: Tensor[f32, n, m]) -> Tensor[f32, n, m]:
            return outer(x, x)

    assert "outer(x, x)" in str(found.value)
    with pytest.raises(Error, match=r"roll: .*unexpected keyword argument 'by'"):

        @function
        def k(x: Tensor[f32, n]) -> Tensor[f32, n]:
            return roll(x, by=2)

    with pytest.raises(Error, match="outside of a graph function"):
        roll(random(3))


def test_it_is_an_ordinary_call_for_every_pass() -> None:
    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return roll(x)

    assert [type(x) for x in f.graph.nodes] == [g.CallLoop]
