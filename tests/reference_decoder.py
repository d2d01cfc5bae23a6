"""Decoders in numpy and float64, written for reading: what the models of tests/tiny_models.py must compute.

logits(values, shape, "llama", ids)      # f64[tokens, words]; `values` are the file's tensors by name
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tiny_models import Shape

Array = NDArray[np.float64]


def norm(x: Array, scale: Array, eps: float) -> Array:
    """RMS norm over the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * scale


def rotate(x: Array, base: float, interleaved: bool) -> Array:
    """The rotation of [tokens, heads, size] by the tokens' places: pairs of neighbours, or of the two halves."""
    tokens, _, size = x.shape
    angle = np.arange(tokens)[:, None] * base ** -(np.arange(0, size, 2) / size)  # [tokens, size / 2]
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., : size // 2], x[..., size // 2 :])
    found = np.empty_like(x)
    left, right = (found[..., 0::2], found[..., 1::2]) if interleaved else (found[..., : size // 2], found[..., size // 2 :])
    left[:], right[:] = a * cos - b * sin, a * sin + b * cos
    return found


def attend(q: Array, k: Array, v: Array, scale: float, window: int = 0, cap: float = 0.0) -> Array:
    """Causal attention of [tokens, heads, size] over [tokens, kv_heads, size]."""
    tokens, heads, _ = q.shape
    k, v = (np.repeat(a, heads // k.shape[1], axis=1) for a in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    scores = np.tanh(scores / cap) * cap if cap else scores
    place = np.arange(tokens)
    hidden = (place[None, :] > place[:, None]) | (place[None, :] <= place[:, None] - window if window else False)
    scores = np.where(hidden, -np.inf, scores)
    weight = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", weight / weight.sum(-1, keepdims=True), v).reshape(tokens, -1)


def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return x / (1 + np.exp(-x))


def logits(values: dict[str, Any], s: Shape, architecture: str, ids: list[int]) -> Array:
    """The logits after each token of a llama, qwen2 or qwen3 model."""

    def linear(x: Array, name: str) -> Array:
        return x @ values[f"{name}.weight"].T + values.get(f"{name}.bias", 0.0)

    x = values["token_embd.weight"][ids]
    for i in range(s.layers):
        p = f"blk.{i}"
        y = norm(x, values[f"{p}.attn_norm.weight"], s.eps)
        q, k, v = (linear(y, f"{p}.attn_{part}").reshape(len(ids), -1, s.size) for part in "qkv")
        if architecture == "qwen3":
            q, k = norm(q, values[f"{p}.attn_q_norm.weight"], s.eps), norm(k, values[f"{p}.attn_k_norm.weight"], s.eps)
        q, k = (rotate(a, s.base, architecture == "llama") for a in (q, k))
        x = x + linear(attend(q, k, v, s.size**-0.5), f"{p}.attn_output")
        y = norm(x, values[f"{p}.ffn_norm.weight"], s.eps)
        x = x + linear(silu(linear(y, f"{p}.ffn_gate")) * linear(y, f"{p}.ffn_up"), f"{p}.ffn_down")
    head = values.get("output.weight", values["token_embd.weight"])
    return norm(x, values["output_norm.weight"], s.eps) @ head.T
