"""Attention operators of the domain com.microsoft: Attention and MultiHeadAttention."""

from __future__ import annotations

from typing import Any

from ....dtype import i32, i64
from ..emit import ops
from ..node_context import NodeContext
from ..registry import rule
from .extents import extent, plain
from .microsoft import MS


@rule("Attention", domain=MS)
def attention(site: NodeContext) -> Any:
    """Imports Attention: self-attention with one packed projection for queries, keys and values, and an optional KV cache.

    Raises UnsupportedError for rotary embeddings and past_sequence_length.
    """
    heads = site.integer("num_heads", 0)
    site.require(heads > 0, f'attribute "num_heads" is {heads}')
    if site.has(6) or site.integer("do_rotary", 0):
        raise site.unsupported("past_sequence_length and rotary embeddings are not supported")
    whole: Any = ops.matmul(site.x(0), site.x(1))
    whole = ops.add(whole, site.x(2)) if site.has(2) else whole
    sizes = site.ints("qkv_hidden_sizes", None) or [plain(whole.tensor.shape[-1]) // 3] * 3
    q, k, v = (_heads(part, heads) for part in ops.split(whole, sizes, 2))
    past = site.get(4)
    if past is not None:  # [2, batch, heads, n, d]
        k, v = (ops.concat([ops.squeeze(ops.slice(past, 0, i, i + 1), 0), new], 2) for i, new in ((0, k), (1, v)))
    mask = _mask(site, 3, k.tensor.shape[2])
    y = _attended(site, q, k, v, mask, site.get(5), bool(site.integer("unidirectional", 0)))
    if len(site.node.output) < 2 or not site.node.output[1]:
        return y  # without a cache, keys and values may have different head_dims, which one tensor cannot hold
    return y, ops.stack([k, v], 0)


@rule("MultiHeadAttention", domain=MS)
def multi_head_attention(site: NodeContext) -> Any:
    """Imports MultiHeadAttention of projected queries, keys and values, with an optional KV cache.

    Raises UnsupportedError for caches of a fixed size or with indirections.
    """
    heads = site.integer("num_heads", 0)
    site.require(heads > 0, f'attribute "num_heads" is {heads}')
    if any(site.has(k) for k in (8, 9)):
        raise site.unsupported("caches of a fixed size, and with indirections, are not supported")
    parts = _parts(site)
    if site.has(3):
        sizes = [plain(p.tensor.shape[-1]) for p in (parts[0], parts[0], parts[2])]
        biases = ops.split(site.x(3), sizes, 0)
        parts = [p if len(p.tensor.shape) == 4 else ops.add(p, b) for p, b in zip(parts, biases, strict=True)]
    q, k, v = (p if len(p.tensor.shape) == 4 else _heads(p, heads) for p in parts)
    if site.has(6):
        k, v = ops.concat([site.x(6), k], 2), ops.concat([site.x(7), v], 2)
    mask = _mask(site, 4, k.tensor.shape[2])
    y = _attended(site, q, k, v, mask, site.get(5), bool(site.integer("unidirectional", 0)))
    return y, k, v


def _parts(site: NodeContext) -> list[Any]:
    """Returns queries, keys and values; one tensor [batch, n, heads, 3, d] may pack all three, or one with 2 keys and values."""
    if site.has(2):
        return [site.x(k) for k in range(3)]
    packed, count = (site.x(1), 2) if site.has(1) else (site.x(0), 3)
    shape = packed.tensor.shape
    site.require(len(shape) == 5 and plain(shape[3]) == count, f"one operand for {count} is {packed.tensor}")
    rows = (*shape[:2], plain(shape[2]) * plain(shape[4]))
    parts = [ops.reshape(ops.slice(packed, 3, k, k + 1), rows) for k in range(count)]
    return [site.x(0), *parts] if count == 2 else parts


def heads_of(x: Any, heads: int) -> Any:
    """Reshapes [batch, n, heads * head_dim] to [batch, n, heads, head_dim]."""
    b, n, size = x.tensor.shape
    return ops.reshape(x, (b, n, heads, plain(size) // heads))


def flat_heads(y: Any) -> Any:
    """Reshapes [batch, heads, n, head_dim] to [batch, n, heads * head_dim]."""
    b, heads, n, d = y.tensor.shape
    return ops.reshape(ops.permute(y, (0, 2, 1, 3)), (b, n, plain(heads) * plain(d)))


def _heads(x: Any, heads: int) -> Any:
    """Reshapes [batch, n, heads * head_dim] to [batch, heads, n, head_dim]."""
    return ops.permute(heads_of(x, heads), (0, 2, 1, 3))


def _mask(site: NodeContext, k: int, keys: Any) -> Any:
    """Returns the mask of visible keys, a bool tensor that broadcasts to [batch, heads, n, keys]; None if all are visible.

    Raises UnsupportedError for masks of starts and ends, and of more than 3 dims.
    """
    if not site.has(k):
        return None
    mask, shape = site.x(k), site.shape(k)
    if len(shape) == 1:  # the length of each sequence
        if plain(shape[0]) != plain(site.tensor(0).shape[0]):
            raise site.unsupported("starts and ends of sequences as a mask are not supported")
        places = ops.cast(ops.arange(keys), i32)
        return ops.less(ops.reshape(places, (1, 1, 1, -1)), ops.reshape(ops.cast(mask, i32), (-1, 1, 1, 1)))
    if len(shape) > 3:
        raise site.unsupported(f"a mask of {len(shape)} dims is not supported")
    return ops.not_equal(ops.unsqueeze(mask, (1, 2) if len(shape) == 2 else 1), 0)


def _attended(site: NodeContext, q: Any, k: Any, v: Any, mask: Any, bias: Any, causal: bool) -> Any:
    """Returns softmax(q @ k.T * scale + bias) @ v with heads concatenated; as in onnxruntime, hidden keys get mask_filter_value added.

    With `causal`, keys after the query's position are hidden by -inf.
    """
    n, d = q.tensor.shape[2:]
    scale = site.real("scale", 0.0) or float(plain(d)) ** -0.5
    scores: Any = ops.mul(ops.matmul(q, k, transpose_b=True), scale)
    scores = scores if bias is None else ops.add(scores, bias)
    low = site.real("mask_filter_value", -10000.0)
    if mask is not None:
        scores = ops.add(scores, ops.where(mask, ops.constant(0.0, scores.tensor.dtype), ops.constant(low, scores.tensor.dtype)))
    if causal:
        keys = k.tensor.shape[2]
        last = ops.add(ops.unsqueeze(ops.arange(n), 1), ops.sub(extent(keys, i64), extent(n, i64)))
        scores = ops.where(ops.less_equal(ops.unsqueeze(ops.arange(keys), 0), last), scores, float("-inf"))
    return flat_heads(ops.matmul(ops.softmax(scores, -1), v))
