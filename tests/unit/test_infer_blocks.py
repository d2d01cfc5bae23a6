"""Plain loops become blocks where that is certain, and stay as they are elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import pliant
from pliant import InOut, Out, Tensor, block, dim, f32, grid, i32, kernel
from pliant.interp.loop import run_loop
from pliant.loop.attributes import SCHEDULED
from pliant.loop.passes.infer_blocks import infer_blocks
from pliant.loop.stmt import Block, walk_stmts
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify

n, m = dim("n"), dim("m")


@kernel
def square(x: Tensor[f32, n, m], y: Out[f32, n, m]) -> None:
    for i in range(n):
        for j in range(m):
            t = x[i, j] * 2.0
            y[i, j] = t * t


@kernel
def square_block(x: Tensor[f32, n, m], y: Out[f32, n, m]) -> None:
    for i, j in grid(n, m):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = x[vi, vj] * 2.0 * (x[vi, vj] * 2.0)


@kernel
def row_sums(x: Tensor[f32, n, m], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = 0.0
        for j in range(m):
            y[i] += x[i, j]


@kernel
def axpy(a: f32, x: Tensor[f32, n], y: InOut[f32, n]) -> None:
    for i in range(n):
        y[i] = a * x[i] + y[i]


@kernel
def running(x: Tensor[f32, n], y: InOut[f32, n]) -> None:
    for i in range(1, n):
        y[i] = x[i] + y[i - 1]


@kernel
def scatter(x: Tensor[f32, n], to: Tensor[i32, n], y: InOut[f32, n]) -> None:
    for i in range(n):
        y[to[i]] = x[i]


@kernel
def last(x: Tensor[f32, n], y: InOut[f32, 1]) -> None:
    for i in range(n):
        y[0] = x[i]


@kernel
def triangle(x: Tensor[f32, n, n], y: InOut[f32, n, n]) -> None:
    for i in range(n):
        for j in range(i):
            y[i, j] = x[i, j]


@kernel
def guarded(x: Tensor[f32, n], y: InOut[f32, n]) -> None:
    for i in range(n):
        if x[i] > 0.0:
            y[i] = x[i]


@kernel
def part(x: Tensor[f32, n], y: InOut[f32, n]) -> None:
    for i in range(n // 2):
        y[i] = x[i]


def kinds(k: pliant.Kernel) -> list[tuple[str, str]]:
    """The blocks of a kernel after inference: names, and kinds of iterators."""
    func = infer_blocks(k.func)
    verify(func)
    return [(s.name, "".join(i.kind for i in s.iters)) for s in walk_stmts(func.body) if isinstance(s, Block)]


def test_what_becomes_a_block() -> None:
    assert_same(infer_blocks(square.func), square_block.func.with_(name="square"))
    assert kinds(row_sums) == [("y", "S"), ("y_1", "SR")]
    assert kinds(axpy) == [("y", "S")]


@pytest.mark.parametrize("k", [running, scatter, last, triangle, guarded, part], ids=lambda k: k.__name__)
def test_what_stays_as_it_is(k: pliant.Kernel) -> None:
    assert infer_blocks(k.func) is k.func


def test_a_program_scheduled_by_hand_stays_as_it_is() -> None:
    func = axpy.func.with_(attrs=SCHEDULED)
    assert infer_blocks(func) is func


@pytest.mark.parametrize("k", [square, row_sums, axpy, running, scatter, last, triangle, guarded, part], ids=lambda k: k.__name__)
@pytest.mark.parametrize("size", [0, 1, 7, 100])
def test_results_are_those_of_the_interpreter(k: pliant.Kernel, size: int) -> None:
    rng = np.random.default_rng(size)
    arguments = []
    for p in k.func.params:
        shape = tuple(3 if e is m else size if e is n else e.value for e in getattr(p.value, "shape", ()))
        if p.value.dtype is i32:
            arguments.append(rng.permutation(size).astype(np.int32))
        else:
            arguments.append(rng.standard_normal(shape).astype(np.float32) if hasattr(p.value, "shape") else np.float32(0.5))
    expected = [np.array(a) for a in arguments]
    run_loop(k.func, expected)
    given = [np.array(a) for a, p in zip(arguments, k.func.params, strict=True) if p.role != "out"]
    if not any(p.value.dtype is f32 and not hasattr(p.value, "shape") for p in k.func.params):
        result = k(*given)
    else:
        result = k(0.5, *given[1:])
    np.testing.assert_allclose(result, expected[-1], rtol=1e-5, atol=1e-6)
