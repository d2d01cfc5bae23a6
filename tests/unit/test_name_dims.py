"""Sizes that loop programs use only as a whole become symbols: which do, what is known of them, and that results stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np

import pliant
from compiled_graphs import lowered
from pliant import Out, Tensor, dim, f32, function, kernel, ops
from pliant.graph.node import CallLoop
from pliant.loop.structural import same
from pliant.loop.verify import verify
from pliant.lower.layout.name_sizes import name_dims
from pliant.lower.schedule_kernels import Kernels
from pliant.pipeline import STEPS
from pliant.sym.expr import DIM_MAX
from pliant.target import target

n = dim("n", min=1)
m = dim("m")
q = dim("q", min=8, max=64, multiple_of=8)


@kernel
def halves(x: Tensor[f32, (n + 1) // 2, 4], y: Out[f32, (n + 1) // 2, 4]) -> None:
    for i in range((n + 1) // 2):
        for j in range(4):
            y[i, j] = x[i, j] * 2.0


@kernel
def whole(x: Tensor[f32, n, 4], y: Out[f32, n, 4]) -> None:
    for i in range(n):
        for j in range(4):
            y[i, j] = x[i, j] * 2.0


@kernel
def both(x: Tensor[f32, n], y: Out[f32, (n + 1) // 2]) -> None:
    for i in range((n + 1) // 2):
        y[i] = x[i * 2]


@kernel
def stated(x: Tensor[f32, q * 2], y: Out[f32, q * 2]) -> None:
    for i in range(q * 2):
        y[i] = x[i] + 1.0


def names(program: Any) -> list[str]:
    named, sizes = name_dims(program.func)
    verify(named)
    return [f"{v.contract} = {sizes.get(v, v)}" for v in named.symbols]


def test_a_size_becomes_a_symbol() -> None:
    assert names(halves) == [f"n in 1..{DIM_MAX} = (n + 1) // 2"]


def test_a_dim_that_stands_alone_stays() -> None:
    named, sizes = name_dims(both.func)
    assert named is both.func
    assert sizes == {}


def test_what_a_contract_says_is_kept() -> None:
    assert names(stated) == ["q in 16..128 step 16 = q * 2"]


def test_programs_that_differ_only_in_their_sizes_are_one() -> None:
    assert same(name_dims(halves.func)[0], whole.func)


def test_layers_of_different_sizes_share_a_kernel() -> None:
    kernels = Kernels(target("native"))
    a, b = kernels.schedule_kernel(name_dims(halves.func)[0], False), kernels.schedule_kernel(whole.func, False)
    assert a is b


def test_results_of_a_chain_of_halves() -> None:
    @function
    def pooled(x: Tensor[f32, 1, 3, n, m]) -> Tensor[f32, 1, 3, (n + 1) // 2, (m + 1) // 2]:
        return ops.exp(x[:, :, ::2, ::2])

    f = pliant.compile(pooled)
    for shape in ((1, 3, 1, 0), (1, 3, 5, 8), (1, 3, 4, 33)):
        x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(f(x), np.exp(x[:, :, ::2, ::2]), rtol=1e-6)


def test_calls_of_like_programs_are_calls_of_one() -> None:
    @function
    def chain(x: Tensor[f32, n, 4]) -> Tensor[f32, (n + 1) // 2, 4]:
        return ops.exp(ops.exp(x)[::2])

    nodes = lowered(chain.graph, [s for s in STEPS if s.name in ("lower_ops", "name_sizes")]).function.nodes
    first, second = (c for c in nodes if isinstance(c, CallLoop) and c.callee.name == "exp")
    assert first.callee.program is second.callee.program
    assert [str(e) for e in (*first.dims, *second.dims)] == ["n", "(n + 1) // 2"]
