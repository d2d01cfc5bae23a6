"""Bodies of parallel loops as functions: what they are given, what they may rely on, and that nothing changes what a program computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import native_loops
import pliant
from pliant import InOut, Out, Tensor, alloc, check, dim, exp, f32, i32, kernel, parallel, u4, u8, vector, view
from pliant.interp.loop import run_loop
from pliant.loop.buffer import Buffer
from pliant.loop.lowering import Machine, lower_func
from pliant.loop.parse import parse_module
from pliant.loop.passes.add_checks import add_checks
from pliant.loop.passes.choose_grain import choose_grain
from pliant.loop.passes.outline_parallel import chunks, is_launch, outline_parallel
from pliant.loop.printer import print_func
from pliant.loop.stmt import Check, For, Func, View, walk_stmts
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify
from pliant.support.errors import Error, InternalError
from pliant.sym.expr import Var

n, m = dim("n", max=64), dim("m", max=64)


@kernel(scheduled=True)
def around(x: Tensor[f32, n, m], scale: Tensor[f32, 4], y: InOut[f32, n, m]) -> None:
    """Lets, a loop and a condition around, a value that is read from memory, a range that does not begin at 0."""
    half = m // 2
    factor = scale[1]
    for part in range(2):
        if part < half:
            for i in parallel(1, n, grain=1):
                for j in range(half):
                    y[i, part * half + j] = exp(x[i, part * half + j]) * factor


@kernel(scheduled=True)
def nested(x: Tensor[f32, n, m], y: Out[f32, n, m]) -> None:
    for i in parallel(n, grain=1):
        for j in parallel(m, grain=1):
            y[i, j] = x[i, j] + 1.0


@kernel(scheduled=True)
def in_lanes(x: Tensor[f32, 4, m], y: Out[f32, 4, m]) -> None:
    for j in vector(4):
        for i in parallel(m, grain=1):
            y[j, i] = x[j, i] * 3.0


@kernel(scheduled=True)
def shared(x: Tensor[f32, n, 4], y: Out[f32, n, 4]) -> None:
    """Memory of the function's own, read by all iterations, and written by each in a place of its own."""
    table = alloc((4,), f32, scope="stack")
    each = alloc((2, 2), f32, scope="stack")
    for j in range(4):
        table[j] = f32(j)
    for t in parallel(2, grain=1):
        each[t, 0] = f32(t)
    for i in parallel(n, grain=1):
        for j in range(4):
            y[i, j] = x[i, j] + table[j] + each[1, 0]


@kernel(scheduled=True)
def by_one(x: Tensor[f32, n], total: Tensor[f32], y: Out[f32, n]) -> None:
    """A buffer without dims is used too."""
    for i in parallel(n, grain=1):
        y[i] = x[i] / (total[()] + 1.0)


@kernel(scheduled=True)
def windows(x: Tensor[f32, n, 8], y: InOut[f32, n, 8]) -> None:
    """Two views of one buffer, one of them of the other: the buffer is passed, and the views are made again."""
    left = view(y[0, 0], (n, 4), strides=(8, 1))
    right = view(y[0, 4], (n, 4), strides=(8, 1))
    inner = view(right[0, 2], (n, 2), strides=(8, 1))
    only = view(x[0, 4], (n, 4), strides=(8, 1))
    for i in parallel(n, grain=1):
        for j in range(4):
            left[i, j] = only[i, j] + right[i, j]
        for j in range(2):
            inner[i, j] = only[i, j]


@kernel(scheduled=True)
def pages(at: InOut[i32, 4], x: Tensor[f32, 16], y: Out[f32, 8]) -> None:
    """The place of a view is read from memory, which changes before the loop: the body uses the view as it was made."""
    page = view(x[at[0]], (4,))
    again = view(page[1], (2,))
    at[0] = 9
    for i in parallel(4, grain=1):
        y[i] = page[i] * 2.0
        y[4 + i] = page[3 - i] + again[i % 2]


PROGRAMS = (around, nested, in_lanes, shared, by_one, windows, pages)


def arguments(func: Func) -> tuple[list[Any], list[int]]:
    """Values for the parameters at n = 5, m = 7."""
    random = np.random.default_rng(3)
    sizes = {"n": 5, "m": 7}
    values: list[Any] = []
    for p in func.params:
        assert isinstance(p.value, Buffer)
        shape = [sizes[e.name] if isinstance(e, Var) else e.value for e in p.value.shape]  # type: ignore[attr-defined]
        values.append(np.full(shape, 3, np.int32) if p.value.dtype is i32 else np.asarray(random.normal(size=shape), np.float32))
    return values, [sizes[v.name] for v in func.symbols]


def results(func: Func, order: Any = "serial") -> list[bytes]:
    values, dims = arguments(func)
    run_loop(func, values, dims, order=order)
    return [v.tobytes() for v in values]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.func.name)
def test_outlined_programs_verify_are_read_back_and_compute_the_same(program: Any) -> None:
    func = choose_grain(program.func, 8)
    after = outline_parallel(func)
    for f in (*chunks(after), after):
        verify(f)
        assert not any(isinstance(s, For) and s.kind == "parallel" and not is_launch(s) for s in walk_stmts(f.body))
    assert outline_parallel(after) is after
    text = print_func(after)
    assert_same(after, parse_module(text)[after.name])
    expected = results(program.func)
    for order in ("serial", "shuffled"):
        assert results(after, order) == expected, text
    for threads in (1, 2):
        values, dims = arguments(program.func)
        native_loops.run(program.func, values, dims, threads=threads)
        assert [v.tobytes() for v in values] == expected


