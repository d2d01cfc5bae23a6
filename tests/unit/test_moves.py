"""Moves in the loads and stores of templates: which are done there, which are not, and that the program means the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiled_graphs import compiled, lowered
from pliant import Tensor, dim, f32, function, ops
from pliant.graph import node as g
from pliant.interp.graph import run_graph
from pliant.loop.analysis.proof import unproved_accesses
from pliant.lower.callee import func_of
from pliant.lower.fusion.fuse import fuse
from pliant.pipeline import steps_to

b, n = dim("b", max=8), dim("n", max=64)
BEFORE = steps_to("rematerialize")


def attention(q: Any, k: Any, v: Any) -> Any:
    """Attention in f64, by its formula."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)


def kernels(f: Any, arguments: Sequence[Any], expected: Sequence[Any]) -> list[str]:
    """The loop programs after fusion; interpreted and as native code the function gives what is expected, and accesses are in range."""
    after = fuse(lowered(f.graph, BEFORE).function)
    run = compiled(f.graph)(*arguments)
    for found in (run_graph(after, list(arguments)), run if isinstance(run, tuple) else [run]):
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6)
    calls = [m for m in g.walk_nodes(after.nodes) if isinstance(m, g.CallLoop)]
    assert [a for m in calls for a in unproved_accesses(func_of(m.callee), tuple(r.cond for r in m.requires))] == []
    return [m.callee.name for m in calls]


def test_heads_are_taken_from_one_product_and_put_side_by_side() -> None:
    @function
    def f(x: Tensor[f32, b, n, 12, 8]) -> Tensor[f32, b, n, 4, 8]:
        q = ops.permute(ops.slice(x, 2, 0, 4), (0, 2, 1, 3))
        k = ops.permute(ops.slice(x, 2, 4, 8), (0, 2, 1, 3))
        v = ops.permute(ops.slice(x, 2, 8, 12), (0, 2, 1, 3))
        return ops.permute(ops.scaled_dot_product_attention(q, k, v), (0, 2, 1, 3))

    for shape in ((2, 7), (1, 13), (3, 1)):
        x = random(*shape, 12, 8)
        q, k, v = (x[:, :, i : i + 4].swapaxes(1, 2) for i in (0, 4, 8))
        # Values are read again for each tile of queries, so they are copied.
        assert kernels(f, [x], [attention(q, k, v).swapaxes(1, 2)]) == ["slice_permute", "scaled_dot_product_attention"]


def test_what_somebody_else_reads_is_moved_in_memory() -> None:
    @function
    def f(x: Tensor[f32, n, 2, 8], k: Tensor[f32, 2, n, 8]) -> tuple[Tensor[f32, 2, n, 8], Tensor[f32, n, 2, 8], Tensor[f32, 2, n, 8]]:
        q = ops.permute(x, (1, 0, 2))
        y = ops.scaled_dot_product_attention(q, k, k)
        return q, ops.permute(y, (1, 0, 2)), y

    x, k = random(5, 2, 8), random(2, 5, 8, seed=1)
    q = x.swapaxes(0, 1)
    y = attention(q, k, k)
    assert kernels(f, [x, k], [q, y.swapaxes(0, 1), y]) == ["permute", "scaled_dot_product_attention", "permute"]


def test_one_value_as_keys_and_values_is_copied_for_both() -> None:
    @function
    def f(q: Tensor[f32, 2, n, 8], x: Tensor[f32, n, 2, 8]) -> Tensor[f32, 2, n, 8]:
        k = ops.permute(x, (1, 0, 2))
        return ops.scaled_dot_product_attention(q, k, k)

    q, x = random(2, 9, 8), random(9, 2, 8, seed=1)
    k = x.swapaxes(0, 1)
    assert kernels(f, [q, x], [attention(q, k, k)]) == ["permute", "scaled_dot_product_attention"]


def test_what_computes_is_no_move() -> None:
    @function
    def f(x: Tensor[f32, n, 2, 8], k: Tensor[f32, 2, n, 8]) -> Tensor[f32, 2, n, 8]:
        return ops.scaled_dot_product_attention(ops.permute(x * 2.0, (1, 0, 2)), k, k) * 3.0

    x, k = random(6, 2, 8), random(2, 6, 8, seed=1)
    expected = attention(x.swapaxes(0, 1) * 2, k, k) * 3
    assert kernels(f, [x, k], [expected]) == ["mul", "scaled_dot_product_attention", "mul"]


def test_part_of_a_result_is_taken_from_memory() -> None:
    @function
    def f(q: Tensor[f32, 2, n, 8], k: Tensor[f32, 2, n, 8]) -> Tensor[f32, 1, n, 8]:
        return ops.slice(ops.scaled_dot_product_attention(q, k, k), 0, 1, 2)

    q, k = random(2, 5, 8), random(2, 5, 8, seed=1)
    assert kernels(f, [q, k], [attention(q, k, k)[1:]]) == ["scaled_dot_product_attention", "slice"]


def test_the_first_columns_of_a_result_are_no_permutation_of_it() -> None:
    @function
    def f(q: Tensor[f32, 2, n, 8], k: Tensor[f32, 2, n, 8], v: Tensor[f32, 2, n, 16]) -> Tensor[f32, 2, n, 15]:
        return ops.slice(ops.scaled_dot_product_attention(q, k, v), 2, 0, 15)

    q, k, v = random(2, 5, 8), random(2, 5, 8, seed=1), random(2, 5, 16, seed=2)
    assert kernels(f, [q, k, v], [attention(q, k, v)[:, :, :15]]) == ["scaled_dot_product_attention", "slice"]
