"""The interpreter of graph functions and the passes: what is computed, what is checked, what stays the same after a pass."""

# ruff: noqa: F841, RUF059 - values that nobody uses are what dead_code is tested with

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pliant import InOut, Out, State, Tensor, dim, f32, function, grid, i64, kernel, match_cast, ops
from pliant.graph.node import CallFunction, Function, MatchCast, Op, walk_nodes
from pliant.graph.passes.dead_code import dead_code
from pliant.graph.passes.inline_functions import inline_functions
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from pliant.support.errors import ShapeError, UnsupportedError

n, m, t, rows, pages = dim("n"), dim("m"), dim("t"), dim("rows"), dim("pages")
small = dim("small", min=1, max=8, multiple_of=2)


@kernel
def append(cache: InOut[f32, pages, 4], x: Tensor[f32, rows, 4], place: i64) -> None:
    for i, j in grid(rows, 4):
        cache[place + i, j] = x[i, j]


@kernel
def scaled(x: Tensor[f32, rows], by: f32, y: Out[f32, rows], z: Out[f32, rows * 2]) -> None:
    for i in range(rows):
        y[i] = x[i] * by
        z[i] = x[i]
        z[rows + i] = 1.0


@function
def normalize(x: Tensor[f32, small, 4], scale: f32) -> Tensor[f32, small, 4]:
    return ops.softmax(x, axis=1) * scale


@function
def remember(c: State[f32, pages, 4], x: Tensor[f32, t, 4]) -> tuple[Tensor[f32, t, 4], State[f32, pages, 4]]:
    unused = ops.exp(x)
    y = ops.neg(x)
    return y, append(c, y, 1)


@function
def decode(c: State[f32, pages, 4], x: Tensor[f32, n, m]) -> tuple[State[f32, pages, 4], Tensor[f32, n, m]]:
    y = normalize(x, 2.0)
    old = ops.reshape(c, [pages * 4])
    z, c = remember(c, y)
    if ops.sum(old) > 0.0:
        z = z + 1.0
    return c, z + match_cast(y, Tensor[f32, n, m])


@function
def total(x: Tensor[f32, n], steps: i64) -> Tensor[f32, n]:
    i = 0
    while i < steps:
        x = x + ops.cast(i, f32)
        i += 1
    return x


