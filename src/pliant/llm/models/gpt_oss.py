"""gpt-oss: experts with biases and a clamped gate, attention sinks, and sliding-window attention in every second layer.

A sink is a score of each head that takes part in the softmax and has no value. The first layer has a window. Files have the norm before
the experts under the name `post_attention_norm`. RoPE is extended by yarn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ... import f16, nn, ops
from ...frontends.gguf import GgufFile
from ..paged import Paged
from .experts import Experts
from .parts import Decoder, Layer, Settings, settings_of

LIMIT, SLOPE = 7.0, 1.702  # of the activation: no metadata key has them


def build(file: GgufFile, cache: Any = None) -> GptOss:
    """Builds the gpt-oss model of a GGUF file as an nn module; `cache` is the dtype of the KV cache, f16 if None.

    Raises `ModelFileError` if a norm or the sinks of a layer are missing.
    """
    tensors = dict(file.tensors)
    for number in range(file.integer(f"{file.architecture}.block_count", low=1, high=512)):  # the name that other families use
        tensors[f"blk.{number}.ffn_norm.weight"] = file.tensor(f"blk.{number}.post_attention_norm.weight")
        file.tensor(f"blk.{number}.attn_sinks.weight")  # without it attention would run without sinks, as in other families
    renamed = file.replaced(dict(file.metadata), tensors)
    return GptOss(renamed, settings_of(renamed, interleaved=False), cache)


def clamped_glu(gate: Any, up: Any) -> Any:
    """Returns (up + 1) * gate * sigmoid(1.702 gate), after it limits the gate to at most 7 and `up` to -7..7."""
    gate = ops.minimum(gate, LIMIT)
    up = ops.minimum(ops.maximum(up, -LIMIT), LIMIT)
    return (up + 1.0) * (gate * ops.sigmoid(gate * SLOPE))


class GptOssLayer(Layer):
    """One decoder layer of gpt-oss: as in other families, but with experts as the feed-forward network."""

    def make_ffn(self, file: GgufFile, prefix: str, s: Settings) -> nn.Module:
        """Returns the experts of a layer, which compute `clamped_glu`."""
        return Experts(file, prefix, s, clamped_glu)


class GptOss(Decoder):
    """The whole gpt-oss decoder; its even layers attend within the sliding window that the file gives."""

    def __init__(self, file: GgufFile, s: Settings, cache: Any = None) -> None:
        wide = Paged(s.heads, s.kv_heads, s.cache_dim, s.score_scale, cache=cache or f16)
        self.narrow = replace(wide, window=file.integer(f"{file.architecture}.attention.sliding_window", low=1))
        super().__init__(file, s, cache, wide)

    def make_layer(self, file: GgufFile, number: int) -> nn.Module:
        """Returns decoder layer `number`; even ones, from 0 on, attend within the window, odd ones to all tokens before."""
        return GptOssLayer(file, number, self.settings, self.kernels if number % 2 else self.narrow)
