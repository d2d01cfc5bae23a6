"""Qwen 2 and 3: as llama, with biases of queries, keys and values (2) or norms of each head's queries and keys (3), and pairs (j, j + d/2).

Both are there where the file has their tensors, so nothing is said about them here.
"""

from __future__ import annotations

from typing import Any

from ...frontends.gguf import GgufFile
from .parts import Decoder, settings_of


def build(file: GgufFile, cache: Any = None) -> Decoder:
    """The model of a file."""
    return Decoder(file, settings_of(file, interleaved=False), cache)
