"""Gemma 2 and 3: norms before and after each half of a layer, a GELU-gated feed-forward network, embeddings scaled by sqrt(width).

Gemma 2 soft-caps its attention scores and logits, and every second layer has sliding-window attention. Gemma 3 normalizes queries and keys
(QK norm); only every sixth layer attends to all keys, with a larger RoPE base. Files store the norm weights with 1 added.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ... import f16, nn, ops
from ...frontends.gguf import GgufFile
from ...support.errors import ModelFileError
from ..paged import Paged
from .parts import Attention, Decoder, FeedForward, Norm, Settings, Step, rope_frequencies, scale_of, settings_of

# Numbers of layers of the 27B models: they alone scale scores by width / heads instead of head_dim, and no metadata key says so.
LARGEST = {"gemma2": 46, "gemma3": 62}
LOCAL_BASE = 10000.0  # RoPE base of sliding-window layers


def build(file: GgufFile, cache: Any = None) -> Gemma:
    """Builds the Gemma model of a GGUF file as an nn module."""
    return Gemma(file, settings_of(file, interleaved=False), cache)


class GeluFeedForward(FeedForward):
    """The gated feed-forward network of Gemma, with GELU."""

    def forward(self, x: Any) -> Any:
        gate, up = self.gate_up(x)
        return self.down(ops.gelu(gate, approximate="tanh") * up)


class GemmaLayer(nn.Module):
    """One decoder layer of Gemma; `frequencies` are its RoPE frequencies."""

    def __init__(self, file: GgufFile, number: int, s: Settings, kernels: Paged, frequencies: Any) -> None:
        prefix = f"blk.{number}"
        self.attn_norm = Norm(file, f"{prefix}.attn_norm", s.width, s.eps)
        self.attention = Attention(file, number, s, kernels)
        self.post_attention_norm = Norm(file, f"{prefix}.post_attention_norm", s.width, s.eps)
        self.ffn_norm = Norm(file, f"{prefix}.ffn_norm", s.width, s.eps)
        self.ffn = GeluFeedForward(file, prefix, s)
        self.post_ffw_norm = Norm(file, f"{prefix}.post_ffw_norm", s.width, s.eps)
        self.frequencies = frequencies

    def forward(self, x: Any, step: Step, keys: Any, values: Any) -> tuple[Any, Any, Any]:
        own = Step(step.positions, self.frequencies, step.sequence, step.first, step.length, step.page_table)
        a, keys, values = self.attention(self.attn_norm(x), own, keys, values)
        x = x + self.post_attention_norm(a)
        return x + self.post_ffw_norm(self.ffn(self.ffn_norm(x))), keys, values


class Gemma(Decoder):
    """The whole Gemma decoder."""

    def __init__(self, file: GgufFile, s: Settings, cache: Any = None) -> None:
        kind = file.architecture
        self.windowed = _windowed(file, s.layers, 2 if kind == "gemma2" else 6)
        window = file.integer(f"{kind}.attention.sliding_window", low=1)
        across = s.width // s.heads if s.layers == LARGEST[kind] else s.head_dim
        cap = _bound(file, f"{kind}.attn_logit_softcapping", 50.0 if kind == "gemma2" else 0.0)
        wide = Paged(s.heads, s.kv_heads, s.cache_dim, scale_of(file, across**-0.5) * s.score_scale / s.scale, cap=cap, cache=cache or f16)
        self.narrow = replace(wide, window=window)
        self.local = _local(file, s) if kind == "gemma3" else rope_frequencies(file, s)
        self.bound = _bound(file, f"{kind}.final_logit_softcapping", 30.0 if kind == "gemma2" else 0.0)
        super().__init__(file, s, cache, wide)

    def make_layer(self, file: GgufFile, number: int) -> nn.Module:
        """Returns decoder layer `number`, with sliding-window or full attention."""
        if self.windowed[number]:
            return GemmaLayer(file, number, self.settings, self.narrow, self.local)
        return GemmaLayer(file, number, self.settings, self.kernels, self.frequencies)

    def embed(self, tokens: Any) -> Any:
        """Returns the token embeddings, scaled by sqrt(width)."""
        return super().embed(tokens) * float(np.float32(self.settings.width**0.5))

    def finish(self, logits: Any) -> Any:
        """Returns the logits soft-capped, bound * tanh(logits / bound), if the model has a bound."""
        return ops.tanh(logits * (1.0 / self.bound)) * self.bound if self.bound else logits


def _local(file: GgufFile, s: Settings) -> Any:
    """Returns the RoPE frequencies of sliding-window layers; raises if the file has an invalid base."""
    key = f"{file.architecture}.rope.freq_base_swa"
    base = file.number(key, LOCAL_BASE)
    if not base > 0:
        raise ModelFileError(f"gguf: `{key}` is {base}, where a number above 0 is expected", facts=[f"file `{file.name}`"])
    return rope_frequencies(file, replace(s, base=base), stretched=False)


def _windowed(file: GgufFile, layers: int, usual: int) -> list[bool]:
    """Returns which layers have sliding-window attention.

    By default all but the last of each `usual` layers; a file may give another period, or a flag per layer. Raises ModelFileError if there
    are not as many flags as layers.
    """
    key = f"{file.architecture}.attention.sliding_window_pattern"
    pattern = file.metadata.get(key)
    if isinstance(pattern, np.ndarray):
        if pattern.shape != (layers,):
            raise ModelFileError(f"gguf: `{key}` is for {pattern.size} layers, and there are {layers}", facts=[f"file `{file.name}`"])
        return [bool(b) for b in pattern]
    period = file.integer(key, usual, low=1)
    return [(number + 1) % period != 0 for number in range(layers)]


def _bound(file: GgufFile, key: str, default: float) -> float:
    cap = file.number(key, default)
    if not cap >= 0:
        raise ModelFileError(f"gguf: `{key}` is {cap}", facts=[f"file `{file.name}`"])
    return cap
