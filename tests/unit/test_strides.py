"""Parameters with strides at the border of compiled programs: what they admit, what they bind, what they refuse; against numpy's views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from compiled_graphs import compiled
from pliant import InOut, Out, State, Tensor, block, dim, f32, function, grid, kernel, match_cast, ops, strides
from pliant.graph.structural import assert_same
from pliant.interp.graph import run_graph
from pliant.program import Program

n, m, s, t = dim("n"), dim("m"), dim("s", min=1), dim("t")
Array = np.ndarray[Any, Any]


@kernel
def columns(x: Tensor[f32, n, 4, strides(1, n)], y: Out[f32, n, 4]) -> None:
    for i in range(n):
        for j in range(4):
            y[i, j] = x[i, j] * 2.0


@kernel
def add_rows(x: Tensor[f32, n, m, strides(s, 1)], total: InOut[f32, n, m, strides(t, 1)], y: Out[f32, n, m, strides(s, 1)]) -> None:
    for i, j in grid(n, m):
        with block("y", "SS", i, j) as (vi, vj):
            total[vi, vj] = total[vi, vj] + x[vi, vj]
            y[vi, vj] = x[vi, vj] * 2.0


@kernel
def doubled(x: Tensor[f32, n, m], y: Out[f32, n, m, strides(t, 1)]) -> None:
    for i, j in grid(n, m):
        y[i, j] = x[i, j] * 2.0


def random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def both(f: Any, arguments: list[Array]) -> list[Array]:
    """The results of native code, after a look that the interpreter has the same, state included."""
    entry = f.graph if hasattr(f, "graph") else Program.of_kernel(f.func).entry
    other = [a.copy() if a.flags.c_contiguous else _same_strides(a) for a in arguments]
    expected = run_graph(entry, other)
    found = compiled(entry)(*arguments)
    results = list(found) if isinstance(found, tuple) else [found]
    for a, b in zip([*results, *arguments], [*expected, *other], strict=True):
        np.testing.assert_array_equal(a, b)
    return results


def _same_strides(a: Array) -> Array:
    base = a.base if isinstance(a.base, np.ndarray) else a
    offset = a.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return np.ndarray(a.shape, a.dtype, base.copy(order="K").tobytes("A"), offset, a.strides).copy(order="K")


def test_fixed_strides_take_a_transpose_without_a_copy() -> None:
    x = random(4, 3).T
    (y,) = both(columns, [x])
    np.testing.assert_array_equal(y, x * 2)
    f = pliant.compile(columns)
    assert "x: Tensor[f32, n, 4, strides(1, n)]" in str(f.contract)
    with pytest.raises(pliant.ShapeError, match=r"argument `x`: stride 0 is 4, expected 1"):
        f(random(3, 4))
    assert f.contract.check({"x": x}) == {"n": 3}
    with pytest.raises(pliant.ShapeError, match="stride 0 is 4, expected 1"):
        f.contract.check({"x": (3, 4)})


@pytest.mark.parametrize("rows", [0, 1])
def test_strides_along_which_no_step_is_made_say_nothing(rows: int) -> None:
    x = random(rows, 4)
    np.testing.assert_array_equal(compiled(Program.of_kernel(columns.func).entry)(x), x * 2)
    total = np.ones((rows, 4), np.float32)
    _, y = compiled(Program.of_kernel(add_rows.func).entry)(x, total)
    np.testing.assert_array_equal(y, x * 2)
    np.testing.assert_array_equal(total, x + 1)


def test_symbols_are_bound_by_strides_and_state_is_updated_where_it_lies() -> None:
    f = pliant.compile(add_rows)
    assert [d.name for d in f.dims] == ["n", "m", "s", "t"]
    whole, sums = random(6, 10), random(6, 20)
    before, x, total = sums.copy(), whole[1:5, 2:7], sums[2:, 3:8]
    found, y = f(x, total)
    assert found is total
    np.testing.assert_array_equal(y, x * 2)
    before[2:, 3:8] += x
    np.testing.assert_array_equal(sums, before)  # and nothing around it
    assert f.contract.check({"x": x, "total": total}) == {"n": 4, "m": 5, "s": 10, "t": 20}
    sums = before.copy()
    run_graph(Program.of_kernel(add_rows.func).entry, [x, sums[2:, 3:8]])
    before[2:, 3:8] += x
    np.testing.assert_array_equal(sums, before)


def test_what_strides_refuse() -> None:
    f = pliant.compile(add_rows)
    whole, total = random(6, 10), random(6, 5)
    with pytest.raises(pliant.ShapeError, match="argument `x`: stride 1 is 2, expected 1"):
        f(whole[:, ::2], total)
    with pytest.raises(pliant.ShapeError, match=r"argument `x`: stride 0, `s` = -10 is outside its contract: s in 1.."):
        f(whole[::-1, :5], total)
    one_row = np.lib.stride_tricks.as_strided(total, (6, 5), (0, 4))
    with pytest.raises(pliant.ShapeError, match="several of its elements are one"):
        f(whole[:, :5], one_row)


def test_free_strides_of_an_output_are_contiguous() -> None:
    x = random(3, 5)
    (y,) = both(doubled, [x])
    np.testing.assert_array_equal(y, x * 2)
    assert pliant.compile(doubled).workspace.max == 0  # it is written where it is wanted


def test_text_of_strided_programs() -> None:
    program = Program.of_kernel(add_rows.func)
    again = pliant.parse(str(program))
    assert_same(again.entry, program.entry.with_(name=again.entry.name))
    assert "strides(t, 1)" in str(again.entry)


def test_graph_functions_read_strided_parameters() -> None:
    @function
    def f(x: Tensor[f32, n, m, strides(s, t)], w: Tensor[f32, m, n]) -> tuple[Tensor[f32, n, n], Tensor[f32, n * m], Tensor[f32, n, m]]:
        return ops.relu(x @ w), ops.reshape(x, (n * m,)), doubled(x)

    for x in (random(6, 4), random(4, 6).T, random(12, 8)[::2, ::2]):
        w = random(4, 6)
        product, flat, double = compiled(f.graph)(x, w)
        np.testing.assert_allclose(product, np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(flat, x.ravel())
        np.testing.assert_array_equal(double, x * 2)
        np.testing.assert_array_equal(run_graph(f.graph, [x, w])[1], x.ravel())


def test_strided_kernels_inside_of_functions() -> None:
    @function
    def f(x: Tensor[f32, n, 5], total: State[f32, n, 5]) -> tuple[State[f32, n, 5], Tensor[f32, n, 5]]:
        total, y = add_rows(x * 3.0, total)
        return total, y + 1.0

    x, total = random(3, 5), random(3, 5)
    expected = total + x * 3
    _, y = both(f, [x, total])
    np.testing.assert_allclose(total, expected, rtol=1e-6)
    np.testing.assert_allclose(y, x * 6 + 1, rtol=1e-6)
    with pytest.raises(pliant.ShapeError, match="columns: stride 0 of argument `x` is 4, 1 = 1 is expected"):

        @function
        def wrong(x: Tensor[f32, 3, 4]) -> Tensor[f32, 3, 4]:
            return columns(x)


def test_branches_of_strided_values_are_contiguous() -> None:
    @function
    def f(x: Tensor[f32, n, m, strides(s, t)], c: pliant.bool_) -> Tensor[f32, n, m]:
        if c:
            y = x
        else:
            y = x + 1.0
        return y * 2.0

    x = random(5, 3).T
    for c in (True, False):
        np.testing.assert_array_equal(compiled(f.graph)(x, c), (x if c else x + 1) * 2)


def test_strides_belong_to_parameters() -> None:
    with pytest.raises(pliant.ShapeError, match="only the parameters of a function have strides"):

        @function
        def wrong(x: Tensor[f32, n, m]) -> Tensor[f32, n, m]:
            return match_cast(x, Tensor[f32, n, m, strides(1, n)])

    @function
    def inner(x: Tensor[f32, n, m, strides(s, 1)]) -> Tensor[f32, n, m]:
        return x + 1.0

    with pytest.raises(pliant.ShapeError, match="its parameter `x` has strides, which only a caller from outside can give"):

        @function
        def outer(x: Tensor[f32, n, m]) -> Tensor[f32, n, m]:
            return inner(x)
