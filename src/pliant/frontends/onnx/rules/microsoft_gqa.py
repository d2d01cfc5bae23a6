"""GroupQueryAttention of the domain com.microsoft: decoder attention with a KV cache, as onnxruntime-genai exports it.

Sequence b has `seqlens_k[b] + 1` keys, including those of the new tokens; `start[b]` of them are in the cache. So the keys are

    present[b, t] = past[b, t]               for t < start[b]
                    key[b, t - start[b]]     for t >= start[b]

and the query of token i sees those at t <= start[b] + i. The number of keys is the dim max(past, total_sequence_length); if
total_sequence_length is known only at run time, it becomes a new dim. Rows beyond the end of a shorter sequence are undefined.
"""

from __future__ import annotations

from typing import Any

from ....dtype import f32, i64
from ....support.record import dataclass
from ....sym.expr import Cast, Expr
from ....sym.simplify import simplify
from ..emit import ops
from ..node_context import NodeContext
from ..registry import rule
from .extents import extent, most, plain
from .microsoft import MS, rotated
from .microsoft_attention import flat_heads, heads_of

_QKV, _PAST, _LENGTHS, _TOTAL, _COS, _PLACES, _BIAS, _SINK = 0, 3, 5, 6, 7, 9, 10, 11  # input numbers


@dataclass(frozen=True, slots=True)
class _Cache:
    """The sizes of a KV cache: `start`, the cached tokens of each sequence (i64[batch]), and the dims of new tokens and of all keys."""

    start: Any
    new: Any
    keys: Any

    def places(self) -> Any:
        """Returns the position of each new token, i64[batch, new]."""
        return ops.add(ops.unsqueeze(self.start, 1), ops.unsqueeze(ops.arange(self.new), 0))

    def seen(self, window: int) -> Any:
        """Returns the mask of visible keys, bool[batch, 1, new, keys]: causal, and with `window` >= 0 only the last `window` of them."""
        place, key = ops.unsqueeze(self.places(), (1, 3)), ops.reshape(ops.arange(self.keys), (1, 1, 1, -1))
        visible: Any = ops.less_equal(key, place)
        return visible if window < 0 else ops.logical_and(visible, ops.less(ops.sub(place, window), key))

    def joined(self, past: Any, new: Any) -> Any:
        """Returns all keys or values [batch, heads, keys, d]: for sequence b the first `start[b]` cached rows, then its new ones.

        `past` is [batch, heads, capacity, d] or None, `new` is [batch, new, heads, d]. Rows beyond the end of a sequence are undefined.
        """
        if past is None:
            return ops.permute(new, (0, 2, 1, 3))
        capacity = past.tensor.shape[2]
        whole = ops.concat([ops.permute(past, (0, 2, 1, 3)), new], 1)
        key, start = ops.unsqueeze(ops.arange(self.keys), 0), ops.unsqueeze(self.start, 1)
        new_row: Any = ops.add(ops.sub(key, start), extent(capacity, i64))
        last = ops.sub(extent(simplify(capacity + self.new), i64), 1)
        rows = ops.where(ops.less(key, start), key, ops.minimum(new_row, last))
        return ops.permute(ops.gather_nd(whole, ops.unsqueeze(rows, 2), 1), (0, 2, 1, 3))


@rule("GroupQueryAttention", domain=MS)
def group_query_attention(site: NodeContext) -> Any:
    """Imports GroupQueryAttention: attention of new tokens over the KV cache and themselves; returns the output and the new cache.

    Raises UnsupportedError for scores as a result, sliding or quantized caches, and non-causal attention.
    """
    heads, kv = site.integer("num_heads", 0), site.integer("kv_num_heads", 0)
    site.require(heads > 0 and kv > 0 and heads % kv == 0, f'attributes "num_heads" and "kv_num_heads" are {heads} and {kv}')
    if site.integer("qk_output", 0) or site.integer("sliding_window_cache", 0) or not site.integer("causal", 1):
        raise site.unsupported("scores as a result, caches that slide, and queries that see what comes later, are not supported")
    if any(site.has(k) for k in range(_SINK + 1, len(site.items))):
        raise site.unsupported("caches of codes, and norms of queries and keys, are not supported")
    q, k, v = _tokens(site, heads, kv)
    cache = _cache(site, q)
    if site.integer("do_rotary", 0):
        places = site.x(_PLACES) if site.has(_PLACES) else cache.places()
        cos, sin = (ops.unsqueeze(ops.take(site.x(n), places, 0), 2) for n in (_COS, _COS + 1))  # [batch, n, 1, half]
        q, k = (rotated(x, cos, sin, bool(site.integer("rotary_interleaved", 0))) for x in (q, k))
    keys, values = cache.joined(site.get(_PAST), k), cache.joined(site.get(_PAST + 1), v)
    return flat_heads(_attended(site, ops.permute(q, (0, 2, 1, 3)), keys, values, cache)), keys, values


