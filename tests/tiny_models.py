"""Tiny language models with random weights, as GGUF files that the tests write; and what their weights are.

path.write_bytes(tiny("llama", ["Q4_1"]))      # 2 layers of width 64, a vocabulary of bytes and a few control tokens
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pliant
from gguf_files import BOOL, F32, I32, STRING, U32, Tensor, array, number, text, write
from pliant.quantization.dequantize import dequantize
from pliant.quantization.formats import BY_NAME, Format

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
EXPERTS = ("qwen3moe", "gpt-oss")  # architectures with experts
ATTN_FACTOR = 1.19  # of phi3 with factors
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@dataclass(frozen=True)
class Shape:
    """The numbers of a tiny model."""

    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    size: int = 16
    ffn: int = 96
    layers: int = 2
    context: int = 512
    base: float = 10000.0
    eps: float = 1e-5
    window: int = 0  # of gemma and phi3
    stretch: float = 1.0  # of gemma3's slower rotation
    rotated: int = 0  # elements of a head that are rotated; 0: all
    yarn: float = 0.0  # by how much yarn extends the context
    trained: int = 64  # the context before it was extended
    experts: int = 0
    used: int = 0  # experts of a token
    factors: bool = False  # a factor for each frequency: those of Llama 3, or short ones of phi3

    @property
    def turning(self) -> int:
        """The number of elements of a head that are rotated."""
        return self.rotated or self.size


@dataclass
class Weights:
    """The tensors of a file being written, and their values."""

    rng: np.random.Generator
    tensors: list[Tensor] = field(default_factory=list)
    values: dict[str, NDArray[Any]] = field(default_factory=dict)

    def add(self, name: str, shape: tuple[int, ...], kind: str, spread: float, middle: float = 0.0) -> None:
        """A random tensor; its values are what the file says, after rounding."""
        format = BY_NAME[kind]
        data = (
            random_blocks(format, int(np.prod(shape)), spread, self.rng) if format.codes else plain(format, shape, spread, middle, self.rng)
        )
        self.tensors.append(Tensor(name, shape, format.number, data.tobytes()))
        self.values[name] = dequantize(format, data.reshape(-1, format.size)).reshape(shape).astype(np.float64)

    def put(self, name: str, values: NDArray[Any]) -> None:
        """A tensor of these values, in f32."""
        numbers = values.astype(np.float32)
        self.tensors.append(Tensor(name, values.shape, 0, numbers.tobytes()))
        self.values[name] = numbers.astype(np.float64)


def llama3_factors(base: float, size: int, trained: int) -> NDArray[Any]:
    """The divisors of the frequencies by the rule of Llama 3, with its constants 8, 1 and 4: long waves are 8 times slower."""
    wave = 2 * np.pi * base ** (np.arange(0, size, 2) / size)
    smooth = np.clip((trained / wave - 1.0) / (4.0 - 1.0), 0.0, 1.0)
    return 1.0 / ((1.0 - smooth) / 8.0 + smooth)


def plain(format: Format, shape: tuple[int, ...], spread: float, middle: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Random numbers of a plain type."""
    found = (rng.standard_normal(shape) * spread + middle).astype(np.float32)
    if format.name == "BF16":
        return (found.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return found.astype({"F32": np.float32, "F16": np.float16}[format.name]).view(np.uint8)


def random_blocks(format: Format, count: int, spread: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Random blocks whose values have the mean 0, nearly, and this spread: a value is linear in the block's two factors."""
    data = rng.integers(0, 256, (count // format.length, format.size), np.uint8)
    with_scale = dequantize(format, _factors(format, data, 1.0, 0.0))
    scale = spread / with_scale.std()
    minimum = 0.0
    if format.minimum is not None:
        minimum = -scale * with_scale.mean() / dequantize(format, _factors(format, data, 0.0, 1.0)).mean()
    return _factors(format, data, scale, minimum)


def _factors(format: Format, data: NDArray[np.uint8], scale: float, minimum: float) -> NDArray[np.uint8]:
    found = data.copy()
    for factor, value in ((format.scale, scale), (format.minimum, minimum)):
        if factor is not None:
            if factor.dtype.name == "u8":  # an exponent: the nearest power of two
                found[:, factor.offset] = int(np.clip(np.rint(np.log2(value)) + 128, 0, 255)) if value else 0
            else:
                found[:, factor.offset : factor.offset + 2] = np.array([value], np.float16).view(np.uint8)
    return found


def vocabulary() -> list[str]:
    """256 tokens of a byte each, in the spelling of BPE vocabularies, two longer ones, and the control tokens."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled = {b: chr(b) for b in own} | {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in own)}
    return [*(spelled[b] for b in range(256)), "th", "the", *CONTROL]


def tokenizer_pairs(template: str | None = TEMPLATE) -> list[tuple[str, bytes]]:
    """The metadata of the tokenizer."""
    words = vocabulary()
    pairs = [
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("smollm")),
        ("tokenizer.ggml.tokens", array(STRING, words)),
        ("tokenizer.ggml.token_type", array(I32, [3 if w in CONTROL else 1 for w in words])),
        ("tokenizer.ggml.merges", array(STRING, ["t h", "th e"])),
        ("tokenizer.ggml.bos_token_id", number(U32, len(words) - 2)),
        ("tokenizer.ggml.eos_token_id", number(U32, len(words) - 1)),
        ("tokenizer.ggml.add_bos_token", number(BOOL, False)),
    ]
    return pairs + ([("tokenizer.chat_template", text(template))] if template is not None else [])


def settings_pairs(architecture: str, s: Shape) -> list[tuple[str, bytes]]:
    """The metadata of the model."""
    whole = {
        "block_count": s.layers,
        "context_length": s.context,
        "embedding_length": s.width,
        "feed_forward_length": s.ffn,
        "attention.head_count": s.heads,
        "attention.head_count_kv": s.kv_heads,
        "attention.key_length": s.size,
        "attention.value_length": s.size,
    }
    real = {"attention.layer_norm_rms_epsilon": s.eps, "rope.freq_base": s.base}
    whole |= {"attention.sliding_window": s.window} if s.window else {}
    real |= {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0} if architecture == "gemma2" else {}
    factor = s.yarn or s.stretch
    real |= {"rope.scaling.factor": factor} if factor != 1.0 else {}
    real |= {"rope.scaling.attn_factor": ATTN_FACTOR} if s.factors and architecture == "phi3" else {}
    if architecture in EXPERTS:
        whole |= {"expert_count": s.experts, "expert_used_count": s.used, "expert_feed_forward_length": s.ffn}
    whole |= {"rope.dimension_count": s.rotated} if s.rotated else {}
    whole |= {"rope.scaling.original_context_length": s.trained} if s.yarn or s.factors else {}
    return [
        *([(f"{architecture}.rope.scaling.type", text("yarn" if s.yarn else "linear"))] if factor != 1.0 else []),
        ("general.architecture", text(architecture)),
        ("general.name", text("tiny")),
        *((f"{architecture}.{k}", number(U32, v)) for k, v in whole.items()),
        *((f"{architecture}.{k}", number(F32, v)) for k, v in real.items()),
    ]


def add_experts(w: Weights, architecture: str, p: str, s: Shape, turn: Iterator[str]) -> None:
    """The tensors of a layer's router and experts."""
    w.add(f"{p}.ffn_gate_inp.weight", (s.experts, s.width), "F32", 2.0 * s.width**-0.5)
    for name, rows, columns in (("gate", s.ffn, s.width), ("up", s.ffn, s.width), ("down", s.width, s.ffn)):
        w.add(f"{p}.ffn_{name}_exps.weight", (s.experts, rows, columns), next(turn), 3.0 * columns**-0.5)
    if architecture == "gpt-oss":
        w.add(f"{p}.ffn_gate_inp.bias", (s.experts,), "F32", 0.5)
        for name, rows in (("gate", s.ffn), ("up", s.ffn), ("down", s.width)):
            w.add(f"{p}.ffn_{name}_exps.bias", (s.experts, rows), "F32", 1.0)


def random_weights(architecture: str, s: Shape, kinds: Sequence[str], seed: int = 0) -> Weights:
    """Weights as a file of this architecture has them; matrices take their types in turn from `kinds`."""
    w = Weights(np.random.default_rng(seed))
    turn = cycle(kinds)
    words, q, kv = len(vocabulary()), s.heads * s.size, s.kv_heads * s.size
    w.add("token_embd.weight", (words, s.width), next(turn), 0.3)
    for i in range(s.layers):
        p = f"blk.{i}"
        w.add(f"{p}.attn_norm.weight", (s.width,), "F32", 0.2, 1.0)
        products = {"attn_q": (q, s.width), "attn_k": (kv, s.width), "attn_v": (kv, s.width), "attn_output": (s.width, q)}
        if architecture == "phi3":
            products = {"attn_qkv": (q + 2 * kv, s.width), "attn_output": (s.width, q)}
        for name, (rows, columns) in products.items():
            w.add(f"{p}.{name}.weight", (rows, columns), next(turn), columns**-0.5)
        if architecture in ("qwen2", "gpt-oss"):
            for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
                w.add(f"{p}.{name}.bias", (rows,), "F32", 0.5)
        if architecture == "gpt-oss":
            w.add(f"{p}.attn_output.bias", (s.width,), "F32", 0.5)
            w.add(f"{p}.attn_sinks.weight", (s.heads,), "F32", 2.0)
        if architecture in ("qwen3", "qwen3moe", "gemma3"):
            for name in ("attn_q_norm", "attn_k_norm"):
                w.add(f"{p}.{name}.weight", (s.size,), "F32", 0.2, 1.0)
        w.add(f"{p}.{'post_attention_norm' if architecture == 'gpt-oss' else 'ffn_norm'}.weight", (s.width,), "F32", 0.2, 1.0)
        if architecture in EXPERTS:
            add_experts(w, architecture, p, s, turn)
            continue
        if architecture.startswith("gemma"):
            for name in ("post_attention_norm", "post_ffw_norm"):
                w.add(f"{p}.{name}.weight", (s.width,), "F32", 0.2, 1.0)
        products = {"ffn_gate": (s.ffn, s.width), "ffn_up": (s.ffn, s.width), "ffn_down": (s.width, s.ffn)}
        if architecture == "phi3":
            products = {"ffn_up": (2 * s.ffn, s.width), "ffn_down": (s.width, s.ffn)}
        for name, (rows, columns) in products.items():
            w.add(f"{p}.{name}.weight", (rows, columns), next(turn), columns**-0.5)
    if s.factors and architecture == "llama":
        w.put("rope_freqs.weight", llama3_factors(s.base, s.turning, s.trained))
    if s.factors and architecture == "phi3":
        for name in ("short", "long"):
            w.put(f"rope_factors_{name}.weight", w.rng.uniform(1.0, 2.0, s.turning // 2))
    w.add("output_norm.weight", (s.width,), "F32", 0.2, 1.0)
    if architecture in ("qwen2", "qwen3", "phi3", *EXPERTS):  # of others the head is the embedding
        w.add("output.weight", (words, s.width), next(turn), s.width**-0.5)
    return w


def tiny(
    architecture: str = "llama",
    kinds: Sequence[str] = ("Q8_0",),
    s: Shape | None = None,
    seed: int = 0,
    template: str | None = TEMPLATE,
) -> bytes:
    """The file of a tiny model."""
    s = s or Shape()
    weights = random_weights(architecture, s, kinds, seed)
    return write([*settings_pairs(architecture, s), *tokenizer_pairs(template)], weights.tensors)


@cache
def tiny_file(architecture: str = "llama", kinds: tuple[str, ...] = ("Q8_0",), s: Shape | None = None) -> Path:
    """A tiny model on disk, for this process."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = Path(folder.name) / f"tiny-{architecture}.gguf"
    path.write_bytes(tiny(architecture, kinds, s))
    return path


@cache
def tiny_llm(architecture: str = "llama", kinds: tuple[str, ...] = ("Q8_0",), s: Shape | None = None, **options: Any) -> pliant.LLM:
    """A tiny model, compiled once for all tests of this process."""
    return pliant.LLM(tiny_file(architecture, kinds, s), **options)
