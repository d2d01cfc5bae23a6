"""Llama and relatives (SmolLM, Mistral, TinyLlama): RMS norms, RoPE, grouped-query attention, a gated feed-forward network.

Their files store queries and keys with adjacent elements as RoPE pairs (interleaved). `rope_freqs.weight` holds the long-context factors of
Llama 3.
"""

from __future__ import annotations

from typing import Any

from ...frontends.gguf import GgufFile
from .parts import Decoder, settings_of


def build(file: GgufFile, cache: Any = None) -> Decoder:
    """Builds the Llama model of a GGUF file as an nn module."""
    return Decoder(file, settings_of(file, interleaved=True), cache)