def floats(*shape: int) -> np.ndarray[Any, Any]:
    """Random numbers."""
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def softmax(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of rows."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def check_decode(graph: Function, positive: bool) -> None:
    """Compares with the same in plain numpy."""
    cache = np.full((5, 4), 1.0 if positive else -1.0, np.float32)
    before, x = cache.copy(), floats(2, 4)
    new, y = run_graph(graph, [cache, x])
    expected = softmax(x) * 2
    np.testing.assert_allclose(y, np.full_like(x, 1.0 if positive else 0.0), atol=1e-6)
    before[1:3] = -expected
    assert new is cache  # updated in place
    np.testing.assert_allclose(cache, before, rtol=1e-6)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("passes", [(), (inline_functions,), (dead_code,), (inline_functions, dead_code), (dead_code, inline_functions)])
def test_decode(passes: tuple[Any, ...], positive: bool) -> None:
    graph = decode.graph
    for step in passes:
        graph = step(graph)
        verify(graph)
    check_decode(graph, positive)


def test_loops_and_scalars() -> None:
    (found,) = run_graph(total.graph, [np.zeros(3, np.float32), 4])
    np.testing.assert_array_equal(found, [6, 6, 6])
    (found,) = run_graph(total.graph, [np.ones(0, np.float32), 0])
    assert found.shape == (0,)


def test_kernels() -> None:
    @function
    def f(x: Tensor[f32, n], by: f32) -> tuple[Tensor[f32, n], Tensor[f32, n * 2]]:
        y, z = scaled(x, by)
        return y, z

    x = floats(3)
    y, z = run_graph(f.graph, [x, 0.5])
    np.testing.assert_array_equal(y, x * np.float32(0.5))
    np.testing.assert_array_equal(z, [*x, 1, 1, 1])


def test_a_failed_run_leaves_state_alone() -> None:
    @function
    def f(c: State[f32, pages, 4], x: Tensor[f32, n, 4]) -> tuple[State[f32, pages, 4], Tensor[f32, 3, 4]]:
        c = append(c, x, 0)
        return c, match_cast(x, Tensor[f32, 3, 4])

    cache = np.zeros((4, 4), np.float32)
    with pytest.raises(ShapeError, match="match_cast: dim 0 of `x` is 2, 3 is expected"):
        run_graph(f.graph, [cache, np.ones((2, 4), np.float32)])
    assert not cache.any()


def test_values_read_from_state_do_not_change() -> None:
    @function
    def f(c: State[f32, pages, 4], x: Tensor[f32, n, 4]) -> tuple[State[f32, pages, 4], Tensor[f32, 4, pages]]:
        old = ops.permute(c, [1, 0])
        return append(c, x, 0), old

    cache = floats(3, 4)
    before = cache.copy()
    _, old = run_graph(f.graph, [cache, np.ones((3, 4), np.float32)])
    np.testing.assert_array_equal(old, before.T)
    assert (cache == 1).all()


def test_host_and_library() -> None:
    def reverse(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return x[::-1].copy()

    @function
    def f(x: Tensor[f32, n]) -> tuple[Tensor[f32, n], Tensor[f32, n]]:
        return ops.call_host(reverse, [x], out=Tensor[f32, n]), ops.call_library("copy", [x], out=Tensor[f32, n])

    x = floats(4)
    a, b = run_graph(f.graph, [x], libraries={"copy": lambda source, target: np.copyto(target, source)})
    np.testing.assert_array_equal(a, x[::-1])
    np.testing.assert_array_equal(b, x)
    with pytest.raises(UnsupportedError, match="the symbol `copy` is not known to the interpreter") as caught:
        run_graph(f.graph, [x])
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_a_callback_that_gives_another_shape_is_found() -> None:
    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return ops.call_host(np.diff, [x], out=Tensor[f32, n])

    with pytest.raises(ShapeError, match=r"has shape \(3,\), and Tensor\[f32, n\] says \(4,\)"):
        run_graph(f.graph, [floats(4)])


# Checks.


@function
def contract(x: Tensor[f32, small, n], y: Tensor[f32, n * 2], z: Tensor[f32, m]) -> Tensor[f32, small, n]:
    return x + z


@pytest.mark.parametrize(
    ("shapes", "what"),
    [
        (((3, 4), (8,), (4,)), r"dim 0 of argument `x` is 3, and the contract says small in 1\.\.8 step 2"),
        (((10, 4), (8,), (4,)), "dim 0 of argument `x` is 10"),
        (((2, 4), (9,), (4,)), r"dim 0 of argument `y` is 9, n \* 2 = 8 is expected"),
        (((2, 4), (8,), (5,)), r"add: dims 4 and 5 \(at -1\) cannot be broadcast"),
        (((2, 1), (2,), (5,)), "match_cast: dim 1 of `add` is 5, n = 1 is expected|dim 1 of `add` is 5"),
        (((2, 4, 1), (8,), (4,)), "argument `x` has 3 dims, 2 are expected"),
    ],
)
def test_contract(shapes: tuple[tuple[int, ...], ...], what: str) -> None:
    with pytest.raises(ShapeError, match=what):
        run_graph(contract.graph, [np.zeros(s, np.float32) for s in shapes])


def test_broadcasting_at_run_time() -> None:
    x, z = floats(2, 4), floats(1)
    (found,) = run_graph(contract.graph, [x, floats(8), z])
    np.testing.assert_array_equal(found, x + z)


def test_arguments() -> None:
    with pytest.raises(ShapeError, match="`total` takes 2 arguments, 1 given"):
        run_graph(total.graph, [floats(3)])
    with pytest.raises(ShapeError, match="argument `x` has dtype f64, f32 is expected"):
        run_graph(total.graph, [np.zeros(3), 1])
    with pytest.raises(ShapeError, match="argument `x` is an object of type `list`, an array is expected"):
        run_graph(total.graph, [[1.0], 1])


# Passes.


def test_inlining_keeps_contracts_checked() -> None:
    graph = inline_functions(decode.graph)
    assert not any(isinstance(node, CallFunction) for node in walk_nodes(graph.nodes))
    with pytest.raises(ShapeError, match=r"and the contract says small in 1\.\.8 step 2"):
        run_graph(graph, [np.zeros((5, 4), np.float32), floats(3, 4)])
    with pytest.raises(ShapeError, match="dim 1 of argument `x` is 5, 4 is expected"):
        run_graph(graph, [np.zeros((5, 4), np.float32), floats(2, 5)])


def test_inlining_inside_of_bodies() -> None:
    @function
    def f(x: Tensor[f32, 2, 4], steps: i64) -> Tensor[f32, 2, 4]:
        i = 0
        while i < steps:
            if i > 0:
                x = normalize(normalize(x, 1.0), 3.0)
            i += 1
        return x

    graph = inline_functions(f.graph)
    verify(graph)
    assert not any(isinstance(node, CallFunction) for node in walk_nodes(graph.nodes))
    x = floats(2, 4)
    np.testing.assert_array_equal(run_graph(graph, [x, 3])[0], run_graph(f.graph, [x, 3])[0])


def test_inlining_dims_that_the_callee_defines() -> None:
    u = dim("u", max=100)

    @function
    def inner(x: Tensor[f32, n, m]) -> tuple[Tensor[f32, u], Tensor[f32, u * 2]]:
        y = match_cast(ops.sum(x, axis=1), Tensor[f32, u])
        return y, ops.concat([y, y])

    @function
    def outer(x: Tensor[f32, n, m]) -> Tensor[f32, n]:
        a, b = inner(x)
        c, d = inner(x)
        return match_cast(ops.slice(b, 0, 0, a.shape[0]), Tensor[f32, n]) + match_cast(c, Tensor[f32, n])

    graph = inline_functions(outer.graph)
    verify(graph)
    verify(dead_code(graph))
    x = floats(3, 2)
    expected = x.sum(axis=1) * 2
    for g in (outer.graph, graph, dead_code(graph)):
        np.testing.assert_allclose(run_graph(g, [x])[0], expected, rtol=1e-5)


def test_dead_code_keeps_what_defines_dims_and_what_is_asserted() -> None:
    u = dim("u")

    @function
    def f(x: Tensor[f32, n], y: Tensor[f32, m]) -> Tensor[f32, u]:
        dead = ops.exp(x)
        defines = match_cast(x, Tensor[f32, u])
        asserted = match_cast(y, Tensor[f32, 4])
        return ops.full([u], 1.0)

    graph = dead_code(f.graph)
    verify(graph)
    kept = [node for node in graph.nodes if isinstance(node, MatchCast)]
    assert [node.outs[0].name for node in kept] == ["defines", "asserted"]
    assert not any(isinstance(node, Op) and node.op == "exp" for node in graph.nodes)
    assert dead_code(graph) is graph


def test_dead_code_prunes_branches() -> None:
    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        if n > 4:
            a = ops.exp(x)
            b = ops.silu(x)
        else:
            a = x
            b = ops.neg(x)
        return b

    graph = dead_code(f.graph)
    verify(graph)
    assert [node.op for node in walk_nodes(graph.nodes) if isinstance(node, Op)] == ["scalar", "silu", "neg"]
    np.testing.assert_array_equal(run_graph(graph, [floats(3)])[0], -floats(3))
