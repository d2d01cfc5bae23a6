"""Operators of the domain com.microsoft, which onnxruntime's tools write: fused forms of standard operators."""

from __future__ import annotations

from typing import Any

from ....dtype import f32, i64
from ..emit import ops
from ..node_context import NodeContext
from ..registry import rule
from .extents import plain
from .spatial import conv

MS = "com.microsoft"


@rule("Gelu", "BiasGelu", domain=MS)
def gelu(site: NodeContext) -> Any:
    """Imports Gelu (com.microsoft): the exact GELU of x, or of x + bias."""
    return ops.gelu(_with_bias(site, 1))


@rule("FastGelu", domain=MS)
def fast_gelu(site: NodeContext) -> Any:
    """Imports FastGelu: the tanh approximation of GELU of x, or of x + bias."""
    return ops.gelu(_with_bias(site, 1), approximate="tanh")


@rule("QuickGelu", domain=MS)
def quick_gelu(site: NodeContext) -> Any:
    """Imports QuickGelu: x * sigmoid(alpha * x)."""
    x = site.x(0)
    return ops.mul(x, ops.sigmoid(ops.mul(x, site.real("alpha", 1.702))))


def _with_bias(site: NodeContext, k: int) -> Any:
    """Returns input 0, plus input `k` if it is present."""
    return ops.add(site.x(0), site.x(k)) if site.has(k) else site.x(0)


@rule("SimplifiedLayerNormalization")
@rule("SimplifiedLayerNormalization", domain=MS)
def simplified_layer_norm(site: NodeContext) -> Any:
    """Imports SimplifiedLayerNormalization: RMS normalization over the last axes; onnxruntime writes it in the default domain too."""
    return _simplified(site, site.x(0), site.x(1), site.axis("axis", site.rank(0), -1))


def _simplified(site: NodeContext, x: Any, weight: Any, axis: int) -> Any:
    """Emits RMS normalization over the axes from `axis` on, computed in f32 for 16-bit floats; returns it times the weight."""
    of, rank = x.tensor.dtype, len(x.tensor.shape)
    wide: Any = ops.cast(x, f32) if of.bits == 16 else x
    mean = ops.mean(ops.mul(wide, wide), axis=list(range(axis, rank)), keepdims=True)
    y: Any = ops.mul(wide, ops.rsqrt(ops.add(mean, site.real("epsilon", 1e-5))))
    return ops.mul(y if y.tensor.dtype is of else ops.cast(y, of), weight)


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MS)
def skip_layer_norm(site: NodeContext) -> Any:
    """Imports the Skip norms: layer or RMS normalization of x + skip + bias.

    The sum is the fourth result, the second and third are missing.
    """
    simplified = site.op.startswith("SkipSimplified")
    total: Any = ops.add(site.x(0), site.x(1))
    bias = 3 if simplified else 4
    total = ops.add(total, site.x(bias)) if site.has(bias) else total
    if simplified:
        y = _simplified(site, total, site.x(2), site.rank(0) - 1)
    else:
        y = ops.layer_norm(total, site.x(2), site.get(3), eps=site.real("epsilon", 1e-12))
    return y, None, None, total


@rule("EmbedLayerNormalization", domain=MS)
def embed_layer_norm(site: NodeContext) -> Any:
    """Imports EmbedLayerNormalization: layer normalization of the sum of word, position and segment embeddings.

    The second result is the number of tokens by the mask (zeros without one), the third the sum.
    """
    total: Any = ops.take(site.x(2), site.x(0), 0)
    length = site.tensor(0).shape[1]
    places = site.x(8) if site.has(8) else ops.arange(length)
    total = ops.add(total, ops.take(site.x(3), places, 0))
    if site.has(1) and site.has(4):
        total = ops.add(total, ops.take(site.x(4), site.x(1), 0))
    y = ops.layer_norm(total, site.x(5), site.x(6), eps=site.real("epsilon", 1e-12))
    used = ops.sum(site.x(7), axis=1) if site.has(7) else ops.zeros((site.tensor(0).shape[0],), "i32")
    return y, used, total


@rule("FusedMatMul", domain=MS)
def fused_matmul(site: NodeContext) -> Any:
    """Imports FusedMatMul: alpha * A' @ B', where ' is an optional transpose; raises UnsupportedError for transposed batch dims."""
    for name in ("transBatchA", "transBatchB"):
        if site.integer(name, 0):
            raise site.unsupported(f'attribute "{name}" is not supported')
    site.require(min(site.rank(0), site.rank(1)) >= 2, "an operand has less than two dims")
    product = ops.matmul(site.x(0), site.x(1), transpose_a=bool(site.integer("transA", 0)), transpose_b=bool(site.integer("transB", 0)))
    alpha = site.real("alpha", 1.0)
    return product if alpha == 1.0 else ops.mul(product, alpha)


