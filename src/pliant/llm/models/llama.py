"""Llama and its kin (SmolLM, Mistral, TinyLlama): RMS norms, rotary embedding, grouped heads, a gated feed-forward network.

Their files hold queries and keys with neighboring elements as pairs of the rotation; Llama 3's long context is `rope_freqs.weight`.
"""

from __future__ import annotations

from typing import Any

from ...frontends.gguf import GgufFile
from .parts import Decoder, settings_of


def build(file: GgufFile, cache: Any = None) -> Decoder:
    """The model of a file."""
    return Decoder(file, settings_of(file, interleaved=True), cache)
