"""Qwen 2 and 3: like llama, with QKV biases (2) or QK norm per head (3), and RoPE pairs (j, j + d/2); Qwen 3 also with experts.

`parts.py` applies biases and norms if the file has their tensors, so there is no code for them here.
"""

from __future__ import annotations

from typing import Any

from ... import nn, ops
from ...frontends.gguf import GgufFile
from .experts import Experts
from .parts import Decoder, Layer, Settings, settings_of


def build(file: GgufFile, cache: Any = None) -> Decoder:
    """Builds the Qwen model of a GGUF file as an nn module."""
    kind = QwenExperts if file.architecture == "qwen3moe" else Decoder
    return kind(file, settings_of(file, interleaved=False), cache)


class ExpertsLayer(Layer):
    """One decoder layer with experts."""

    def make_ffn(self, file: GgufFile, prefix: str, s: Settings) -> nn.Module:
        """Returns the experts of a layer, which compute silu(gate) * up."""
        return Experts(file, prefix, s, lambda gate, up: ops.silu(gate) * up)


class QwenExperts(Decoder):
    """The whole decoder of Qwen 3 with experts."""

    def make_layer(self, file: GgufFile, number: int) -> nn.Module:
        """Returns decoder layer `number`."""
        return ExpertsLayer(file, number, self.settings, self.kernels)
