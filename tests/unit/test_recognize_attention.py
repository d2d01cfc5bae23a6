"""The pass that finds attention in products around a softmax: which forms it takes, which it leaves, and what they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, bool_, dim, f32, f64, function, ops
from pliant.graph.node import Op
from pliant.graph.passes.dead_code import dead_code
from pliant.graph.passes.recognize_attention import recognize_attention
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph

b, n, m = dim("b", max=4), dim("n", max=32), dim("m", max=32)
NOTHING, LOW = float("-inf"), float(np.finfo(np.float32).min)


def found(f: Any) -> list[str]:
    after = dead_code(recognize_attention(f.graph))
    verify(after)
    assert recognize_attention(after) is after, "a second time changes nothing"
    return [node.op for node in after.nodes if isinstance(node, Op)]


def truth(q: Any, k: Any, v: Any, scale: float, mask: Any = 0.0) -> Any:
    s = q.astype(np.float64) @ np.swapaxes(k, -1, -2) * scale + mask
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


Queries, Keys, Values = Tensor[f32, b, 2, n, 4], Tensor[f32, b, m, 2, 4], Tensor[f32, b, 2, m, 8]


@function
def by_a_product(q: Queries, k: Keys, v: Values) -> Tensor[f32, b, 2, n, 8]:
    return ops.matmul(ops.softmax(ops.mul(ops.constant(0.25), ops.matmul(q, ops.permute(k, (0, 2, 3, 1)))), -1), v)


@function
def by_a_quotient(q: Queries, k: Keys, v: Values) -> Tensor[f32, b, 2, n, 8]:
    return ops.matmul(ops.softmax(ops.div(ops.matmul(q, ops.permute(k, (0, 2, 3, 1))), 8.0), -1), v)


@function
def not_at_all(q: Queries, k: Keys, v: Values) -> Tensor[f32, b, 2, n, 8]:
    return ops.matmul(ops.softmax(ops.matmul(q, ops.permute(k, (0, 2, 3, 1))), -1), v)


@pytest.mark.parametrize(
    ("f", "scale"), [(by_a_product, 0.25), (by_a_quotient, 0.125), (not_at_all, 1.0)], ids=["product", "quotient", "none"]
)
def test_scales(f: Any, scale: float) -> None:
    assert found(f) == ["permute", "scaled_dot_product_attention"]
    q, k, v = numbers(2, 2, 5, 4), numbers(2, 7, 2, 4), numbers(2, 2, 7, 8)
    wanted = truth(q, k.transpose(0, 2, 1, 3), v, scale)
    np.testing.assert_allclose(f(q, k, v), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run_graph(recognize_attention(f.graph), [q, k, v])[0], wanted, rtol=1e-5, atol=1e-6)


def test_masks_of_finite_numbers_where_a_query_sees_no_key() -> None:
    @function
    def f(
        q: Tensor[f32, b, 2, n, 4], k: Tensor[f32, b, 2, m, 4], v: Tensor[f32, b, 2, m, 8], on: Tensor[bool_, b, m]
    ) -> Tensor[f32, b, 2, n, 8]:
        mask = ops.where(ops.reshape(on, (b, 1, 1, m)), 0.0, LOW)
        return ops.matmul(ops.softmax(ops.add(mask, ops.mul(ops.matmul(q, k, transpose_b=True), 0.5)), -1), v)

    assert found(f)[-1] == "scaled_dot_product_attention"
    q, k, v = numbers(2, 2, 5, 4), numbers(2, 2, 7, 4), numbers(2, 2, 7, 8)
    on = np.array([[True, False, True, True, False, False, True], [False] * 7])
    wanted = truth(q, k, v, 0.5, np.where(on, 0.0, LOW)[:, None, None, :])
    wanted[1] = v[1].mean(axis=1, keepdims=True)  # scores vanish beside the mask: every key counts the same
    np.testing.assert_allclose(f(q, k, v, on), wanted, rtol=1e-5, atol=1e-6)


Q, K, V = Tensor[f32, 2, n, 4], Tensor[f32, 2, m, 4], Tensor[f32, 2, m, 8]


@function
def hides(q: Q, k: K, v: V, on: Tensor[bool_, n, m]) -> Tensor[f32, 2, n, 8]:
    return ops.matmul(ops.softmax(ops.add(ops.matmul(q, k, transpose_b=True), ops.where(on, 0.0, NOTHING)), -1), v)


@function
def chooses(q: Q, k: K, v: V, on: Tensor[bool_, n, m]) -> Tensor[f32, 2, n, 8]:
    return ops.matmul(ops.softmax(ops.where(on, ops.matmul(q, k, transpose_b=True), NOTHING), -1), v)


@function
def fills(q: Q, k: K, v: V, off: Tensor[bool_, n, m]) -> Tensor[f32, 2, n, 8]:
    return ops.matmul(ops.softmax(ops.where(off, NOTHING, ops.matmul(q, k, transpose_b=True)), -1), v)


@function
def lowers(q: Q, k: K, v: V, on: Tensor[bool_, n, m]) -> Tensor[f32, 2, n, 8]:
    return ops.matmul(ops.softmax(ops.where(on, ops.mul(ops.matmul(q, k, transpose_b=True), 1.0), -100.0), -1), v)


@function
def given(q: Q, k: K, v: V, mask: Tensor[f32, n, m]) -> Tensor[f32, 2, n, 8]:
    return ops.matmul(ops.softmax(ops.add(mask, ops.matmul(q, k, transpose_b=True)), -1), v)


def softmax_attention(q: Any, k: Any, v: Any, on: Any, low: float, cap: float = 0.0, scale: float = 1.0) -> Any:
    """Attention by its formula in f64; where all scores are -inf, softmax gives NaN, and an empty sum is zero."""
    s = q.astype(np.float64) @ np.swapaxes(k, -1, -2).astype(np.float64) * scale
    s = np.where(on, np.tanh(s / cap) * cap if cap else s, low)
    with np.errstate(all="ignore"):
        p = np.exp(s - s.max(-1, keepdims=True, initial=NOTHING))
        return p / p.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(
    ("f", "low"),
    [(hides, NOTHING), (chooses, NOTHING), (fills, NOTHING), (lowers, -100.0), (given, NOTHING)],
    ids=["adds", "chooses", "fills", "lowers", "given"],
)
@pytest.mark.parametrize("keys", [0, 7, 31])
def test_masks_from_outside_with_queries_that_see_no_key(f: Any, low: float, keys: int) -> None:
    assert "scaled_dot_product_attention" in found(f) and "softmax" not in found(f)
    q, k, v = numbers(2, 9, 4), numbers(2, keys, 4), numbers(2, keys, 8)
    on = np.random.default_rng(3).random((9, keys)) < 0.6
    on[4] = False
    mask = np.where(on, np.float32(0), np.float32(low)) if f is given else ~on if f is fills else on
    wanted = softmax_attention(q, k, v, on, low)
    assert np.isnan(wanted[:, 4]).all() == (low == NOTHING and keys > 0)
    np.testing.assert_allclose(f(q, k, v, mask), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run_graph(recognize_attention(f.graph), [q, k, v, mask])[0], wanted, rtol=1e-5, atol=1e-6)


@function
def bounded(q: Tensor[f64, 2, n, 4], k: Tensor[f64, 2, m, 4], v: Tensor[f64, 2, m, 8]) -> Tensor[f64, 2, n, 8]:
    scores = ops.div(ops.mul(ops.matmul(q, k, transpose_b=True), 0.5), 3.0)
    return ops.matmul(ops.softmax(ops.mul(3.0, ops.tanh(scores)), -1), v)


def test_scores_with_a_soft_cap_in_f64() -> None:
    assert found(bounded) == ["scaled_dot_product_attention"]
    q, k, v = (numbers(2, rows, width).astype(np.float64) * 3 for rows, width in ((9, 4), (31, 4), (31, 8)))
    np.testing.assert_allclose(bounded(q, k, v), softmax_attention(q, k, v, True, 0.0, 3.0, 0.5), rtol=1e-12, atol=1e-13)


@function
def not_a_cap(q: Q, k: K, v: V) -> Tensor[f32, 2, n, 8]:
    return ops.matmul(ops.softmax(ops.mul(ops.tanh(ops.matmul(q, k, transpose_b=True)), -2.0), -1), v)


@function
def raises_hidden_keys(q: Q, k: K, v: V, on: Tensor[bool_, n, m]) -> Tensor[f32, 2, n, 8]:
    return ops.matmul(ops.softmax(ops.where(on, ops.matmul(q, k, transpose_b=True), -NOTHING), -1), v)


@function
def read_twice(q: Q, k: K, v: V) -> tuple[Tensor[f32, 2, n, 8], Tensor[f32, 2, n, m]]:
    p = ops.softmax(ops.matmul(q, k, transpose_b=True), -1)
    return ops.matmul(p, v), p


@function
def other_axis(q: Q, k: K, v: V) -> Tensor[f32, 2, n, 8]:
    return ops.matmul(ops.softmax(ops.matmul(q, k, transpose_b=True), 1), v)


@function
def large_heads(q: Q, k: K, v: Tensor[f32, 2, m, 513]) -> Tensor[f32, 2, n, 513]:
    return ops.matmul(ops.softmax(ops.matmul(q, k, transpose_b=True), -1), v)


@function
def heads_shared_by_all(q: Q, k: Tensor[f32, 1, m, 4], v: Tensor[f32, 1, m, 8]) -> Tensor[f32, 2, n, 8]:
    return ops.matmul(ops.softmax(ops.matmul(q, k, transpose_b=True), -1), v)


@pytest.mark.parametrize(
    "f", [read_twice, other_axis, large_heads, heads_shared_by_all, not_a_cap, raises_hidden_keys], ids=lambda f: f.graph.name
)
def test_what_is_left(f: Any) -> None:
    assert recognize_attention(f.graph) is f.graph


@function
def of_odd_heads(q: Tensor[f32, b, 2, n, 5], k: Tensor[f32, b, 2, 5, m], v: Tensor[f32, b, 2, m, 15]) -> Tensor[f32, b, 2, n, 15]:
    return ops.matmul(ops.softmax(ops.matmul(q, k), -1), v)


def test_heads_of_odd_sizes_get_columns_of_zeros_which_nobody_sees() -> None:
    assert found(of_odd_heads) == ["permute", "pad", "scaled_dot_product_attention", "slice"]
    q, k, v = numbers(2, 2, 7, 5), numbers(2, 2, 5, 9), numbers(2, 2, 9, 15)
    v[0, 0, 3, 14] = np.inf
    expected = truth(q, np.swapaxes(k, -1, -2), v, 1.0)
    np.testing.assert_allclose(pliant.compile(of_odd_heads)(q, k, v), expected, rtol=1e-5, atol=1e-6)


def test_a_mask_that_is_a_product_may_come_first() -> None:
    @function
    def f(q: Tensor[f32, 2, n, 4], k: Tensor[f32, 2, m, 4], v: Tensor[f32, 2, m, 8], on: Tensor[bool_, m]) -> Tensor[f32, 2, n, 8]:
        hidden = ops.mul(ops.cast(on, f32), -3.0)
        return ops.matmul(ops.softmax(ops.add(hidden, ops.mul(ops.matmul(q, k, transpose_b=True), 0.5)), -1), v)

    assert found(f) == ["cast", "mul", "scaled_dot_product_attention"]
    q, k, v, on = numbers(2, 5, 4), numbers(2, 7, 4), numbers(2, 7, 8), np.arange(7) % 2 == 0
    np.testing.assert_allclose(f(q, k, v, on), truth(q, k, v, 0.5, on * -3.0), rtol=1e-5, atol=1e-6)
