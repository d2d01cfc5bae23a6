"""Shared parts of decoder models: settings from a GGUF file, linear layers with its weights, embedding, layer, the whole decoder.

Batches are ragged and the KV cache is paged: `tokens` holds the tokens of all sequences one after the other, and `rows` selects the tokens
whose logits are wanted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import State, Tensor, dim, f16, i32, nn, ops
from ...frontends.gguf import GgufFile
from ...frontends.gguf.reader import GgufTensor
from ...graph.ops.half_weights import FORMATS as HALVES
from ...quantization.formats import Format
from ...support.errors import ModelFileError, UnsupportedError
from ...support.record import dataclass
from ..kv_cache import PAGE, STEP_TOKENS
from ..paged import Paged, b, layers, p, runs, t
from .rope import frequencies, positive, rope_factor

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
    interleaved: bool  # RoPE pairs are adjacent elements, not (j, j + rotated/2)
    rotated: int  # elements of a head that RoPE rotates, from the first on
    rope_factor: float = 1.0  # by which context extension multiplies what is rotated

    @property
    def cache_dim(self) -> int:
        """The size of a head in the KV cache: kernels take multiples of 16, and zeros fill the rest."""
        return -(-self.head_dim // 16) * 16

    @property
    def score_scale(self) -> float:
        """The scale of the attention scores, including that of queries and keys by `rope_factor` if all of their elements are rotated."""
        return self.scale * (self.rope_factor**2 if self.rotated == self.head_dim else 1.0)


def settings_of(file: GgufFile, interleaved: bool) -> Settings:
    """Reads the settings from the metadata of a file; raises for sizes that are not supported or do not fit together.

    `interleaved` says how RoPE pairs elements.
    """
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
    rotated = file.integer(f"{kind}.rope.dimension_count", head_dim, low=2, high=head_dim)
    if heads % kv_heads or rotated % 2:
        raise ModelFileError(
            f"gguf: {heads} heads with {kv_heads} for keys, {rotated} elements of {head_dim} rotated, do not fit",
            facts=[f"file `{file.name}`"],
        )
    return Settings(
        width=width,
        layers=file.integer(f"{kind}.block_count", low=1, high=512),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=file.integer(f"{kind}.feed_forward_length", low=1, high=1 << 20),
        vocab_size=file.tensor("token_embd.weight").shape[0],
        context=file.integer(f"{kind}.context_length", low=1),
        eps=positive(file, f"{kind}.attention.layer_norm_rms_epsilon", 1e-5),
        scale=scale_of(file, head_dim**-0.5),
        base=positive(file, f"{kind}.rope.freq_base", 10000.0),
        interleaved=interleaved,
        rotated=rotated,
        rope_factor=rope_factor(file),
    )


def scale_of(file: GgufFile, usual: float) -> float:
    """Returns the scale of the attention scores: that of the file, or the usual one if the file has none.

    Raises ModelFileError for a negative one.
    """
    key = f"{file.architecture}.attention.scale"
    scale = file.number(key, 0.0)
    if scale < 0:
        raise ModelFileError(f"gguf: `{key}` is {scale}, where a number above 0 is expected", facts=[f"file `{file.name}`"])
    return scale or usual


class Product(nn.Module):
    """A linear layer `x @ w.T` with a weight of the file in its stored (quantized) format, and a bias if the file has one."""

    def __init__(self, file: GgufFile, name: str, rows: int, columns: int, pairs: Pairs | None = None) -> None:
        self.weight = file.tensor(f"{name}.weight", (rows, columns))
        self.pairs = pairs  # rows with interleaved RoPE pairs, which become halves
        biased = f"{name}.bias" in file.tensors
        bias = plain(file.tensor(f"{name}.bias", (rows,))).astype(np.float32) if biased else None
        self.bias = bias if bias is None or pairs is None else bias[pairs.order(rows)]

    def forward(self, x: Any) -> Any:
        y = _times(x, self.rows(), self.weight.format)
        return y if self.bias is None else y + self.bias

    def rows(self) -> Any:
        """Returns the weight's rows in the order of the result, as a value of the program.

        A program reads them from the mapped file when it is loaded: a copy made here would take the memory of the weight once more.
        """
        rows = stored(self.weight)
        return ops.constant(rows) if self.pairs is None else self.pairs.halves_first(rows)


class Products(nn.Module):
    """Several linear layers of the same `x`; fused into one GEMM over the concatenated rows if all weights have the same format."""

    def __init__(self, *products: Product) -> None:
        self.parts = nn.ModuleList(products)

    def forward(self, x: Any) -> tuple[Any, ...]:
        if len({p.weight.format.name for p in self.parts}) > 1:
            return tuple(p(x) for p in self.parts)
        y = _times(x, ops.concat([p.rows() for p in self.parts], axis=0), self.parts[0].weight.format)
        outputs = ops.split(y, [p.weight.shape[0] for p in self.parts], axis=1)
        return tuple(a if p.bias is None else a + p.bias for a, p in zip(outputs, self.parts, strict=True))


def product(x: Any, w: GgufTensor) -> Any:
    """Returns `x @ w.T`."""
    return _times(x, ops.constant(stored(w)), w.format)


def stored(w: GgufTensor) -> np.ndarray[Any, Any]:
    """Returns a matrix as the matmul operators take it: block formats as u8[rows, blocks, bytes], f16 and bf16 as u16, others as f32."""
    if w.format.codes is not None:
        return w.data.reshape(w.shape[0], -1, w.format.size)
    return w.array().view(np.uint16) if w.format.name in HALVES else plain(w)


def _times(x: Any, rows: Any, format: Format) -> Any:
    """Returns `x @ rows.T` for weights in a stored format, by the operator for that format."""
    if format.codes is not None:
        return ops.block_linear(x, rows, format=format.name)
    if format.name in HALVES:
        return ops.half_linear(x, rows, format=format.name)
    return ops.linear(x, rows)


def plain(w: GgufTensor) -> np.ndarray[Any, Any]:
    """Returns the values of a tensor as f32."""
    return w.dequantized() if w.format.name != "F32" else np.asarray(w.array(), np.float32)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Rows of `heads` heads, the first `rotated` of each in interleaved RoPE pairs (2j, 2j + 1): they are moved to (j, j + rotated/2)."""

    heads: int
    rotated: int

    def order(self, rows: int) -> np.ndarray[Any, Any]:
        """Returns the row of the file for each row of the result."""
        own = np.arange(rows).reshape(self.heads, -1)
        order: np.ndarray[Any, Any] = np.concatenate([own[:, : self.rotated : 2], own[:, 1 : self.rotated : 2], own[:, self.rotated :]], 1)
        return order.reshape(-1)

    def halves_first(self, rows: np.ndarray[Any, Any]) -> Any:
        """Returns the rows as a value of the program, in the order that `order` gives."""
        size, length = len(rows) // self.heads, math.prod(rows.shape[1:])
        whole = ops.reshape(ops.constant(rows), (self.heads, size, length))
        pairs, *rest = ops.split(whole, [self.rotated, size - self.rotated], axis=1) if self.rotated < size else (whole,)
        halves = ops.permute(ops.reshape(pairs, (self.heads, self.rotated // 2, 2, length)), (0, 2, 1, 3))
        halves = ops.reshape(halves, (self.heads, self.rotated, length))
        return ops.reshape(ops.concat([halves, *rest], axis=1) if rest else halves, rows.shape)


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
        self.qkv = Products(
            Product(file, f"{prefix}.attn_q", q, s.width, Pairs(s.heads, s.rotated) if s.interleaved else None),
            Product(file, f"{prefix}.attn_k", kv, s.width, Pairs(s.kv_heads, s.rotated) if s.interleaved else None),
            Product(file, f"{prefix}.attn_v", kv, s.width),
        )
        self.out = Product(file, f"{prefix}.attn_output", s.width, q)
        self.q_norm, self.k_norm = (
            Norm(file, f"{prefix}.attn_{side}_norm", s.head_dim, s.eps) if f"{prefix}.attn_{side}_norm.weight" in file.tensors else None
            for side in "qk"
        )
        sinks = f"{prefix}.attn_sinks.weight"
        self.sinks = plain(file.tensor(sinks, (s.heads,))) if sinks in file.tensors else np.full(s.heads, -np.inf, np.float32)
        self.number, self.settings, self.kernels = number, s, kernels

    def forward(self, x: Any, step: Step, keys: Any, values: Any) -> tuple[Any, Any, Any]:
        s, tokens = self.settings, x.shape[0]
        q, k, v = (ops.reshape(a, (tokens, -1, s.head_dim)) for a in self.qkv(x))
        q, k = (a if norm is None else norm(a) for a, norm in ((q, self.q_norm), (k, self.k_norm)))
        q, k = (self.rotated(a, step) for a in (q, k))
        q, k, v = (ops.pad(a, (0, 0, (0, s.cache_dim - s.head_dim))) if s.cache_dim > s.head_dim else a for a in (q, k, v))
        keys, values = self.kernels.append(k, v, self.number, step.positions, step.sequence, step.page_table, keys, values)
        a = self.kernels.attend(
            q, keys, values, self.number, step.positions, step.sequence, step.first, step.length, step.page_table, ops.constant(self.sinks)
        )  # fmt: skip
        a = ops.slice(a, 2, stop=s.head_dim) if s.cache_dim > s.head_dim else a
        return self.out(ops.reshape(a, (tokens, s.heads * s.head_dim))), keys, values

    def rotated(self, a: Any, step: Step) -> Any:
        """Returns queries or keys [tokens, heads, head_dim] with RoPE applied to the first `rotated` elements of each head."""
        s = self.settings
        if s.rotated == s.head_dim:  # `score_scale` has the factor
            return ops.rotary_embedding(a, step.positions, step.frequencies)
        turned, rest = ops.split(a, [s.rotated, s.head_dim - s.rotated], axis=2)
        turned = ops.rotary_embedding(turned, step.positions, step.frequencies)
        return ops.concat([turned if s.rope_factor == 1.0 else turned * s.rope_factor, rest], axis=2)


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
    """One pre-norm layer: attention and feed-forward (or experts), each with a residual connection."""

    def __init__(self, file: GgufFile, number: int, s: Settings, kernels: Paged) -> None:
        self.attn_norm = Norm(file, f"blk.{number}.attn_norm", s.width, s.eps)
        self.attention = Attention(file, number, s, kernels)
        self.ffn_norm = Norm(file, f"blk.{number}.ffn_norm", s.width, s.eps)
        self.ffn = self.make_ffn(file, f"blk.{number}", s)

    def make_ffn(self, file: GgufFile, prefix: str, s: Settings) -> nn.Module:
        """Returns the feed-forward network; layers with experts override this."""
        return FeedForward(file, prefix, s)

    def forward(self, x: Any, step: Step, keys: Any, values: Any) -> tuple[Any, Any, Any]:
        a, keys, values = self.attention(self.attn_norm(x), step, keys, values)
        x = x + a
        return x + self.ffn(self.ffn_norm(x)), keys, values


class Decoder(nn.Module):
    """A whole decoder: computes logits from tokens, with the KV cache as state."""

    def __init__(self, file: GgufFile, s: Settings, cache: Any = None, kernels: Paged | None = None) -> None:
        self.settings = s
        self.cache = cache or f16
        self.kernels = kernels or Paged(s.heads, s.kv_heads, s.cache_dim, s.score_scale, cache=self.cache)
        self.embedding = file.tensor("token_embd.weight", (s.vocab_size, s.width))
        self.head = file.tensor("output.weight", (s.vocab_size, s.width)) if "output.weight" in file.tensors else self.embedding
        self.frequencies = rope_frequencies(file, s)
        self.layer = nn.ModuleList([self.make_layer(file, n) for n in range(s.layers)])
        self.norm = Norm(file, "output_norm", s.width, s.eps)
        self.inputs = {
            "tokens": Tensor[i32, t],
            "positions": Tensor[i32, t],
            "seq_start": Tensor[i32, b + 1],
            "kv_len": Tensor[i32, b],
            "page_table": Tensor[i32, b, p],
            "rows": Tensor[i32, r],
            "keys": State[self.cache, runs, layers, self.kernels.run, s.kv_heads, s.cache_dim, PAGE],
            "values": State[self.cache, runs, layers, self.kernels.run, s.kv_heads, PAGE, s.cache_dim],
        }

    def make_layer(self, file: GgufFile, number: int) -> nn.Module:
        """Returns decoder layer `number`; families with different layers override this."""
        return Layer(file, number, self.settings, self.kernels)

    def finish(self, logits: Any) -> Any:
        """Returns the logits unchanged; families override this to post-process them."""
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


def rope_frequencies(file: GgufFile, s: Settings, stretched: bool = True) -> np.ndarray[Any, Any]:
    """Returns the RoPE frequencies of the model, divided by the factors in `rope_freqs.weight` if the file has them (Llama 3).

    `stretched` applies the file's context extension.
    """
    stored_factors = "rope_freqs.weight" in file.tensors
    factors = plain(file.tensor("rope_freqs.weight", (s.rotated // 2,))).astype(np.float64) if stored_factors else None
    return frequencies(file, s.rotated, s.base, factors, stretched=stretched, whole=file.architecture != "gpt-oss")
