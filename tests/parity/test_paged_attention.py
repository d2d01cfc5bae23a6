"""Attention over pages: against numpy in f64, for contexts of several ranges, windows and caps; a token alone is what it is among many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant.llm.kv_cache import PAGE
from pliant.llm.paged import Paged

SHAPES = {
    "plain": Paged(4, 2, 16, 0.25, cache=pliant.f16),
    "window": Paged(2, 1, 16, 0.25, window=300, cache=pliant.f32),
    "cap": Paged(3, 3, 32, 0.2, cap=5.0, cache=pliant.f16),
}
CONTEXT = 700  # tokens: three ranges of 256 keys


class Cache:
    """Random keys and values of one sequence, in pages that are not in order."""

    def __init__(self, shape: Paged, seed: int, sinks: np.ndarray[Any, Any] | None = None) -> None:
        rng = np.random.default_rng(seed)
        self.sinks = np.full(shape.heads, -np.inf, np.float32) if sinks is None else sinks
        self.shape, count = shape, -(-CONTEXT // PAGE)
        kind = np.float16 if shape.cache is pliant.f16 else np.float32
        self.keys, self.values = (rng.standard_normal((count * PAGE, shape.kv_heads, shape.head_dim)).astype(kind) for _ in "kv")
        self.q = rng.standard_normal((CONTEXT, shape.heads, shape.head_dim)).astype(np.float32)
        self.table = rng.permutation(count + 2)[:count].astype(np.int32)
        runs = (-(-(count + 2) // shape.run), 1, shape.run, shape.kv_heads)
        pages = [np.zeros((*runs, *size), kind) for size in ((shape.head_dim, PAGE), (PAGE, shape.head_dim))]
        for place, page in enumerate(self.table):
            rows = slice(place * PAGE, (place + 1) * PAGE)
            pages[0][page // shape.run, 0, page % shape.run] = self.keys[rows].transpose(1, 2, 0)
            pages[1][page // shape.run, 0, page % shape.run] = self.values[rows].transpose(1, 0, 2)
        self.pages = pages

    def attend(self, f: Any, tokens: np.ndarray[Any, Any]) -> Any:
        """The result of neighboring tokens."""
        t, tile = len(tokens), self.shape.tokens
        first, length, sequence = (np.zeros(t, np.int32) for _ in range(3))
        for n, start in enumerate(range(0, t, tile)):
            first[n], length[n] = start, min(tile, t - start)
        return f(self.q[tokens], *self.pages, 0, tokens.astype(np.int32), sequence, first, length, self.table[None], self.sinks)

    def expected(self, token: int) -> np.ndarray[Any, Any]:
        """Softmax of all scores that are seen, in f64."""
        s = self.shape
        low = max(0, token + 1 - s.window) if s.window else 0
        keys, values = (a[low : token + 1].astype(np.float64).repeat(s.group, axis=1) for a in (self.keys, self.values))
        scores = np.einsum("hd,khd->hk", self.q[token].astype(np.float64), keys) * s.scale
        scores = np.tanh(scores / s.cap) * s.cap if s.cap else scores
        best = np.maximum(scores.max(axis=1, keepdims=True), self.sinks[:, None])
        weights = np.exp(scores - best)
        total = weights.sum(axis=1, keepdims=True) + np.exp(self.sinks[:, None] - best)
        return np.einsum("hk,khd->hd", weights / total, values)


@pytest.mark.parametrize(
    ("name", "sinks"),
    [("plain", None), ("window", None), ("cap", None), ("plain", [0.0, -200.0, 3.0, 200.0]), ("window", [1.5, 6.0])],
)
def test_attention_over_pages(name: str, sinks: list[float] | None) -> None:
    cache = Cache(SHAPES[name], len(name), None if sinks is None else np.array(sinks, np.float32))
    f = pliant.compile(cache.shape.attend, threads=2)
    many = cache.attend(f, np.arange(CONTEXT))
    for token in (0, 1, 63, 64, 255, 256, 299, 300, 511, 512, 600, 699):
        np.testing.assert_allclose(many[token], cache.expected(token), rtol=0, atol=2e-5)
    for start, count in ((255, 1), (256, 1), (510, 3), (550, 7), (690, 10), (699, 1)):
        part = cache.attend(f, np.arange(start, start + count))
        np.testing.assert_array_equal(part, many[start : start + count])