def test_a_chunk_of_several_iterations_is_what_one_call_for_each_does() -> None:
    """What the attribute says: a renderer may pass whole chunks."""
    after = outline_parallel(choose_grain(nested.func, 8))
    (chunk,) = chunks(after)
    x = np.random.default_rng(1).normal(size=(5, 7)).astype(np.float32)
    y = np.zeros((5, 7), np.float32)
    run_loop(chunk, [x, y, 1, 4], [5, 7])
    np.testing.assert_array_equal(y[1:4], x[1:4] + 1)
    assert not y[0].any() and not y[4].any()


def test_a_body_is_given_what_is_known_around_it() -> None:
    (chunk,) = chunks(outline_parallel(choose_grain(around.func, 8)))
    assumed = [str(s.cond) for s in walk_stmts(chunk.body) if isinstance(s, Check)]
    assert assumed == ["half == m // 2", "part >= 0 and part <= 1", "part < half", "i >= 1 and i <= n - 1"]
    assert [p.value.name for p in chunk.params] == ["x", "y", "half", "factor", "part", "begin", "end"]
    assert [p.role for p in chunk.params[:2]] == ["in", "inout"]


def test_the_interpreter_tests_what_a_body_assumes() -> None:
    (chunk,) = chunks(outline_parallel(choose_grain(around.func, 8)))
    x, y = np.ones((5, 7), np.float32), np.empty((5, 7), np.float32)
    run_loop(chunk, [x, y, 3, 2.0, 1, 1, 5], [5, 7])
    for wrong in ([x, y, 2, 2.0, 1, 1, 5], [x, y, 3, 2.0, 2, 1, 5], [x, y, 3, 2.0, 1, 0, 5]):
        with pytest.raises(Error, match="the caller knows this"):
            run_loop(chunk, wrong, [5, 7])


def test_an_assumption_is_tested_in_checked_mode_only() -> None:
    @kernel(scheduled=True)
    def trusting(x: Tensor[f32, n], y: Out[f32, n]) -> None:
        check(n >= 2, "n is {0}", n, kind="assume")
        for i in range(n):
            y[i] = x[i]

    x = np.ones(1, np.float32)
    assert pliant.compile(trusting, cache=False)(x) == x
    with pytest.raises(Error, match="n is 1"):
        pliant.compile(trusting, cache=False, checked=True)(x)
    assert [s.kind for s in walk_stmts(add_checks(trusting.func).body) if isinstance(s, Check) and s.message == "n is {0}"] == ["check"]


def test_views_of_one_buffer_are_made_of_one_parameter() -> None:
    (chunk,) = chunks(outline_parallel(choose_grain(windows.func, 8)))
    assert [b.name for b in chunk.buffers] == ["y", "only"]
    assert [s.buffer.name for s in walk_stmts(chunk.body) if isinstance(s, View)] == ["left", "right", "inner"]


def test_loops_that_would_share_bytes_are_serial() -> None:
    """Iterations write elements of 4 bits: where rows are whole bytes they own them, where nothing is known of the stride they do not."""

    @kernel(scheduled=True)
    def rows(x: Tensor[u8, n, 8], y: Out[u4, n, 8]) -> None:
        for i in parallel(n):
            for j in range(8):
                y[i, j] = x[i, j]

    @kernel(scheduled=True)
    def spread(x: Tensor[u8, n, 8], at: Tensor[i32, n], y: InOut[u4, n, 8]) -> None:
        for i in parallel(n):
            for j in range(8):
                y[at[i], j] = x[i, j]

    def launches(program: Any) -> int:
        return len(chunks(outline_parallel(choose_grain(program.func, 8))))

    assert launches(rows) == 1
    assert launches(spread) == 0


def test_a_parallel_loop_that_is_no_launch_does_not_reach_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from pliant.codegen.llvm import generate
    from pliant.loop.lowering import LOOP_PASSES
    from pliant.target import target

    monkeypatch.setattr("pliant.loop.lowering.LOOP_PASSES", [p for p in LOOP_PASSES if p.name != "outline_parallel"])
    with pytest.raises(InternalError, match="parallel loop `i` was not outlined"):
        generate([nested.func], target("llvm:x86-64-v3"))


def test_chunks_have_disjoint_parameters_and_take_only_what_they_use() -> None:
    from pliant.codegen.llvm import generate
    from pliant.target import target

    text = generate([windows.func], target("llvm:x86-64-v3")).text
    (head,) = [line for line in text.splitlines() if line.startswith('define internal i32 @"windows_i.inner"')]
    assert head.count("ptr noalias") == 2
    text = generate([around.func], target("llvm:x86-64-v3")).text
    (head,) = [line for line in text.splitlines() if line.startswith('define internal i32 @"around_i.inner"')]
    assert head.count("float") == 1  # `factor`
    assert head.count("i64") == 2 + 3  # begin and end; half, part and the stride m, while of n only facts are known


def test_text_shows_a_launch() -> None:
    func = lower_func(nested.func, Machine())
    assert "nested_i(x, y, i, i + 1)" in print_func(func)
