"""Inline functions: pieces of loop programs that are expanded where they are called, and what Python decides in their expansion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Out, Tensor, alloc, block, check, dim, f32, grid, i64, kernel, parallel, unroll, vector
from pliant.loop.attributes import FuncAttrs
from pliant.loop.buffer import Buffer
from pliant.loop.inline import compile_time, inline
from pliant.loop.stmt import Block, Call, For, Func, If, Let, Param, walk_stmts
from pliant.sym.expr import Const, Expr, Lt, Var

n, m = dim("n"), dim("m")
X = np.random.default_rng(5).standard_normal((5, 8), dtype=np.float32)


def expanded(kernel: Any) -> list[Any]:
    return list(walk_stmts(kernel.func.body))


@inline
def clear(x: Any, row: Any, count: Any) -> None:
    for j in range(count):
        x[row, j] = 0.0


@inline
def twice(e: Any) -> Any:
    return e + e


def test_statements_and_expressions_are_expanded_in_place() -> None:
    @kernel(scheduled=True)
    def k(x: Tensor[f32, n, m], y: Out[f32, n, m]) -> None:
        for i in range(n):
            clear(y, i, m)
            for j in range(m):
                y[i, j] += twice(x[i, j]) * 3.0

    assert not any(isinstance(s, Call) for s in expanded(k))
    assert np.array_equal(k(X), (X + X) * np.float32(3))


def test_an_inline_function_takes_others_and_names_of_its_python_scope() -> None:
    FACTOR = 4.0

    @inline
    def scaled(x: Any, i: Any) -> Any:
        return x[i, 1] * FACTOR

    @inline
    def fill(y: Any, load: Any, source: Any) -> None:
        for i in range(n):
            local = load(source, i)
            y[i] = local - 1.0

    @kernel(scheduled=True)
    def k(x: Tensor[f32, n, 8], y: Out[f32, n]) -> None:
        fill(y, scaled, x)
        fill(y, load=scaled, source=x)  # locals of two expansions do not meet

    assert np.array_equal(k(X), X[:, 1] * np.float32(4) - np.float32(1))


def test_a_function_inside_sees_loops_and_buffers() -> None:
    @inline
    def apply(y: Any, at: Any, count: Any, element: Any, put: Any) -> None:
        for x in range(count):
            put(x, element(x) * 2.0)

    @inline
    def one(x: Any, y: Any, r: Any) -> None:
        shift = alloc((1,), f32, scope="stack")
        shift[0] = x[r, 0]
        (row := r)

        def element(j: Any) -> Any:
            return x[r, j] - shift[0]

        def put(r: Any, e: Any) -> None:  # its own `r`
            y[row, r] = e

        apply(y, r, 8, element, put)

    @inline
    def rows(x: Any, y: Any) -> None:
        for r in range(n):
            one(x, y, r)

    @kernel(scheduled=True)
    def k(x: Tensor[f32, n, 8], y: Out[f32, n, 8]) -> None:
        rows(x, y)

    assert np.array_equal(k(X), (X - X[:, :1]) * np.float32(2))


@pytest.mark.parametrize("negative", [False, True])
def test_conditions_that_python_knows_are_decided(negative: bool) -> None:
    nothing: Any = None  # a branch that is not taken is not parsed

    @inline
    def put(y: Any, i: Any, e: Any) -> None:
        if negative:
            y[i] = -e
        elif not negative or nothing:
            y[i] = e + (1.0 if not negative else nothing[i])
        if i < 3 and not negative:
            y[i] = 0.0

    @kernel(scheduled=True)
    def k(x: Tensor[f32, n, 8], y: Out[f32, n]) -> None:
        for i in range(n):
            put(y, i, x[i, 0])

    want = -X[:, 0] if negative else np.where(np.arange(5) < 3, np.float32(0), X[:, 0] + np.float32(1))
    assert np.array_equal(k(X), want)
    assert sum(isinstance(s, If) for s in expanded(k)) == (not negative)


def test_a_loop_over_a_python_tuple_is_written_out() -> None:
    @inline
    def tree(lanes: Any) -> None:
        for half in (4, 2, 1):
            for x in vector(half):
                lanes[x] = lanes[x] + lanes[x + half]

    @kernel(scheduled=True)
    def sums(x: Tensor[f32, n, 8], y: Out[f32, n]) -> None:
        for i in parallel(n):
            lanes = alloc((8,), f32, scope="stack")
            for j in unroll(8):
                lanes[j] = x[i, j]
            tree(lanes)
            y[i] = lanes[0]

    halves = X[:, :4] + X[:, 4:]
    quarters = halves[:, :2] + halves[:, 2:]
    assert np.array_equal(sums(X), quarters[:, 0] + quarters[:, 1])
    assert [s.stop.value for s in expanded(sums) if isinstance(s, For) and s.kind == "vector"] == [4, 2, 1]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1, 3)])
def test_the_rank_may_be_computed(shape: tuple[int, ...]) -> None:
    x = Buffer("x", f32, (*(Const(e, i64) for e in shape), Const(4, i64)))
    ENDS = (0, 1)
    y = Buffer("y", f32, tuple(Const(e, i64) for e in shape))

    @compile_time
    def swapped(*pair: Expr) -> tuple[Expr, ...]:
        return pair[::-1]

    @inline
    def rows() -> None:
        t = alloc((*shape, 2), f32)
        for i, j in grid(*shape, 2):
            t[*i, j] = x[*i, j] + x[*i, j + 2]
        for i in grid(*shape):
            y[*swapped(*swapped(*i))] = last(t, i)

    @inline
    def last(t: Any, i: Any) -> Any:
        return t[*i[:], ENDS[-1]] - t[*i, 0]

    func = Func("rows", (Param(x), Param(y, "out")), rows.statements())
    data = np.random.default_rng(1).standard_normal((*shape, 4), dtype=np.float32)
    half = data[..., :2] + data[..., 2:]
    assert np.array_equal(pliant.compile(pliant.api.Kernel(func))(data), half[..., 1] - half[..., 0])
    assert all(s.span is None for s in walk_stmts(func.body))


def test_compile_time_functions_run_in_python() -> None:
    @compile_time
    def flat(i: Expr, j: Expr, extent: int) -> Expr:
        assert isinstance(i, Var)
        return j * 1 + i * extent

    @kernel(scheduled=True)
    def k(x: Tensor[f32, 40], y: Out[f32, 5, 8]) -> None:
        for i, j in grid(5, 8):
            y[i, j] = x[flat(i, j, 8)]

    assert np.array_equal(k(X.reshape(40)), X)


def test_errors_point_into_the_function_or_at_the_call() -> None:
    with pytest.raises(pliant.Error, match=r"`clear`: missing a required argument: 'count'"):

        @kernel
        def wrong(y: Out[f32, n, m]) -> None:
            for i in range(n):
                clear(y, i)

    @inline
    def mixed(i: Any, e: Any) -> Any:
        return i + e

    with pytest.raises(pliant.Error, match=r"different types: i64 and f32") as caught:

        @kernel
        def types(x: Tensor[f32, n], y: Out[f32, n]) -> None:
            for i in range(n):
                y[i] = mixed(i, x[i])

    assert "return i + e" in str(caught.value)
    with pytest.raises(pliant.Error, match=r"this expression does nothing"):

        @kernel
        def idle(x: Tensor[f32, n], y: Out[f32, n]) -> None:
            for i in range(n):
                twice(x[i])
                y[i] = x[i]


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 3, 4)])
def test_kinds_of_the_outermost_and_the_innermost_loop(shape: tuple[int, ...]) -> None:
    x, y = (Buffer(name, f32, tuple(Const(e, i64) for e in shape)) for name in "xy")

    @inline
    def copy() -> None:
        for i in grid(*shape, outermost="parallel", innermost="vector"):
            y[*i] = x[*i] + 1.0

    func = Func("copy", (Param(x), Param(y, "out")), copy.statements(), FuncAttrs(scheduled=True))
    kinds = {0: [], 1: ["parallel"], 2: ["parallel", "vector"], 3: ["parallel", "serial", "vector"]}
    assert [s.kind for s in walk_stmts(func.body) if isinstance(s, For)] == kinds[len(shape)]
    data = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    assert np.array_equal(pliant.compile(pliant.api.Kernel(func))(data), data + np.float32(1))


@pytest.mark.parametrize("factor", [Const(2.0, f32), Buffer("factor", f32, (Const(4, i64),))], ids=["number", "tensor"])
def test_blocks_of_any_rank_over_tensors_or_scalars(factor: Any) -> None:
    shape, place = (3, 4), (1,) if isinstance(factor, Buffer) else ()
    x, y = (Buffer(name, f32, tuple(Const(e, i64) for e in shape)) for name in "xy")
    KINDS, NAME, MESSAGE = "SO", "scaled", "row {0} of {1}"

    @compile_time
    def own(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(indices[p] for p in place)

    @compile_time
    def inside(i: Expr) -> tuple[Any, ...]:
        return Lt(i, Const(3, i64)), MESSAGE, i, Const(3, i64)

    @inline
    def scaled() -> None:
        for i in grid(*shape):
            with block(NAME, KINDS, *i) as v:
                check(*inside(v[0]))
                y[*v] = x[*v] * factor[*own(v)]

    params = [Param(b) for b in (x, factor) if isinstance(b, Buffer)]
    func = Func("scaled", (*params, Param(y, "out")), scaled.statements())
    (inner,) = (s for s in walk_stmts(func.body) if isinstance(s, Block))
    assert (inner.name, [i.kind for i in inner.iters]) == ("scaled", ["S", "O"])
    data, factors = X[:3, :4].copy(), np.arange(4, dtype=np.float32)
    result = pliant.compile(pliant.api.Kernel(func))(*((data, factors) if place else (data,)))
    assert np.array_equal(result, data * (factors if place else np.float32(2)))


def test_loops_over_tuples_of_tuples() -> None:
    @compile_time
    def numbered(values: tuple[Expr, ...]) -> tuple[tuple[int, Expr], ...]:
        return tuple(enumerate(values))

    @inline
    def places(y: Any, i: Any) -> None:
        for d, e in numbered(i):
            y[*i, d] = e

    @kernel(scheduled=True)
    def k(y: Out[i64, 3, 4, 2]) -> None:
        for i, j in grid(3, 4):
            places(y, (i, j))

    assert np.array_equal(k(), np.moveaxis(np.indices((3, 4)), 0, -1))


def test_errors_of_loops_and_blocks_of_any_rank() -> None:
    shape = (2, 3)
    y: Any = Buffer("y", f32, tuple(Const(e, i64) for e in shape))

    @inline
    def names() -> None:
        for i, j in grid(*shape):
            y[*i] = j

    @inline
    def letters() -> None:
        for i in grid(*shape):
            with block("y", "S", *i) as v:
                y[*v] = 0.0

    @inline
    def parts() -> None:
        for a, b in shape:
            y[a, b] = 0.0

    @inline
    def kinds() -> None:
        for i in grid(*shape, outermost="fast"):
            y[*i] = 0.0

    cases = {names: "2 names for 1 loop variable", letters: 'the kinds "S" for 2 iterators', parts: "no names for 1 value", kinds: '"fast"'}
    for function, message in cases.items():
        with pytest.raises(pliant.Error, match=message):
            function.statements()


def test_a_tuple_of_values_is_computed_once_and_spread() -> None:
    @compile_time
    def swapped(pair: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return pair[::-1]

    @inline
    def turned(x: Any, y: Any, i: Any, j: Any) -> None:
        at = swapped((i + 0, j * 1))
        y[*at] = x[i, j]

    @kernel(scheduled=True)
    def k(x: Tensor[f32, 5, 8], y: Out[f32, 8, 5]) -> None:
        for i, j in grid(5, 8):
            turned(x, y, i, j)

    lets = [s for s in expanded(k) if isinstance(s, Let)]
    assert [s.var.name for s in lets] == ["at0", "at1"]
    assert all(isinstance(s.value, Var) for s in lets)  # `+ 0` and `* 1` are gone
    assert np.array_equal(k(X), X.T)


@pytest.mark.parametrize("size", [0, 3, 4])
def test_sizes_that_are_known_decide(size: int) -> None:
    extent = Const(size, i64)
    y: Any = Buffer("y", i64, (extent,))

    @inline
    def halves(count: Any) -> None:
        for i in range(count // 2 * 2):
            y[i] = count % 2
        if count % 2 == 1:
            y[count - 1] = 7

    @inline
    def body() -> None:
        halves(extent)

    func = Func("k", (Param(y, "out"),), body.statements(), FuncAttrs(scheduled=True))
    assert not any(isinstance(s, If) for s in walk_stmts(func.body))
    assert np.asarray(pliant.compile(pliant.api.Kernel(func))()).tolist() == [size % 2] * (size // 2 * 2) + [7] * (size % 2)
