"""Shared parts of decoder models: settings from a GGUF file, linear layers with its weights, embedding, layer, the whole decoder.

Batches are ragged and the KV cache is paged: `tokens` holds the tokens of all sequences one after the other, and `rows` selects the tokens
whose logits are wanted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import State, Tensor, dim, f16, i32, nn, ops
from ...frontends.gguf import GgufFile
from ...frontends.gguf.parse import shown
from ...frontends.gguf.reader import GgufTensor
from ...graph.ops.half_weights import FORMATS as HALVES
from ...quantization.formats import Format
from ...support.errors import ModelFileError, UnsupportedError
from ...support.record import dataclass
from ..kv_cache import PAGE, STEP_TOKENS
from ..paged import Paged, b, layers, p, runs, t

r = dim("r", min=1, max=STEP_TOKENS)  # number of rows of logits


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration of a decoder: sizes and constants, read from a model file."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab_size: int
    context: int
    eps: float
    scale: float  # of the attention scores
    base: float  # of the RoPE frequencies
    interleaved: bool  # RoPE pairs are adjacent elements, not (j, j + head_dim/2)


def settings_of(file: GgufFile, interleaved: bool) -> Settings:
    """Reads the settings from the metadata of a file; raises for sizes that are not supported or do not fit together."""
    kind = file.architecture
    width = file.integer(f"{kind}.embedding_length", low=1, high=1 << 20)
    heads = file.integer(f"{kind}.attention.head_count", low=1, high=4096)
    kv_heads = file.integer(f"{kind}.attention.head_count_kv", heads, low=1, high=heads)
    head_dim = file.integer(f"{kind}.attention.key_length", width // heads, low=2, high=1024)
    values = file.integer(f"{kind}.attention.value_length", head_dim)
    if values != head_dim:
        raise UnsupportedError(
            f"gguf: values of {values} elements beside keys of {head_dim} are not supported",
            facts=[f"file `{file.name}`", f"`{kind}.attention.value_length` is {values}"],
        )
    if heads % kv_heads or head_dim % 16:
        raise ModelFileError(f"gguf: {heads} heads of {head_dim} with {kv_heads} for keys do not fit", facts=[f"file `{file.name}`"])
    return Settings(
        width=width,
        layers=file.integer(f"{kind}.block_count", low=1, high=512),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=file.integer(f"{kind}.feed_forward_length", low=1, high=1 << 20),
        vocab_size=file.tensor("token_embd.weight").shape[0],
        context=file.integer(f"{kind}.context_length", low=1),
        eps=_positive(file, f"{kind}.attention.layer_norm_rms_epsilon", 1e-5),
        scale=scale_of(file, head_dim**-0.5),
        base=_positive(file, f"{kind}.rope.freq_base", 10000.0),
        interleaved=interleaved,
    )


def scale_of(file: GgufFile, usual: float) -> float:
    """Returns the scale of the attention scores: that of the file, or the usual one if the file has none."""
    key = f"{file.architecture}.attention.scale"
    scale = file.number(key, 0.0)
    if scale < 0:
        raise ModelFileError(f"gguf: `{key}` is {scale}, where a number above 0 is expected", facts=[f"file `{file.name}`"])
    return scale or usual


def _positive(file: GgufFile, key: str, default: float) -> float:
    value = file.number(key, default)
    if not value > 0:
        raise ModelFileError(f"gguf: `{key}` is {value}, where a number above 0 is expected", facts=[f"file `{file.name}`"])
    return value


class Product(nn.Module):
    """A linear layer `x @ w.T` with a weight of the file in its stored (quantized) format, and a bias if the file has one."""

    def __init__(self, file: GgufFile, name: str, rows: int, columns: int, order: np.ndarray[Any, Any] | None = None) -> None:
        self.weight = file.tensor(f"{name}.weight", (rows, columns))
        self.order = order  # permutation of the rows; None keeps that of the file
        biased = f"{name}.bias" in file.tensors
        self.bias = _ordered(plain(file.tensor(f"{name}.bias", (rows,))).astype(np.float32), order) if biased else None

    def forward(self, x: Any) -> Any:
        y = product(x, self.weight, self.order)
        return y if self.bias is None else y + self.bias


class Products(nn.Module):
    """Several linear layers of the same `x`; fused into one GEMM over the concatenated rows if all weights have the same format."""

    def __init__(self, *products: Product) -> None:
        self.parts = nn.ModuleList(products)

    def forward(self, x: Any) -> tuple[Any, ...]:
        if len({p.weight.format.name for p in self.parts}) > 1:
            return tuple(p(x) for p in self.parts)
        rows = np.concatenate([_ordered(stored(p.weight), p.order) for p in self.parts])
        y = _times(x, rows, self.parts[0].weight.format)
        outputs = ops.split(y, [p.weight.shape[0] for p in self.parts], axis=1)
        return tuple(a if p.bias is None else a + p.bias for a, p in zip(outputs, self.parts, strict=True))


def product(x: Any, w: GgufTensor, order: np.ndarray[Any, Any] | None = None) -> Any:
    """Returns `x @ w.T`."""
    return _times(x, _ordered(stored(w), order), w.format)


def stored(w: GgufTensor) -> np.ndarray[Any, Any]:
    """Returns a matrix as the matmul operators take it: block formats as u8[rows, blocks, bytes], f16 and bf16 as u16, others as f32."""
    if w.format.codes is not None:
        return w.data.reshape(w.shape[0], -1, w.format.size)
    return w.array().view(np.uint16) if w.format.name in HALVES else plain(w)


def _times(x: Any, rows: np.ndarray[Any, Any], format: Format) -> Any:
    """Returns `x @ rows.T` for weights in a stored format."""
    if format.codes is not None:
        return ops.block_linear(x, ops.constant(rows), format=format.name)
    if format.name in HALVES:
        return ops.half_linear(x, ops.constant(rows), format=format.name)
    return ops.linear(x, ops.constant(rows))


def plain(w: GgufTensor) -> np.ndarray[Any, Any]:
    """Returns the values of a tensor as f32."""
    return w.dequantized() if w.format.name != "F32" else np.asarray(w.array(), np.float32)


def _ordered(a: np.ndarray[Any, Any], order: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any]:
    return a if order is None else np.ascontiguousarray(a[order])


def halves_first(heads: int, head_dim: int) -> np.ndarray[Any, Any]:
    """Returns the row permutation that turns interleaved RoPE pairs into pairs (j, j + head_dim/2) of each head."""
    one = np.concatenate([np.arange(0, head_dim, 2), np.arange(1, head_dim, 2)])
    order: np.ndarray[Any, Any] = (np.arange(heads)[:, None] * head_dim + one).reshape(-1)
    return order


class Norm(nn.Module):
    """RMS norm with a weight of the file."""

    def __init__(self, file: GgufFile, name: str, width: int, eps: float) -> None:
        self.scale = np.asarray(plain(file.tensor(f"{name}.weight", (width,))), np.float32)
        self.eps = eps

    def forward(self, x: Any) -> Any:
        return ops.rms_norm(x, self.scale, eps=self.eps)


class FeedForward(nn.Module):
    """The gated feed-forward network (SwiGLU) of a layer."""

    def __init__(self, file: GgufFile, prefix: str, s: Settings) -> None:
        gate, up = (Product(file, f"{prefix}.ffn_{part}", s.ffn, s.width) for part in ("gate", "up"))
        self.gate_up = Products(gate, up)
        self.down = Product(file, f"{prefix}.ffn_down", s.width, s.ffn)

    def forward(self, x: Any) -> Any:
        gate, up = self.gate_up(x)
        return self.down(ops.silu(gate) * up)


class Attention(nn.Module):
    """Attention with RoPE over the paged KV cache, including QKV and output projections."""

    def __init__(self, file: GgufFile, number: int, s: Settings, kernels: Paged) -> None:
        prefix, q, kv = f"blk.{number}", s.heads * s.head_dim, s.kv_heads * s.head_dim
        order = (halves_first(s.heads, s.head_dim), halves_first(s.kv_heads, s.head_dim)) if s.interleaved else (None, None)
        self.qkv = Products(
            Product(file, f"{prefix}.attn_q", q, s.width, order[0]),
            Product(file, f"{prefix}.attn_k", kv, s.width, order[1]),
            Product(file, f"{prefix}.attn_v", kv, s.width),
        )
        self.out = Product(file, f"{prefix}.attn_output", s.width, q)
        self.q_norm, self.k_norm = (
            Norm(file, f"{prefix}.attn_{side}_norm", s.head_dim, s.eps) if f"{prefix}.attn_{side}_norm.weight" in file.tensors else None
            for side in "qk"
        )
        self.number, self.settings, self.kernels = number, s, kernels

    def forward(self, x: Any, step: Step, keys: Any, values: Any) -> tuple[Any, Any, Any]:
        s, tokens = self.settings, x.shape[0]
        q, k, v = (ops.reshape(a, (tokens, -1, s.head_dim)) for a in self.qkv(x))
        q, k = (a if norm is None else norm(a) for a, norm in ((q, self.q_norm), (k, self.k_norm)))
        q, k = (ops.rotary_embedding(a, step.positions, step.frequencies) for a in (q, k))
        keys, values = self.kernels.append(k, v, self.number, step.positions, step.sequence, step.page_table, keys, values)
        a = self.kernels.attend(q, keys, values, self.number, step.positions, step.sequence, step.first, step.length, step.page_table)
        return self.out(ops.reshape(a, (tokens, s.heads * s.head_dim))), keys, values


@dataclass(slots=True)
class Step:
    """The inputs that all layers of a step share."""

    positions: Any
    frequencies: Any
    sequence: Any
    first: Any
    length: Any
    page_table: Any


class Layer(nn.Module):
    """One pre-norm layer: attention and feed-forward, each with a residual connection."""

    def __init__(self, file: GgufFile, number: int, s: Settings, kernels: Paged) -> None:
        self.attn_norm = Norm(file, f"blk.{number}.attn_norm", s.width, s.eps)
        self.attention = Attention(file, number, s, kernels)
        self.ffn_norm = Norm(file, f"blk.{number}.ffn_norm", s.width, s.eps)
        self.ffn = FeedForward(file, f"blk.{number}", s)

    def forward(self, x: Any, step: Step, keys: Any, values: Any) -> tuple[Any, Any, Any]:
        a, keys, values = self.attention(self.attn_norm(x), step, keys, values)
        x = x + a
        return x + self.ffn(self.ffn_norm(x)), keys, values


class Decoder(nn.Module):
    """A whole decoder: computes logits from tokens, with the KV cache as state."""

    def __init__(self, file: GgufFile, s: Settings, cache: Any = None, kernels: Paged | None = None) -> None:
        self.settings = s
        self.cache = cache or f16
        self.kernels = kernels or Paged(s.heads, s.kv_heads, s.head_dim, s.scale, cache=self.cache)
        self.embedding = file.tensor("token_embd.weight", (s.vocab_size, s.width))
        self.head = file.tensor("output.weight", (s.vocab_size, s.width)) if "output.weight" in file.tensors else self.embedding
        self.frequencies = frequencies(file, s)
        self.layer = nn.ModuleList([self.make_layer(file, n) for n in range(s.layers)])
        self.norm = Norm(file, "output_norm", s.width, s.eps)
        self.inputs = {
            "tokens": Tensor[i32, t],
            "positions": Tensor[i32, t],
            "seq_start": Tensor[i32, b + 1],
            "kv_len": Tensor[i32, b],
            "page_table": Tensor[i32, b, p],
            "rows": Tensor[i32, r],
            "keys": State[self.cache, runs, layers, self.kernels.run, s.kv_heads, s.head_dim, PAGE],
            "values": State[self.cache, runs, layers, self.kernels.run, s.kv_heads, PAGE, s.head_dim],
        }

    def make_layer(self, file: GgufFile, number: int) -> nn.Module:
        """Returns a layer; families with different layers override this."""
        return Layer(file, number, self.settings, self.kernels)

    def finish(self, logits: Any) -> Any:
        """Post-processes the logits; families override this."""
        return logits

    def forward(
        self, tokens: Any, positions: Any, seq_start: Any, kv_len: Any, page_table: Any, rows: Any, keys: Any, values: Any
    ) -> dict[str, Any]:
        first, length, sequence = self.kernels.tiles(seq_start, kv_len, positions)
        step = Step(positions, self.frequencies, sequence, first, length, page_table)
        x = self.embed(tokens)
        for layer in self.layer:
            x, keys, values = layer(x, step, keys, values)
        logits = product(self.norm(ops.take(x, rows, axis=0)), self.head)
        return {"logits": self.finish(logits), "keys": keys, "values": values}

    def embed(self, tokens: Any) -> Any:
        """Returns the embeddings of the tokens."""
        rows, format = ops.constant(stored(self.embedding)), self.embedding.format
        if format.codes is not None:
            return ops.block_take(rows, tokens, format=format.name)
        return ops.half_take(rows, tokens, format=format.name) if format.name in HALVES else ops.take(rows, tokens, axis=0)


def frequencies(file: GgufFile, s: Settings, stretched: bool = True) -> np.ndarray[Any, Any]:
    """Returns the RoPE frequencies, divided by the linear scaling (unless not `stretched`) and by the factors that a file may have."""
    exact = s.base ** -(np.arange(0, s.head_dim, 2, dtype=np.float64) / s.head_dim) / (_stretch(file, s) if stretched else 1.0)
    if "rope_freqs.weight" in file.tensors:
        exact = exact / plain(file.tensor("rope_freqs.weight", (s.head_dim // 2,)))
    result: np.ndarray[Any, Any] = exact.astype(np.float32)
    return result


def _stretch(file: GgufFile, s: Settings) -> float:
    """Returns the linear RoPE scaling factor; raises for other methods of context extension, which would compute a different model."""
    kind = file.architecture
    turned = file.integer(f"{kind}.rope.dimension_count", s.head_dim)
    way = file.text(f"{kind}.rope.scaling.type", "linear")  # old files have a factor and no type
    if turned != s.head_dim or way not in ("none", "linear"):
        raise UnsupportedError(
            f"gguf: the rotation of {turned} of {s.head_dim} elements, scaled as `{shown(way)}`, is not supported",
            facts=[f"file `{file.name}`", "supported: all elements, scaled as none or linear"],
        )
    return _positive(file, f"{kind}.rope.scaling.factor", 1.0) if way == "linear" else 1.0
