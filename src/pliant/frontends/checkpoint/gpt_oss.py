"""gpt-oss checkpoints: experts in MXFP4, whose gate and up rows alternate, and whose blocks have their codes in another order than GGUF's.

The bytes of a block hold codes (2i, 2i + 1) in the folder and (i, i + 16) in GGUF, which puts the block's exponent before them. A tensor is
brought into GGUF's order when its data is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...quantization.formats import BY_NAME
from ...support.errors import UnsupportedError
from ..gguf.reader import GgufTensor
from .config import Config
from .lazy_tensor import LazyTensor
from .rope import Rotation, parameters_of, read_rotation
from .sizes import Layer, Piece, Sizes, attention, layer_kinds

BLOCK = 32  # elements of a block of MXFP4
ALTERNATING = ("sliding_attention", "full_attention")


def layer(config: Config, s: Sizes) -> Layer:
    """Returns the matrices and norms of a layer, without its experts."""
    return {
        "input_layernorm": ("attn_norm", (s.width,)),
        "post_attention_layernorm": ("post_attention_norm", (s.width,)),
        "mlp.router": ("ffn_gate_inp", (_count(config), s.width)),
        **attention(s),
    }


def more(config: Config, s: Sizes, number: int) -> Iterator[Piece]:
    """Yields the other tensors of a layer: sinks, biases, and the experts' blocks and exponents as bytes."""
    count, theirs, ours = _count(config), f"model.layers.{number}", f"blk.{number}"
    yield Piece(f"{theirs}.self_attn.sinks", f"{ours}.attn_sinks.weight", (s.heads,))
    yield Piece(f"{theirs}.mlp.router.bias", f"{ours}.ffn_gate_inp.bias", (count,))
    for name, rows, columns in (("gate_up", 2 * s.ffn, s.width), ("down", s.width, s.ffn)):
        shape = (count, rows, columns // BLOCK)
        yield Piece(f"{theirs}.mlp.experts.{name}_proj_bias", f"{ours}.{name}.bias", (count, rows))
        yield Piece(f"{theirs}.mlp.experts.{name}_proj_scales", f"{ours}.{name}.scales", shape, raw=True)
        yield Piece(f"{theirs}.mlp.experts.{name}_proj_blocks", f"{ours}.{name}.blocks", (*shape, BLOCK // 2), raw=True)


def settings(config: Config, s: Sizes) -> dict[str, Any]:
    """Returns the metadata of experts and windows; raises UnsupportedError unless experts are in MXFP4 and windows alternate."""
    if (method := config.inner("quantization_config").get("quant_method")) != "mxfp4":
        raise UnsupportedError(f"{config.name}: experts of gpt-oss are supported in mxfp4, and `quantization_config` says {method!r}")
    usual = [ALTERNATING[number % 2] for number in range(s.layers)]
    if layer_kinds(config, s, usual) != usual:
        raise UnsupportedError(f"{config.name}: layers of gpt-oss (`layer_types`) have windows in turn, the first one has one")
    if s.width % BLOCK or s.ffn % BLOCK:
        raise UnsupportedError(f"{config.name}: rows of {s.width} and {s.ffn} elements are no whole blocks of {BLOCK}")
    return {
        "attention.sliding_window": config.integer("sliding_window", low=1),
        "expert_count": _count(config),
        "expert_used_count": config.integer("num_experts_per_tok", low=1, high=64),
        "expert_feed_forward_length": s.ffn,
    }


def rotation(config: Config, s: Sizes) -> Rotation:
    """Returns the rotation; raises UnsupportedError for yarn with bounds that are rounded, which gpt-oss does not have."""
    parameters, base = parameters_of(config)
    return read_rotation(config, parameters, base, s.head, truncate=False)


def join(tensors: dict[str, GgufTensor], s: Sizes) -> dict[str, GgufTensor]:
    """Returns the tensors with those of experts as GGUF has them: gate, up and down in MXFP4, and their biases."""
    found = dict(tensors)
    for number in range(s.layers):
        p = f"blk.{number}"
        for name, parts in (("gate_up", {"gate": (0, 2), "up": (1, 2)}), ("down", {"down": (0, 1)})):
            bias, scales, blocks = (found.pop(f"{p}.{name}.{kind}") for kind in ("bias", "scales", "blocks"))
            for part, (first, step) in parts.items():
                found[f"{p}.ffn_{part}_exps.weight"] = _experts(blocks, scales, first, step)
                found[f"{p}.ffn_{part}_exps.bias"] = _every(bias, first, step)
    return found


def _count(config: Config) -> int:
    return config.integer("num_local_experts", low=1, high=4096)


def _experts(blocks: GgufTensor, scales: GgufTensor, first: int, step: int) -> GgufTensor:
    """Returns the rows `first`, `first + step`, … of all experts as a tensor of MXFP4 in GGUF's order."""
    codes = blocks.data.reshape(blocks.shape)[:, first::step]  # [experts, rows, blocks, 16]
    exponents = scales.data.reshape(scales.shape)[:, first::step]

    def data() -> NDArray[np.uint8]:
        whole = np.empty((*exponents.shape, 1 + BLOCK // 2), np.uint8)
        whole[..., 0] = exponents
        for expert in range(len(codes)):  # one after the other: codes of a byte each take four times the memory
            inner = np.stack([codes[expert] & 15, codes[expert] >> 4], axis=-1).reshape(*codes.shape[1:3], BLOCK)
            whole[expert, ..., 1:] = inner[..., : BLOCK // 2] | inner[..., BLOCK // 2 :] << 4
        return whole

    shape = (*codes.shape[:2], codes.shape[2] * BLOCK)
    return LazyTensor(blocks.name, BY_NAME["MXFP4"], shape, exponents.size * (1 + BLOCK // 2), data)


def _every(bias: GgufTensor, first: int, step: int) -> GgufTensor:
    """Returns the columns `first`, `first + step`, … of a bias."""
    size = bias.format.size
    own = np.ascontiguousarray(bias.data.reshape(*bias.shape, size)[:, first::step])
    return GgufTensor(bias.name, bias.format, own.shape[:2], own.reshape(len(own), -1))