def _tokens(site: NodeContext, heads: int, kv: int) -> list[Any]:
    """Returns queries, keys and values of new tokens, [batch, n, heads, d]; one tensor may pack all three."""
    if site.has(1):
        return [heads_of(site.x(n), count) for n, count in ((0, heads), (1, kv), (2, kv))]
    width = plain(site.tensor(_QKV).shape[2])
    site.require(isinstance(width, int) and width % (heads + 2 * kv) == 0, f"rows of {width} numbers for {heads} + 2 * {kv} heads")
    d = width // (heads + 2 * kv)
    return [heads_of(part, n) for part, n in zip(ops.split(site.x(_QKV), [heads * d, kv * d, kv * d], 2), (heads, kv, kv), strict=True)]


def _cache(site: NodeContext, q: Any) -> _Cache:
    """Returns the layout of the KV cache, from the inputs with the lengths and the past keys."""
    new = q.tensor.shape[1]
    lengths: Any = ops.add(ops.cast(ops.reshape(site.x(_LENGTHS), (-1,)), i64), 1)
    start = ops.maximum(ops.sub(lengths, extent(new, i64)), 0)
    if not site.has(_PAST):
        return _Cache(start, new, new)
    past = site.tensor(_PAST).shape[2]
    (total,) = site.run_time_dims(_TOTAL, simplify(past + new))
    return _Cache(start, new, most(past, Cast(i64, total) if isinstance(total, Expr) and total.dtype is not i64 else total))


def _attended(site: NodeContext, q: Any, k: Any, v: Any, cache: _Cache) -> Any:
    """Emits the attention of the queries over cached and new keys; returns [batch, heads, n, d]."""
    of, d = q.tensor.dtype, plain(q.tensor.shape[3])
    scale = site.real("scale", 0.0) or float(d) ** -0.5
    mask: Any = cache.seen(site.integer("local_window_size", -1))
    if site.has(_BIAS):
        mask = ops.where(mask, site.x(_BIAS), ops.constant(float("-inf"), of))
    softcap, sink = site.real("softcap", 0.0), _sink(site)
    if sink is None:
        # is_causal with the offset of the longest sequence is a bound for all: the kernel skips the keys beyond it without the mask.
        offset = simplify(cache.keys - cache.new)
        return ops.scaled_dot_product_attention(q, k, v, mask, is_causal=True, scale=scale, offset=offset, cap=softcap or None)
    return _with_sink(q, k, v, mask, scale, softcap, sink)


def _sink(site: NodeContext) -> Any:
    """Returns the attention sink of each head: an extra score that takes part in the softmax but has no value; None without one."""
    if site.has(_SINK):
        return ops.reshape(ops.cast(site.x(_SINK), f32), (1, -1, 1, 1))
    return ops.zeros((1, 1, 1, 1), f32) if site.integer("smooth_softmax", 0) == 1 else None


def _with_sink(q: Any, k: Any, v: Any, mask: Any, scale: float, softcap: float, sink: Any) -> Any:
    """Returns attention that stores all scores, for attention sinks, which the attention operator does not support.

    It computes in f32, and the result has the dtype of q. A sink is a score that takes its share of the softmax, and has no value.
    """
    b, heads, n, d = q.tensor.shape
    kv, of = k.tensor.shape[1], q.tensor.dtype
    q, k, v = (x if of is f32 else ops.cast(x, f32) for x in (q, k, v))
    grouped = ops.reshape(q, (b, kv, simplify(heads // kv * n), d))
    scores: Any = ops.mul(ops.matmul(grouped, k, transpose_b=True), scale)
    scores = ops.mul(ops.tanh(ops.div(scores, softcap)), softcap) if softcap else scores
    scores = ops.reshape(scores, (b, heads, n, k.tensor.shape[2]))
    if mask.tensor.dtype.is_float:
        scores = ops.add(scores, mask if of is f32 else ops.cast(mask, f32))
    else:
        scores = ops.where(mask, scores, float("-inf"))
    largest: Any = ops.max(scores, axis=3, keepdims=True)
    largest = ops.maximum(largest, sink)
    weights: Any = ops.exp(ops.sub(scores, largest))
    total: Any = ops.sum(weights, axis=3, keepdims=True)
    total = ops.add(total, ops.exp(ops.sub(sink, largest)))
    shares = ops.reshape(ops.div(weights, total), (b, kv, simplify(heads // kv * n), k.tensor.shape[2]))
    y: Any = ops.reshape(ops.matmul(shares, v), (b, heads, n, d))
    return y if of is f32 else ops.cast(y, of)
