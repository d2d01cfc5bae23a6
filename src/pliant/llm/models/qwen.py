"""Qwen 2 and 3: like llama, with QKV biases (2) or QK norm per head (3), and RoPE pairs (j, j + d/2).

`parts.py` applies biases and norms if the file has their tensors, so there is no code for them here.
"""

from __future__ import annotations

from typing import Any

from ...frontends.gguf import GgufFile
from .parts import Decoder, settings_of


def build(file: GgufFile, cache: Any = None) -> Decoder:
    """Builds the model of a file."""
    return Decoder(file, settings_of(file, interleaved=False), cache)
