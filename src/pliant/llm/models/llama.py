"""Llama and relatives (SmolLM, Mistral, TinyLlama): RMS norms, RoPE, grouped-query attention, a gated feed-forward network.

GGUF files store queries and keys with adjacent elements as RoPE pairs (interleaved), checkpoints of transformers do not.
`rope_freqs.weight` holds the long-context factors of Llama 3. The first Mistral has a sliding window.
"""

from __future__ import annotations

from typing import Any

from ... import f16
from ...frontends.gguf import GgufFile
from ..paged import Paged
from .parts import Decoder, settings_of


def build(file: GgufFile, cache: Any = None) -> Decoder:
    """Builds the Llama model of a file as an nn module."""
    s = settings_of(file, interleaved=file.adjacent_pairs)
    window = file.integer("llama.attention.sliding_window", 0)
    kernels = Paged(s.heads, s.kv_heads, s.cache_dim, s.score_scale, window if window < s.context else 0, cache=cache or f16)
    return Decoder(file, s, cache, kernels)
