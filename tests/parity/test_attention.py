"""Attention in tiles: against numpy in f64, and that a query's result depends on nothing but the query, the keys and the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from compiled_graphs import host_of
from pliant import Tensor, bool_, dim, f32, function, ops
from pliant.sym.expr import free_vars

b = dim("b")
n = dim("n")
m = dim("m")


@function
def causal(q: Tensor[f32, b, 4, n, 40], k: Tensor[f32, b, 2, m, 40], v: Tensor[f32, b, 2, m, 16]) -> Tensor[f32, b, 4, n, 16]:
    return ops.scaled_dot_product_attention(q, k, v, is_causal=True, offset=m - n)


@function
def sliding(q: Tensor[f32, b, 4, n, 8], k: Tensor[f32, b, 4, m, 8], v: Tensor[f32, b, 4, m, 8]) -> Tensor[f32, b, 4, n, 8]:
    return ops.scaled_dot_product_attention(q, k, v, is_causal=True, window=70)


@function
def masked(
    q: Tensor[f32, b, 2, n, 16], k: Tensor[f32, b, 2, m, 16], v: Tensor[f32, b, 2, m, 8], mask: Tensor[bool_, b, 1, n, m]
) -> Tensor[f32, b, 2, n, 8]:
    return ops.scaled_dot_product_attention(q, k, v, mask)


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def expected(q: Any, k: Any, v: Any, seen: Any) -> Any:
    """Attention in f64, by its formula."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = np.where(seen, q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    with np.errstate(all="ignore"):
        weights = np.nan_to_num(np.exp(scores - scores.max(-1, keepdims=True)), nan=0.0)
        return weights @ v / np.maximum(weights.sum(-1, keepdims=True), 1e-300)


@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (5, 64), (7, 65), (13, 130), (64, 64), (131, 131), (9, 600)])
def test_causal_heads_that_share_keys(rows: int, keys: int) -> None:
    q, k, v = random(2, 4, rows, 40), random(2, 2, keys, 40, seed=1), random(2, 2, keys, 16, seed=2)
    seen = np.arange(keys) <= np.arange(rows)[:, None] + keys - rows
    np.testing.assert_allclose(pliant.compile(causal)(q, k, v), expected(q, k, v, seen), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("count", [3, 71, 200])
def test_a_window(count: int) -> None:
    q, k, v = (random(1, 4, count, 8, seed=s) for s in range(3))
    place, key = np.arange(count)[:, None], np.arange(count)
    seen = (key <= place) & (key > place - 70)
    np.testing.assert_allclose(pliant.compile(sliding)(q, k, v), expected(q, k, v, seen), rtol=2e-5, atol=2e-6)


def test_a_query_alone_equals_the_query_in_a_batch() -> None:
    f = pliant.compile(causal)
    q, k, v = random(2, 4, 100, 40), random(2, 2, 100, 40, seed=1), random(2, 2, 100, 16, seed=2)
    whole = f(q, k, v)
    for i in (0, 5, 63, 64, 66, 99):
        alone = f(q[1:, :, i : i + 1].copy(), k[1:, :, : i + 1].copy(), v[1:, :, : i + 1].copy())
        assert np.asarray(alone).tobytes() == whole[1:, :, i : i + 1].tobytes()


@function
def recent(q: Tensor[f32, b, 2, n, 16], k: Tensor[f32, b, 1, m, 16], v: Tensor[f32, b, 1, m, 8]) -> Tensor[f32, b, 2, n, 8]:
    return ops.scaled_dot_product_attention(q, k, v, is_causal=True, window=70, offset=m - n)


@pytest.mark.parametrize("f", [causal, recent], ids=lambda f: f.graph.name)
def test_it_does_not_matter_which_ranges_the_other_queries_of_a_tile_visit(f: Any) -> None:
    heads, d, e = (4, 40, 16) if f is causal else (2, 16, 8)
    q, k, v = random(1, heads, 700, d), random(1, heads // 2, 700, d, seed=1), random(1, heads // 2, 700, e, seed=2)
    g = pliant.compile(f)
    whole = g(q, k, v)
    for i in (*range(66, 74), 255, 256, 257, *range(322, 334), 580, 699):  # where ranges begin, and where windows leave one
        alone = g(q[:, :, i : i + 1].copy(), k[:, :, : i + 1].copy(), v[:, :, : i + 1].copy())
        assert np.asarray(alone).tobytes() == whole[:, :, i : i + 1].tobytes()


def test_threads_do_not_matter() -> None:
    f = pliant.compile(sliding)
    arguments = [random(2, 4, 150, 8, seed=s) for s in range(3)]
    with pliant.threads(1):
        one = f(*arguments)
    with pliant.threads(2):
        assert f(*arguments).tobytes() == one.tobytes()


def test_queries_that_see_nothing_and_scores_that_are_no_numbers() -> None:
    q, k, v = random(1, 2, 9, 16), random(1, 2, 80, 16, seed=1), random(1, 2, 80, 8, seed=2)
    q[0, 0, 2] = np.nan
    mask = np.random.default_rng(3).random((1, 1, 9, 80)) < 0.5
    mask[0, 0, 4] = False
    found = pliant.compile(masked)(q, k, v, mask)
    assert np.isnan(found[0, 0, 2]).all() and not np.isnan(found[0, 1]).any()
    assert (found[0, :, 4] == 0).all()
    wanted = expected(q, k, v, mask)
    np.testing.assert_allclose(found[:, 1:], wanted[:, 1:], rtol=2e-5, atol=2e-6)


def test_there_is_no_matrix_of_scores() -> None:
    sizes = [t.bytes for t in host_of(masked.graph).temporaries]
    assert sizes and "n" not in {v.name for e in sizes for v in free_vars(e)}


def test_no_heads_of_keys_for_those_of_queries() -> None:
    shared = dim("shared")

    @function
    def f(q: Tensor[f32, b, 4, n, 8], k: Tensor[f32, b, shared, m, 8], v: Tensor[f32, b, shared, m, 8]) -> Tensor[f32, b, 4, n, 8]:
        return ops.scaled_dot_product_attention(q, k, v)

    q, k = random(1, 4, 3, 8), random(1, 2, 5, 8, seed=1)
    np.testing.assert_allclose(f(q, k, k), expected(q, k, k, True), rtol=1e-5, atol=1e-6)
    with pytest.raises(pliant.ShapeError, match="4 heads of queries cannot share `shared` of keys evenly"):
        f(q, k[:, :0], k[:, :0])