@rule("FusedConv", domain=MS)
def fused_conv(site: NodeContext) -> Any:
    """Imports FusedConv: a convolution, plus an optional residual, then an activation."""
    y: Any = conv(site)
    y = ops.add(y, site.x(3)) if site.has(3) else y
    params = site.floats("activation_params", None) or []
    units: dict[str, Any] = {
        "": lambda: y, "Relu": lambda: ops.relu(y), "Tanh": lambda: ops.tanh(y), "Sigmoid": lambda: ops.sigmoid(y),
        "LeakyRelu": lambda: ops.leaky_relu(y, alpha=params[0] if params else 0.01),
        "Clip": lambda: ops.clip(y, params[0], params[1]),
        "HardSigmoid": lambda: ops.hard_sigmoid(y, alpha=params[0] if params else 0.2, beta=params[1] if params else 0.5),
    }  # fmt: skip
    return units[site.text("activation", "", *units)]()


@rule("RotaryEmbedding", domain=MS)
def rotary_embedding(site: NodeContext) -> Any:
    """Imports RotaryEmbedding (RoPE) of each head, or of its first part, with tables of cosines and sines by position.

    Raises UnsupportedError for packed batches.
    """
    shape, x = site.tensor(0).shape, site.x(0)
    if site.integer("is_packed_batching", 0):
        raise site.unsupported("packed batches are not supported")
    site.require(len(shape) in (3, 4), f"the operand has {len(shape)} dims")
    scale, part, heads = site.real("scale", 1.0), site.integer("rotary_embedding_dim", 0), site.integer("num_heads", 0)
    angles = plain(site.tensor(2).shape[1])
    site.require(not part or part == 2 * angles, f'attribute "rotary_embedding_dim" is {part}, there are {angles} angles')
    if len(shape) == 3:
        site.require(not part or heads > 0, f'attribute "num_heads" is {heads}')
        x = ops.reshape(x, (shape[0], shape[1], heads, -1) if heads else (shape[0], shape[1], -1, site.tensor(2).shape[1] * 2))
        length, axis = shape[1], 2
    else:
        site.require(not heads or heads == plain(shape[1]), f'attribute "num_heads" is {heads}, the operand has {shape[1]}')
        length, axis = shape[2], 1
    first = site.rank(1) < 2  # a single number is the position of the first token of every sequence
    if site.rank(1) == 1:
        site.settle(1, 1)
    site.require(site.shape(1) in ((1,), ()) if first else site.rank(1) == 2, f"the places are {site.tensor(1)}")
    places = site.x(1) if site.dtype(1) is i64 else ops.cast(site.x(1), i64)
    places = ops.add(ops.reshape(places, (1, 1)), ops.unsqueeze(ops.arange(length), 0)) if first else places
    cos, sin = (ops.unsqueeze(ops.take(site.x(k), places, 0), axis) for k in (2, 3))
    result: Any = ops.reshape(rotated(x, cos, sin, bool(site.integer("interleaved", 0))), shape)
    return result if scale == 1.0 else ops.mul(result, scale)


def rotated(x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """Returns RoPE applied to the last dim: pairs are neighbors (interleaved) or half of the rotated part apart; the rest is unchanged."""
    rank, half, width = len(x.tensor.shape), plain(cos.tensor.shape[-1]), plain(x.tensor.shape[-1])
    if 2 * half != width:
        parts = ops.slice(x, rank - 1, 0, 2 * half), ops.slice(x, rank - 1, 2 * half, None)
        return ops.concat([rotated(parts[0], cos, sin, interleaved), parts[1]], rank - 1)
    if interleaved:
        pairs = ops.reshape(x, (*x.tensor.shape[:-1], half, 2))
        a, b = (ops.squeeze(ops.slice(pairs, rank, k, k + 1), rank) for k in (0, 1))
    else:
        a, b = ops.slice(x, rank - 1, 0, half), ops.slice(x, rank - 1, half, None)
    first, second = ops.sub(ops.mul(a, cos), ops.mul(b, sin)), ops.add(ops.mul(b, cos), ops.mul(a, sin))
    return ops.reshape(ops.stack([first, second], rank), x.tensor.shape) if interleaved else ops.concat([first, second], rank - 1)
