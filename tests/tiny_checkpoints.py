"""Tiny language models as checkpoint folders of transformers, written by the tests: the weights of tests/tiny_models.py under their names.

write_checkpoint(folder, "llama", Shape(), ["BF16"])      # config.json, model.safetensors, tokenizer.json and the files beside it
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiny_models import ATTN_FACTOR, CONTROL, TEMPLATE, Shape, Weights, random_weights, vocabulary

GPT_OSS = Shape(heads=8, kv_heads=2, size=32, experts=6, used=2, window=20, yarn=8.0, trained=500, base=150000.0)
OF_GPT_OSS = ("BF16", *("BF16", "F32", "F16", "BF16", "MXFP4", "MXFP4", "MXFP4") * 2, "BF16")  # one for each matrix
NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate_inp": "mlp.gate",
}


def their_name(architecture: str, name: str) -> str:
    """A tensor's name in transformers."""
    names = NAMES
    if architecture.startswith("gemma"):
        names = {**NAMES, "ffn_norm": "pre_feedforward_layernorm"}
    if architecture == "phi3":
        names = {**NAMES, "ffn_up": "mlp.gate_up_proj"}
    if architecture == "gpt-oss":
        names = {**NAMES, "ffn_gate_inp": "mlp.router"}
    if name.endswith("attn_sinks.weight"):
        return f"model.layers.{name.split('.')[1]}.self_attn.sinks"
    if name.startswith("blk."):
        _, number, part, kind = name.split(".")
        return f"model.layers.{number}.{names[part]}.{kind}"
    return {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}[name.split(".")[0]] + ".weight"


def theirs(architecture: str, name: str, value: NDArray[Any], s: Shape) -> NDArray[Any]:
    """A tensor's values in transformers: queries and keys of a llama file have pairs of neighbors where theirs has halves, and the
    weights of a gemma file's norms have 1 added."""
    heads = {"attn_q": s.heads, "attn_k": s.kv_heads}.get(name.split(".")[-2])
    if architecture == "llama" and heads:
        return value.reshape(heads, s.size // 2, 2, -1).swapaxes(1, 2).reshape(value.shape)
    return value - 1.0 if architecture.startswith("gemma") and "norm" in name else value


def bits(values: NDArray[Any], kind: str) -> NDArray[Any]:
    """Values in a type of a file; bf16, which numpy does not have, as its bits."""
    if kind == "BF16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype({"F32": np.float32, "F16": np.float16}[kind])


def safetensors(
    tensors: dict[str, tuple[str, NDArray[Any]]], align: bool = True, shapes: dict[str, tuple[int, ...]] | None = None
) -> bytes:
    """A safetensors file of arrays by name, each with the name of its type; `shapes` of arrays that are bytes."""
    header, at = {}, 0
    for name, (kind, array) in tensors.items():
        header[name] = {"dtype": kind, "shape": list((shapes or {}).get(name, array.shape)), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 if align else -len(text) % 8 + 1)
    return struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for _, array in tensors.values())


