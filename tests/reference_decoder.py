"""Decoders in numpy and float64, written for reading: what the models of tests/tiny_models.py must compute.

logits(values, shape, "llama", ids)              # f64[tokens, words]; `values` are the file's tensors by name
logits_of_rows(values, shape, "llama", rows)     # the same of several sequences, which share the products with weights
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiny_models import ATTN_FACTOR, Shape

Array = NDArray[np.float64]


def norm(x: Array, scale: Array, eps: float) -> Array:
    """RMS norm over the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * scale


def frequencies(s: Shape, base: float, stretch: float, factors: Array | None, exact_ramp: bool = False) -> Array:
    """The angle that a pair turns from one token to the next."""
    exact = base ** -(np.arange(0, s.turning, 2) / s.turning) / stretch
    if s.yarn:  # pairs that turn more than 32 times in the original context stay, those that turn less than once are stretched
        turns = s.turning * np.log(s.trained / (np.array([32.0, 1.0]) * 2 * np.pi)) / (2 * np.log(base))
        low, high = turns if exact_ramp else (np.floor(turns[0]), np.ceil(turns[1]))
        low, high = max(low, 0), min(high, s.turning - 1)
        exact = np.interp(np.arange(s.turning // 2), [low, high], [0, 1]) * (exact / s.yarn - exact) + exact
    return exact if factors is None else exact / factors


def rotate(x: Array, frequency: Array, interleaved: bool, factor: float = 1.0) -> Array:
    """The rotation of the first elements of [tokens, heads, size] by the tokens' places: pairs of neighbors, or of the two halves."""
    turning = 2 * len(frequency)
    angle = np.arange(len(x))[:, None] * frequency  # [tokens, turning / 2]
    cos, sin = np.cos(angle)[:, None] * factor, np.sin(angle)[:, None] * factor
    found = x.copy()
    sides = (slice(0, turning, 2), slice(1, turning, 2)) if interleaved else (slice(turning // 2), slice(turning // 2, turning))
    a, b = (x[..., side] for side in sides)
    found[..., sides[0]], found[..., sides[1]] = a * cos - b * sin, a * sin + b * cos
    return found


def attend(q: Array, k: Array, v: Array, scale: float, window: int = 0, cap: float = 0.0, sinks: Array | None = None) -> Array:
    """Causal attention of [tokens, heads, size] over [tokens, kv_heads, size]; a head's sink is one more score, without a value."""
    tokens, heads, _ = q.shape
    q, k, v = (np.repeat(a, heads // a.shape[1], axis=1).swapaxes(0, 1) for a in (q, k, v))  # [heads, tokens, size]
    scores = q @ k.swapaxes(1, 2) * scale
    scores = np.tanh(scores / cap) * cap if cap else scores
    place = np.arange(tokens)
    hidden = (place[None, :] > place[:, None]) | (place[None, :] <= place[:, None] - window if window else False)
    scores = np.where(hidden, -np.inf, scores)
    scores = scores if sinks is None else np.concatenate([scores, np.broadcast_to(sinks[:, None, None], (heads, tokens, 1))], -1)
    weight = np.exp(scores - scores.max(-1, keepdims=True))
    return ((weight / weight.sum(-1, keepdims=True))[..., :tokens] @ v).swapaxes(0, 1).reshape(tokens, -1)


def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return x / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    """Gelu in its tanh form."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def unfused(values: dict[str, Any], s: Shape) -> dict[str, Any]:
    """The tensors of a phi3 file under the names of the others."""
    found = dict(values)
    q, kv = s.heads * s.size, s.kv_heads * s.size
    for i in range(s.layers):
        parts = np.split(values[f"blk.{i}.attn_qkv.weight"], [q, q + kv])
        found |= {f"blk.{i}.attn_{name}.weight": part for name, part in zip("qkv", parts, strict=True)}
        found[f"blk.{i}.ffn_gate.weight"], found[f"blk.{i}.ffn_up.weight"] = np.split(values[f"blk.{i}.ffn_up.weight"], 2)
    return found


def window_and_base(architecture: str, s: Shape, layer: int) -> tuple[int, float, float]:
    """How many keys a layer sees (0: all), the base of its rotation, and by how much positions are stretched."""
    local = (layer + 1) % {"gemma2": 2, "gemma3": 6, "gpt-oss": 2}.get(architecture, 1) != 0 or architecture in ("llama", "phi3")
    base = 10000.0 if architecture == "gemma3" and local else s.base
    return s.window if local else 0, base, 1.0 if local else s.stretch


def experts(x: Array, values: dict[str, Any], p: str, s: Shape, architecture: str) -> Array:
    """The experts of a layer, token by token: those with the largest scores, weighted by the softmax of these scores."""

    def linear(x: Array, name: str, *of: int) -> Array:
        bias = values.get(f"{p}.{name}.bias")
        return values[f"{p}.{name}.weight"][of] @ x + (bias[of] if bias is not None else 0.0)

    result = np.zeros_like(x)
    for token, row in enumerate(x):
        scores = linear(row, "ffn_gate_inp")
        chosen = np.argsort(-scores, kind="stable")[: s.used]
        weights = np.exp(scores[chosen] - scores[chosen].max())
        for expert, weight in zip(chosen, weights / weights.sum(), strict=True):
            gate, up = (linear(row, f"ffn_{name}_exps", int(expert)) for name in ("gate", "up"))
            if architecture == "gpt-oss":
                gate, up = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
                inner = (up + 1) * gate / (1 + np.exp(-1.702 * gate))
            else:
                inner = silu(gate) * up
            result[token] += weight * linear(inner, "ffn_down_exps", int(expert))
    return result


def logits(values: dict[str, Any], s: Shape, architecture: str, ids: list[int]) -> Array:
    """The logits after each token."""
    return logits_of_rows(values, s, architecture, [ids])[0]


def logits_of_rows(values: dict[str, Any], s: Shape, architecture: str, rows: list[list[int]]) -> list[Array]:
    """The logits after each token of several sequences."""
    gemma = architecture.startswith("gemma")
    values = unfused(values, s) if architecture == "phi3" else values
    cap, bound = (5.0, 3.0) if architecture == "gemma2" else (0.0, 0.0)
    factors = values.get("rope_freqs.weight", values.get("rope_factors_short.weight"))
    strength = 1 + 0.1 * np.log(s.yarn) if s.yarn else ATTN_FACTOR if "rope_factors_short.weight" in values else 1.0
    ids = [token for row in rows for token in row]
    ends = np.cumsum([len(row) for row in rows])[:-1]

    def linear(x: Array, name: str) -> Array:
        return x @ values[f"{name}.weight"].T + values.get(f"{name}.bias", 0.0)

    def after(x: Array, name: str) -> Array:
        return norm(x, values[f"{name}.weight"], s.eps) if gemma else x

    x = values["token_embd.weight"][ids] * (np.sqrt(s.width) if gemma else 1.0)
    for i in range(s.layers):
        p = f"blk.{i}"
        window, base, stretch = window_and_base(architecture, s, i)
        y = norm(x, values[f"{p}.attn_norm.weight"], s.eps)
        q, k, v = (linear(y, f"{p}.attn_{part}").reshape(len(ids), -1, s.size) for part in "qkv")
        if architecture in ("qwen3", "qwen3moe", "gemma3"):
            q, k = norm(q, values[f"{p}.attn_q_norm.weight"], s.eps), norm(k, values[f"{p}.attn_k_norm.weight"], s.eps)
        found = []
        for one in zip(*(np.split(a, ends) for a in (q, k, v)), strict=True):
            turned = (
                rotate(a, frequencies(s, base, stretch, factors, architecture == "gpt-oss"), architecture == "llama", strength)
                for a in one[:2]
            )
            found.append(attend(*turned, one[2], s.size**-0.5, window, cap, values.get(f"{p}.attn_sinks.weight")))
        x = x + after(linear(np.concatenate(found), f"{p}.attn_output"), f"{p}.post_attention_norm")
        if s.experts:
            before = values[f"{p}.{'post_attention_norm' if architecture == 'gpt-oss' else 'ffn_norm'}.weight"]
            x = x + experts(norm(x, before, s.eps), values, p, s, architecture)
            continue
        y = norm(x, values[f"{p}.ffn_norm.weight"], s.eps)
        gate = (gelu if gemma else silu)(linear(y, f"{p}.ffn_gate"))
        x = x + after(linear(gate * linear(y, f"{p}.ffn_up"), f"{p}.ffn_down"), f"{p}.post_ffw_norm")
    head = values.get("output.weight", values["token_embd.weight"])
    result = norm(x, values["output_norm.weight"], s.eps) @ head.T
    return np.split(np.tanh(result / bound) * bound if bound else result, ends)
