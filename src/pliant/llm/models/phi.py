"""Phi 3 and 4: like llama, with fused QKV and gate/up matrices, and sliding-window attention.

Of models with two sets of RoPE factors, the set for the original context is used, and the context is limited to that.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ... import f16
from ...frontends.gguf import GgufFile
from ...frontends.gguf.reader import GgufTensor
from ...support.errors import ModelFileError
from ..paged import Paged
from .parts import Decoder, settings_of


def build(file: GgufFile, cache: Any = None) -> Decoder:
    """Builds the Phi 3 model of a GGUF file as an nn module."""
    file = _unfused(file)
    s = settings_of(file, interleaved=False)
    s = replace(s, rope_factor=s.rope_factor * _stronger(file))
    window = file.integer("phi3.attention.sliding_window", 0)
    kernels = Paged(s.heads, s.kv_heads, s.cache_dim, s.score_scale, window if window < s.context else 0, cache=cache or f16)
    return Decoder(file, s, cache, kernels)


def _unfused(file: GgufFile) -> GgufFile:
    """Returns the file with its fused matrices split into separate tensors.

    If it has RoPE factors for long texts, those for short texts are used, and the context is the original one.
    """
    kind = file.architecture
    heads = file.integer(f"{kind}.attention.head_count", low=1, high=4096)
    kv_heads = file.integer(f"{kind}.attention.head_count_kv", heads, low=1, high=heads)
    size = file.integer(f"{kind}.attention.key_length", file.integer(f"{kind}.embedding_length", low=1) // heads, low=1)
    ffn = file.integer(f"{kind}.feed_forward_length", low=1)
    parts = {
        "attn_qkv": {"attn_q": heads * size, "attn_k": kv_heads * size, "attn_v": kv_heads * size},
        "ffn_up": {"ffn_gate": ffn, "ffn_up": ffn},
    }
    tensors = dict(file.tensors)
    for number in range(file.integer(f"{kind}.block_count", low=1, high=512)):
        for fused, rows in parts.items():
            tensors |= _cut(file, f"blk.{number}", fused, rows)
    metadata = dict(file.metadata)
    if "rope_factors_short.weight" in tensors:
        tensors["rope_freqs.weight"] = file.tensor("rope_factors_short.weight")
        metadata[f"{kind}.context_length"] = file.integer(f"{kind}.rope.scaling.original_context_length", low=1)
        metadata[f"{kind}.rope.scaling.type"] = "none"
    return file.replaced(metadata, tensors)


def _cut(file: GgufFile, prefix: str, fused: str, rows: dict[str, int]) -> dict[str, GgufTensor]:
    """Returns the parts of a fused matrix, split by rows, by name; raises ModelFileError if it has another number of rows."""
    whole = file.tensor(f"{prefix}.{fused}.weight")
    if len(whole.shape) != 2 or whole.shape[0] != sum(rows.values()):
        raise ModelFileError(
            f"gguf: tensor `{whole.name}` has the shape {whole.shape}, where {sum(rows.values())} rows are expected",
            facts=[f"file `{file.name}`"],
        )
    parts, at = {}, 0
    for name, count in rows.items():
        key = f"{prefix}.{name}.weight"
        parts[key] = GgufTensor(key, whole.format, (count, whole.shape[1]), whole.data[at : at + count])
        at += count
    return parts


def _stronger(file: GgufFile) -> float:
    """Returns the factor by which models with RoPE factors scale queries and keys, 1 for others.

    Raises ModelFileError for an invalid one.
    """
    if "rope_factors_short.weight" not in file.tensors:
        return 1.0
    factor = file.number("phi3.rope.scaling.attn_factor", 1.0)
    if not (factor > 0 and math.isfinite(factor)):
        raise ModelFileError(f"gguf: `phi3.rope.scaling.attn_factor` is {factor}", facts=[f"file `{file.name}`"])
    return factor