def config_of(architecture: str, s: Shape, values: dict[str, Any]) -> dict[str, Any]:
    """The config.json of a model, as older versions of transformers write it."""
    config: dict[str, Any] = {
        "model_type": {"gemma3": "gemma3_text", "qwen3moe": "qwen3_moe"}.get(architecture, architecture),
        "architectures": ["TinyForCausalLM"],
        "vocab_size": values["token_embd.weight"].shape[0],
        "hidden_size": s.width,
        "intermediate_size": s.ffn,
        "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads,
        "head_dim": s.size,
        "max_position_embeddings": s.context,
        "rms_norm_eps": s.eps,
        "rope_theta": s.base,
        "rope_scaling": None,
        "tie_word_embeddings": "output.weight" not in values,
        "eos_token_id": len(vocabulary()) - 1,
        "torch_dtype": "float32",
        "use_cache": True,
    }
    if architecture.startswith("gemma"):
        config |= {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": s.size, "sliding_window": s.window}
    else:
        config |= {"hidden_act": "silu", "sliding_window": s.window or None}
    if architecture == "gemma2":
        config |= {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
    if architecture == "gemma3":
        config |= {"rope_scaling": {"rope_type": "linear", "factor": s.stretch}, "rope_local_base_freq": 10000.0}
    if s.experts:
        config |= {"num_experts": s.experts, "num_experts_per_tok": s.used, "moe_intermediate_size": s.ffn}
        config |= {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
    if architecture == "gpt-oss":
        unknown = ("num_experts", "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers")
        config = {k: v for k, v in config.items() if k not in unknown}
        config |= {"model_type": "gpt_oss", "num_local_experts": s.experts, "attention_bias": True, "swiglu_limit": 7.0}
        config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    if s.yarn:
        config["rope_scaling"] = {"rope_type": "yarn", "factor": s.yarn, "original_max_position_embeddings": s.trained}
        config["rope_scaling"] |= {"truncate": False} if architecture == "gpt-oss" else {}
    if s.factors and architecture == "llama":
        own = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": s.trained}
        config["rope_scaling"] = {"rope_type": "llama3", **own}
    if s.factors and architecture == "phi3":
        both = {f"{name}_factor": values[f"rope_factors_{name}.weight"].tolist() for name in ("short", "long")}
        config["rope_scaling"] = {"type": "longrope", "attention_factor": ATTN_FACTOR, **both}
        config |= {"original_max_position_embeddings": s.trained, "partial_rotary_factor": s.turning / s.size}
    return config


def tokenizer_json() -> dict[str, Any]:
    """The tokenizer of tests/tiny_models.py as a tokenizer.json."""
    words = vocabulary()
    steps = [{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}]
    return {
        "model": {"type": "BPE", "vocab": {w: i for i, w in enumerate(words) if w not in CONTROL}, "merges": ["t h", ["th", "e"]]},
        "added_tokens": [{"id": i, "content": w, "special": True} for i, w in enumerate(words) if w in CONTROL],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": None,
        "decoder": {"type": "ByteLevel"},
    }


def packed_experts(weights: Weights, s: Shape) -> dict[str, tuple[str, NDArray[Any]]]:
    """The experts of gpt-oss: exponents and codes of MXFP4 apart, two neighbors in a byte; gate and up row by row."""
    found: dict[str, tuple[str, NDArray[Any]]] = {}
    data = {t.name: np.frombuffer(t.data, np.uint8) for t in weights.tensors}
    for number in range(s.layers):
        theirs, ours = f"model.layers.{number}.mlp.experts.", f"blk.{number}.ffn_"
        for name, parts in (("gate_up", ("gate", "up")), ("down", ("down",))):
            rows = s.width if name == "down" else s.ffn
            blocks = np.stack([data[f"{ours}{part}_exps.weight"].reshape(s.experts, rows, -1, 17) for part in parts], 2)
            blocks = blocks.reshape(s.experts, rows * len(parts), -1, 17)
            codes = np.concatenate([blocks[..., 1:] & 15, blocks[..., 1:] >> 4], -1)  # in the order of the elements
            bias = np.stack([weights.values[f"{ours}{part}_exps.bias"] for part in parts], 2).reshape(s.experts, -1)
            found[f"{theirs}{name}_proj_scales"] = ("U8", np.ascontiguousarray(blocks[..., 0]))
            found[f"{theirs}{name}_proj_blocks"] = ("U8", codes[..., ::2] | codes[..., 1::2] << 4)
            found[f"{theirs}{name}_proj_bias"] = ("F32", bits(bias, "F32"))
    return found


def write_checkpoint(folder: Path, architecture: str, s: Shape, kinds: Sequence[str] = ("F32",), *, align: bool = True) -> dict[str, Any]:
    """Writes the model to a folder; returns the values of its weights by GGUF's names. `align` puts tensors at multiples of 8 bytes."""
    weights = random_weights(architecture, s, kinds)
    dtypes = {t.name: {0: "F32", 1: "F16", 30: "BF16"}.get(t.kind, "U8") for t in weights.tensors}
    values = {n: v for n, v in weights.values.items() if n[:5] != "rope_" and "_exps" not in n}
    tensors = {their_name(architecture, n): (dtypes[n], bits(theirs(architecture, n, v, s), dtypes[n])) for n, v in values.items()}
    tensors |= packed_experts(weights, s) if architecture == "gpt-oss" else {}
    for n in weights.values if architecture == "qwen3moe" else ():
        if "_exps" in n:  # a tensor for each expert
            _, number, part, _ = n.split(".")
            name = f"model.layers.{number}.mlp.experts.{{}}.{part[4:-5]}_proj.weight"
            tensors |= {name.format(i): (dtypes[n], bits(v, dtypes[n])) for i, v in enumerate(weights.values[n])}
    (folder / "model.safetensors").write_bytes(safetensors(tensors, align))
    (folder / "config.json").write_text(json.dumps(config_of(architecture, s, weights.values)))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    names = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return weights.values
