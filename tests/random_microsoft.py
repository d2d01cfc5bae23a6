"""Random nodes of the domain com.microsoft, with what numpy says that they give.

    node = random_node(seed)
    node.model, node.feeds, node.wanted      # wanted is None where the node has to be refused

The definitions are those of onnxruntime's documentation of its contributed operators, written here a second time, in float64.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = Any
ERF = np.vectorize(math.erf, otypes=[np.float64])


@dataclass
class Node:
    """A node before it is a model."""

    op: str
    inputs: list[Array | None]
    wanted: list[Array | None] | None  # None: refused; of a result None: it is not asked for
    attributes: dict[str, Any] = field(default_factory=dict)
    known: frozenset[int] = frozenset()  # inputs that have to be initializers
    near: float = 1e-4
    domain: str = "com.microsoft"
    model: Any = None
    feeds: dict[str, Array] = field(default_factory=dict)


class Maker:
    """Draws shapes, numbers and options."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"microsoft {seed}")
        self.rng = np.random.default_rng(self.dice.randrange(1 << 30))

    def pick(self, *choices: Any) -> Any:
        return self.dice.choice(choices)

    def chance(self, probability: float = 0.5) -> bool:
        return self.dice.random() < probability

    def floats(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def maybe(self, *shape: int) -> Array | None:
        return self.floats(*shape) if self.chance() else None

    def codes(self, dtype: Any, *shape: int) -> Array:
        info = np.iinfo(dtype)
        return self.rng.integers(info.min, info.max + 1, shape).astype(dtype)

    def scale(self) -> Array:
        return np.float32(self.pick(0.05, 0.1, 0.2, 0.7))

    def zero(self, dtype: Any) -> Array | None:
        return self.codes(dtype) if self.chance(0.8) else None


def wide(*arrays: Array | None) -> list[Any]:
    return [0.0 if a is None else np.asarray(a).astype(np.float64) for a in arrays]


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normed(x: Array, weight: Array, bias: Array, eps: float, mean: bool = True) -> Array:
    x = x - x.mean(-1, keepdims=True) if mean else x
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight + bias


def gelu(m: Maker) -> Node:
    op = m.pick("Gelu", "BiasGelu", "FastGelu", "QuickGelu")
    x = m.floats(m.pick(1, 3), m.pick(4, 5))
    bias = m.floats(x.shape[1]) if op == "BiasGelu" or (op == "FastGelu" and m.chance()) else None
    alpha = m.pick(1.0, 1.702, 2.5)
    y, b = wide(x, bias)
    y = y + b
    if op == "QuickGelu":
        return Node(op, [x], [y / (1 + np.exp(-alpha * y))], {} if alpha == 1.702 else {"alpha": alpha})
    tanh = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
    return Node(op, [x, bias] if bias is not None else [x], [tanh if op == "FastGelu" else 0.5 * y * (1 + ERF(y / math.sqrt(2)))])


def norm(m: Maker) -> Node:
    op = m.pick("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization")
    rows, width = (m.pick(1, 2), m.pick(1, 3)), m.pick(4, 8)
    x, skip, weight, beta, bias = m.floats(*rows, width), m.floats(*rows, width), m.floats(width), m.maybe(width), m.maybe(width)
    eps = m.pick(1e-5, 1e-2, None)
    attributes = {} if eps is None else {"epsilon": eps}
    a, s, w, be, bi = wide(x, skip, weight, beta, bias)
    if op == "SimplifiedLayerNormalization":
        wanted = [normed(a, w, 0.0, 1e-5 if eps is None else eps, mean=False)]
        if m.chance(0.3):
            both = (a * a).mean((-1, -2), keepdims=True)
            weight = m.floats(rows[1], width)
            wanted, attributes = [a / np.sqrt(both + (1e-5 if eps is None else eps)) * weight], {**attributes, "axis": -2}
        return Node(op, [x, weight], wanted, attributes, domain=m.pick("", "com.microsoft"))
    total = a + s + bi
    if op == "SkipLayerNormalization":
        return Node(op, [x, skip, weight, beta, bias], [normed(total, w, be, 1e-12 if eps is None else eps), None, None, total], attributes)
    y = normed(total, w, 0.0, 1e-5 if eps is None else eps, mean=False)
    return Node(op, [x, skip, weight, bias], [y, None, None, total], attributes)


def embedding(m: Maker) -> Node:
    batch, n, width = m.pick(1, 2), m.pick(1, 4), m.pick(4, 8)
    words, segments = (m.rng.integers(0, k, (batch, n)).astype(np.int32) for k in (9, 2))
    tables = [m.floats(9, width), m.floats(6, width), m.floats(2, width)]
    weight, bias = m.floats(width), m.floats(width)
    mask = m.rng.integers(0, 2, (batch, n)).astype(np.int32) if m.chance() else None
    places = m.rng.integers(0, 6, (batch, n)).astype(np.int32) if m.chance(0.4) else None
    with_segments = m.chance()
    total = tables[0][words] + tables[1][np.arange(n) if places is None else places] + (tables[2][segments] if with_segments else 0)
    y = normed(*wide(total, weight, bias), 1e-5)
    used = np.zeros(batch, np.int32) if mask is None else mask.sum(1).astype(np.int32)
    third = total if m.chance(0.4) else None
    one, two = (segments, tables[2]) if with_segments else (None, None)
    inputs = [words, one, tables[0], tables[1], two, weight, bias, mask, places]
    return Node("EmbedLayerNormalization", inputs, [y, used, third], {"epsilon": 1e-5})


def fused_matmul(m: Maker) -> Node:
    batch, a, b, k = m.pick((), (2,)), m.pick(1, 3), m.pick(2, 5), m.pick(1, 4)
    x, y, ta, tb = m.floats(*batch, a, k), m.floats(*batch, k, b), m.pick(0, 1), m.pick(0, 1)
    alpha = m.pick(1.0, 0.5, -2.0)
    wanted = alpha * (x.astype(np.float64) @ y)
    x, y = (np.ascontiguousarray(np.swapaxes(v, -1, -2)) if t else v for v, t in ((x, ta), (y, tb)))
    if m.chance(0.1):
        return Node("FusedMatMul", [x, y], None, {m.pick("transBatchA", "transBatchB"): 1})
    return Node("FusedMatMul", [x, y], [wanted], {"transA": ta, "transB": tb, **({} if alpha == 1.0 else {"alpha": alpha})})


def fused_conv(m: Maker) -> Node:
    x, w = m.floats(1, 3, 6, m.pick(5, 6)), m.floats(4, 3, 3, 3)
    bias = m.maybe(4)
    attributes = {"pads": [1, m.pick(0, 1), 1, 1], "strides": [m.pick(1, 2), 1], "kernel_shape": [3, 3]}
    node = helper.make_node("Conv", ["x", "w", "b"] if bias is not None else ["x", "w"], ["y"], **attributes)
    infos = [helper.make_tensor_value_info(k, 1, None) for k in node.input]
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", 1, None)])
    feeds = {"x": x, "w": w} if bias is None else {"x": x, "w": w, "b": bias}
    y = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])).run(None, feeds)[0].astype(np.float64)
    rest = m.maybe(*y.shape)
    y = y + (0 if rest is None else rest)
    units: dict[str, tuple[list[float], Callable[[], Any]]] = {
        "": ([], lambda: y),
        "Relu": ([], lambda: np.maximum(y, 0)),
        "Tanh": ([], lambda: np.tanh(y)),
        "Sigmoid": ([], lambda: 1 / (1 + np.exp(-y))),
        "LeakyRelu": ([0.3], lambda: np.where(y < 0, 0.3 * y, y)),
        "Clip": ([-0.5, 0.25], lambda: np.clip(y, -0.5, 0.25)),
        "HardSigmoid": ([0.1, 0.4], lambda: np.clip(0.1 * y + 0.4, 0, 1)),
    }
    name = m.pick(*units)
    more = {"activation": name, "activation_params": units[name][0]} if units[name][0] else {"activation": name} if name else {}
    return Node("FusedConv", [x, w, bias, rest], [units[name][1]()], {**attributes, **more}, near=1e-3)


def turned(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """The pairs of a last axis turned; what is behind them stays."""
    half = cos.shape[-1]
    part, rest = x[..., : 2 * half], x[..., 2 * half :]
    a, b = (part[..., 0::2], part[..., 1::2]) if interleaved else (part[..., :half], part[..., half:])
    first, second = a * cos - b * sin, b * cos + a * sin
    both = np.stack([first, second], -1).reshape(part.shape) if interleaved else np.concatenate([first, second], -1)
    return np.concatenate([both, rest], -1)


def rotary(m: Maker) -> Node:
    batch, n, heads, half, interleaved = m.pick(1, 2), m.pick(1, 4), m.pick(1, 3), m.pick(2, 4), m.pick(0, 1)
    flat, part = m.chance(), m.chance(0.3)
    width = 2 * half + (2 if part else 0)
    cos, sin = m.floats(9, half), m.floats(9, half)
    one = m.chance(0.4)
    places = np.array([m.pick(0, 3)], np.int64) if one else m.rng.integers(0, 9, (batch, n)).astype(np.int64)
    rows = places[0] + np.arange(n)[None] if one else places
    x = m.floats(batch, n, heads, width)
    c, s = (t[rows][:, :, None] for t in (cos, sin))
    wanted = turned(*wide(x, c, s), bool(interleaved))
    attributes: dict[str, Any] = {"interleaved": interleaved}
    if m.chance(0.1):
        attributes["is_packed_batching"] = 1
    scale = m.pick(1.0, 1.0, 0.5)
    attributes |= {} if scale == 1.0 else {"scale": scale}
    if flat:
        attributes |= {"num_heads": heads, "rotary_embedding_dim": 2 * half} if part else {}
        x, wanted = x.reshape(batch, n, -1), wanted.reshape(batch, n, -1)
    else:
        attributes |= {"rotary_embedding_dim": 2 * half} if part else {}
        attributes |= {"num_heads": heads} if part or m.chance() else {}
        x, wanted = (np.ascontiguousarray(v.transpose(0, 2, 1, 3)) for v in (x, wanted))
    refused = attributes.get("is_packed_batching")
    return Node("RotaryEmbedding", [x, places, cos, sin], None if refused else [wanted * scale], attributes)


def attended(q: Array, k: Array, v: Array, scale: float, add: Array | float, causal: bool) -> Array:
    """Heads are the second axis."""
    scores = q @ k.swapaxes(-1, -2) * scale + add
    if causal:
        n, keys = scores.shape[-2:]
        scores = np.where(np.arange(keys)[None] <= np.arange(n)[:, None] + keys - n, scores, -np.inf)
    y = softmax(scores) @ v
    return y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1)


def split_heads(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def mask_for(m: Maker, batch: int, keys: int, n: int) -> tuple[Array | None, Array | float]:
    """A mask, and what it adds to scores."""
    kind = m.pick("none", "lengths", "keys", "whole")
    if kind == "none":
        return None, 0.0
    if kind == "lengths":
        lengths = m.rng.integers(1, keys + 1, batch).astype(np.int32)
        seen = np.arange(keys)[None, None, None] < lengths[:, None, None, None]
        return lengths, np.where(seen, 0.0, -10000.0)
    shape = (batch, keys) if kind == "keys" else (batch, n, keys)
    mask = m.rng.integers(0, 2, shape).astype(np.int32)
    mask[..., 0] = 1  # every query sees something
    seen = mask[:, None, None] if kind == "keys" else mask[:, None]
    return mask, np.where(seen != 0, 0.0, -10000.0)


def attention(m: Maker) -> Node:
    batch, n, heads, d, width = m.pick(1, 2), m.pick(1, 4), m.pick(1, 3), m.pick(2, 4), 6
    size = heads * d
    value = m.pick(size, size, 2 * size)
    x, w, b = m.floats(batch, n, width), m.floats(width, 2 * size + value), m.maybe(2 * size + value)
    held = m.pick(0, 0, 3) if value == size else 0
    past = m.floats(2, batch, heads, held, d) if held else None
    causal = m.chance()
    mask, add = mask_for(m, batch, n + held, n)
    q, k, v = np.split(wide(x)[0] @ w + (0 if b is None else b), [size, 2 * size], axis=2)
    q, k, v = (split_heads(t, heads) for t in (q, k, v))
    if past is not None:
        k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    scale = m.pick(0.0, 0.7)
    bias = m.floats(batch, heads, n, n + held) if m.chance(0.3) else None
    y = attended(q, k, v, scale or d**-0.5, add + (0 if bias is None else bias), causal)
    attributes = {"num_heads": heads, "unidirectional": int(causal)}
    attributes |= {"scale": scale} if scale else {}
    attributes |= {"qkv_hidden_sizes": [size, size, value]} if value != size or m.chance(0.2) else {}
    if m.chance(0.07):
        return Node("Attention", [x, w, b, mask, past, bias], None, {**attributes, **m.pick({"do_rotary": 1}, {"num_heads": 0})})
    present = np.stack([k, v]) if value == size and m.chance() else None
    return Node("Attention", [x, w, b, mask, past, bias], [y, present], attributes)


def multi_head(m: Maker) -> Node:
    batch, n, keys, heads, d = m.pick(1, 2), m.pick(1, 3), m.pick(1, 5), m.pick(1, 3), m.pick(2, 4)
    size = heads * d
    packed = m.pick("", "", "kv", "qkv")
    keys = n if packed == "qkv" else keys
    q, k, v = m.floats(batch, n, size), m.floats(batch, keys, size), m.floats(batch, keys, size)
    bias = m.maybe(3 * size) if not packed else None
    held = m.pick(0, 0, 2) if not packed else 0
    pasts = [m.floats(batch, heads, held, d) for _ in range(2)] if held else [None, None]
    mask, add = mask_for(m, batch, keys + held, n)
    scores = m.floats(m.pick(1, batch), heads, n, keys + held) if m.chance(0.3) else None
    causal = m.chance(0.4) and keys + held >= n  # else some see nothing
    parts = [
        split_heads(t + b, heads) for t, b in zip(wide(q, k, v), np.split(wide(bias)[0], 3) if bias is not None else [0, 0, 0], strict=True)
    ]
    ready = not packed and bias is None and m.chance(0.3)  # keys and values with heads in front
    kk, vv = (parts[i] if not held else np.concatenate([pasts[i - 1], parts[i]], 2) for i in (1, 2))
    y = attended(parts[0], kk, vv, d**-0.5, add + (0 if scores is None else scores), causal)
    shape = (batch, keys, heads, 1, d)
    inputs: list[Array | None] = [q, k, v]
    if ready:
        inputs = [q, *(np.ascontiguousarray(split_heads(t, heads)) for t in (k, v))]
    if packed == "kv":
        inputs = [q, np.concatenate([t.reshape(shape) for t in (k, v)], 3), None]
    elif packed == "qkv":
        inputs = [np.concatenate([t.reshape(shape) for t in (q, k, v)], 3), None, None]
    attributes = {"num_heads": heads, "unidirectional": int(causal)}
    cached = [kk, vv] if m.chance() else [None, None]
    return Node("MultiHeadAttention", [*inputs, bias, mask, scores, *pasts], [y, *cached], attributes)


def group_query(m: Maker) -> Node:
    batch, n, kv, d = m.pick(1, 2), m.pick(1, 3), m.pick(1, 2), m.pick(4, 8)
    heads, held = kv * m.pick(1, 2, 3), m.pick(0, 2, 4)
    total = held + n
    q, k, v = (m.floats(batch, n, count * d) for count in (heads, kv, kv))
    pasts = [m.floats(batch, kv, held, d) if held or m.chance(0.0) else None for _ in range(2)]
    lengths = np.full(batch, total - 1, np.int32)
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": kv}
    rotate, interleaved = m.chance(), m.pick(0, 1)
    cos, sin = m.floats(9, d // 2), m.floats(9, d // 2)
    qs, ks, vs = (t.reshape(batch, n, -1, d) for t in wide(q, k, v))
    if rotate:
        attributes |= {"do_rotary": 1, "rotary_interleaved": interleaved}
        c, s = (t[held + np.arange(n)][None, :, None] for t in wide(cos, sin))
        qs, ks = turned(qs, c, s, bool(interleaved)), turned(ks, c, s, bool(interleaved))
    ks, vs = (t.transpose(0, 2, 1, 3) for t in (ks, vs))
    if held:
        ks, vs = (np.concatenate([p, t], 2) for p, t in zip(pasts, (ks, vs), strict=True))
    scale = m.pick(0.0, 0.6)
    scores = qs.transpose(0, 2, 1, 3) @ np.repeat(ks, heads // kv, 1).swapaxes(-1, -2) * (scale or d**-0.5)
    cap, window, sink = m.pick(0.0, 0.0, 3.0), m.pick(-1, -1, 2), m.maybe(heads) if m.chance(0.4) else None
    scores = np.tanh(scores / cap) * cap if cap else scores
    bias = m.floats(1, heads, n, total) if m.chance(0.3) else None
    scores = scores + (0 if bias is None else bias)
    place, key = (held + np.arange(n))[:, None], np.arange(total)[None]
    seen = (key <= place) & ((key > place - window) if window > 0 else True)
    scores = np.where(seen, scores, -np.inf)
    smooth = sink is None and m.chance(0.2)
    if sink is not None or smooth:
        more = np.broadcast_to(np.zeros(heads) if sink is None else sink, (batch, n, heads)).transpose(0, 2, 1)[..., None]
        weights = softmax(np.concatenate([scores, more], -1))[..., :-1]
    else:
        weights = softmax(scores)
    y = (weights @ np.repeat(vs, heads // kv, 1)).transpose(0, 2, 1, 3).reshape(batch, n, -1)
    attributes |= {"scale": scale} if scale else {}
    attributes |= {"softcap": cap} if cap else {}
    attributes |= {"local_window_size": window} if window > 0 else {}
    attributes |= {"smooth_softmax": 1} if smooth else {}
    tokens: list[Array | None] = [np.concatenate([q, k, v], 2), None, None] if m.chance(0.4) else [q, k, v]
    tables = [cos, sin] if rotate else [None, None]
    inputs = [*tokens, *pasts, lengths, np.int32(total), *tables, None, bias, sink]
    if m.chance(0.2):
        attributes |= m.pick({"kv_num_heads": heads + 1}, {"num_heads": 0}, {"kv_num_heads": 0}, {"kv_num_heads": -1}, {"causal": 0})
        return Node("GroupQueryAttention", inputs, None, attributes)
    return Node("GroupQueryAttention", inputs, [y, ks, vs], attributes, known=frozenset({6}) if m.chance() else frozenset())


def packed_codes(codes: Array, bits: int) -> Array:
    """Codes in bytes, the low half first."""
    return codes if bits == 8 else (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8)


def blocks(m: Maker) -> Node:
    bits, size, n, count = m.pick(4, 8), m.pick(16, 32), m.pick(1, 6), m.pick(1, 2, 3)
    k = count * size - (m.pick(0, 0, 3) if count > 1 else 0)
    codes = m.rng.integers(0, 1 << bits, (n, count, size)).astype(np.uint8)
    scale = (m.rng.random((n, count)) + 0.1).astype(np.float32)
    how = m.pick("none", "codes", "floats")
    zeros = m.rng.integers(0, 1 << bits, (n, count + count % 2 if bits == 4 else count)).astype(np.uint8)
    zero = np.full((n, count), float(1 << (bits - 1))) if how == "none" else zeros[:, :count].astype(np.float64)
    held = {"none": None, "codes": packed_codes(zeros, bits).reshape(-1), "floats": zero.astype(np.float32)}[how]
    weight = ((codes - zero[..., None]) * scale[..., None]).reshape(n, -1)
    known = frozenset({0, 1, 2, 3} - ({1} if m.chance() else set()))
    if m.chance(0.4):
        rows = m.rng.integers(0, n, (m.pick(1, 2), 3)).astype(np.int64)
        weight = ((codes - zero[..., None]) * scale[..., None]).reshape(n, -1)
        data = packed_codes(codes.reshape(n, -1), bits)
        inputs = [data, rows, scale, None if how == "none" else packed_codes(zeros, bits)]
        if m.chance(0.5):  # blocks that are not whole, of no such size, or along another axis
            wrong = m.pick({"block_size": 2 * size}, {"block_size": 24}, {"quantize_axis": 0}, {"gather_axis": 1}, {"bits": 2})
            refused = {"block_size": size, "bits": bits, **wrong}
            if wrong != {"block_size": 2 * size} or count % 2:
                return Node("GatherBlockQuantized", inputs, None, refused, frozenset({0, 2, 3}))
        return Node("GatherBlockQuantized", inputs, [weight[rows]], {"block_size": size, "bits": bits}, frozenset({0, 2, 3}), 1e-3)
    x, bias = m.floats(m.pick(1, 3), k), m.maybe(n)
    attributes = {"K": k, "N": n, "bits": bits, "block_size": size}
    y = wide(x)[0] @ weight[:, :k].T + wide(bias)[0]
    inputs = [x, packed_codes(codes, bits), scale.reshape(-1), held, None, bias]
    if m.chance(0.1):
        attributes |= m.pick({"bits": 3}, {"block_size": 24}, {"K": 0}, {"N": n + 1})
        return Node("MatMulNBits", inputs, None, attributes, frozenset({1, 2, 3}))
    del known
    return Node("MatMulNBits", inputs, [y], attributes, frozenset({1, 2, 3}), 1e-3)


def number(codes: Array, scale: Array, zero: Array | None) -> Array:
    return (codes.astype(np.float64) - (0 if zero is None else int(zero))) * float(scale)


def coded(x: Array, scale: Array, zero: Array | None, dtype: Any) -> Array:
    info = np.iinfo(dtype)
    return np.clip(np.rint(x / float(scale)) + (0 if zero is None else int(zero)), info.min, info.max).astype(dtype)


def quantized(m: Maker) -> Node:
    """Codes: a result may be off by one where the number is half way between two."""
    op = m.pick("Add", "Mul", "Sigmoid", "LeakyRelu", "Softmax", "GlobalAveragePool", "AveragePool", "Concat")
    dtype = m.pick(np.uint8, np.int8)
    shape = (1, 2, m.pick(3, 6), 4) if "Pool" in op else (m.pick(1, 3), 5)
    x, s, z, ys, yz = m.codes(dtype, *shape), m.scale(), m.zero(dtype), m.scale(), m.zero(dtype)
    a, attributes = number(x, s, z), {}
    inputs: list[Array | None] = [x, s, z, ys, yz]
    if op in ("Add", "Mul"):
        w, ws, wz = m.codes(dtype, *m.pick(shape, shape[-1:])), m.scale(), m.zero(dtype)
        a = a + number(w, ws, wz) if op == "Add" else a * number(w, ws, wz)
        inputs = [x, s, z, w, ws, wz, ys, yz]
    elif op == "Concat":
        axis = m.pick(0, 1, -1)
        parts = [(x, s, z), *((m.codes(dtype, *shape), m.scale(), m.codes(dtype)) for _ in range(m.pick(0, 1, 2)))]
        parts = [(c, t, m.codes(dtype) if zero is None else zero) for c, t, zero in parts]
        yz = m.codes(dtype) if yz is None else yz
        a = np.concatenate([number(*part) for part in parts], axis)
        inputs, attributes = [ys, yz, *(v for part in parts for v in part)], {"axis": axis}
    elif op == "Sigmoid":
        a = 1 / (1 + np.exp(-a))
    elif op == "LeakyRelu":
        attributes = m.pick({}, {"alpha": 0.3})
        a = np.where(a < 0, attributes.get("alpha", 0.01) * a, a)
    elif op == "Softmax":
        axis = m.pick(-1, 1, 0)
        a, attributes = np.moveaxis(softmax(np.moveaxis(a, axis, -1)), -1, axis), {"axis": axis, "opset": m.pick(13, 13, 12)}
    elif op == "GlobalAveragePool":
        a = a.mean((2, 3), keepdims=True)
    else:
        attributes = {"kernel_shape": [2, 2], "strides": [1, m.pick(1, 2)]}
        windows = np.lib.stride_tricks.sliding_window_view(a, (2, 2), (2, 3))[:, :, :, :: attributes["strides"][1]]
        a = windows.mean((-1, -2))
    if "Pool" in op and m.chance(0.15):
        attributes |= {"channels_last": 1}
    refused = attributes.get("opset") == 12 or "channels_last" in attributes
    return Node(f"QLinear{op}", inputs, None if refused else [coded(a, ys, yz, dtype)], attributes, near=1.0)


def integer_product(m: Maker) -> Node:
    op = m.pick("QGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
    dtype, n, k, width = m.pick(np.uint8, np.int8), m.pick(1, 3), m.pick(1, 8), m.pick(2, 4)
    w, s, z = m.codes(m.pick(np.uint8, np.int8), k, width), m.scale(), None
    z = m.codes(w.dtype.type)
    if op == "DynamicQuantizeMatMul":
        x, bias = m.floats(n, k), m.maybe(width)
        low, high = min(0.0, float(x.min())), max(0.0, float(x.max()))
        step = np.float32((high - low) / 255)
        zero = np.clip(np.rint(-low / float(step)), 0, 255)
        codes = np.clip(np.rint(x.astype(np.float64) / float(step)) + zero, 0, 255)
        y = (codes - zero) @ number(w, np.float32(1), z) * float(step) * float(s) + wide(bias)[0]
        return Node(op, [x, w, s, z, bias], [y], near=float(step) * float(s) * 300)
    x, xs, xz = m.codes(dtype, n, k), m.scale(), m.codes(dtype)
    total = number(x, np.float32(1), xz) @ number(w, np.float32(1), z)
    if op == "MatMulIntegerToFloat":
        bias = m.maybe(width)
        zeros = [xz if m.chance() else None, z if m.chance() else None]
        total = number(x, np.float32(1), zeros[0]) @ number(w, np.float32(1), zeros[1])
        return Node(op, [x, w, xs, s, *zeros, bias], [total * float(xs) * float(s) + wide(bias)[0]], near=1e-2)
    c = m.rng.integers(-50, 50, (width,)).astype(np.int32) if m.chance() else None
    alpha, turned_weight = m.pick(1.0, 0.5), m.pick(0, 1)
    y = (total + (0 if c is None else c)) * float(xs) * float(s) * alpha
    attributes: dict[str, Any] = {"transB": turned_weight, **({} if alpha == 1.0 else {"alpha": alpha})}
    w = np.ascontiguousarray(w.T) if turned_weight else w
    inputs = [x, xs, xz, w, s, z, c]
    if m.chance(0.1):
        return Node(op, inputs, None, {**attributes, "transA": 1})
    if m.chance():
        ys, yz = np.float32(5.0), m.codes(dtype)
        return Node(op, [*inputs, ys, yz], [coded(y, ys, yz, dtype)], attributes, near=1.0)
    return Node(op, inputs, [y], attributes, near=1e-2)


KINDS: tuple[Callable[[Maker], Node], ...] = (
    gelu, norm, embedding, fused_matmul, fused_conv, rotary, attention, attention, multi_head, multi_head, group_query, group_query, blocks,
    blocks, quantized, quantized, integer_product,
)  # fmt: skip


def random_node(seed: int) -> Node:
    """The node of a seed, with its model: dims of inputs are known or not, inputs are given or initializers."""
    m = Maker(seed)
    node = m.pick(*KINDS)(m)
    inputs = list(node.inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    names = ["" if a is None else f"x{k}" for k, a in enumerate(inputs)]
    wanted = node.wanted or [np.zeros(())]
    outputs = ["" if w is None else f"y{k}" for k, w in enumerate(wanted)]
    while outputs[-1] == "":
        outputs.pop()
    made = helper.make_node(node.op, names, outputs, name="it", domain=node.domain, **node.attributes)
    infos, weights = [], []
    free = m.chance(0.3)
    for k, a in enumerate(inputs):
        if a is None:
            continue
        array = np.asarray(a)
        same = free and array.ndim and array.shape[:1] == np.shape(inputs[0])[:1]  # one name, as batches have
        if k in node.known or (k and not same and m.chance(0.25)):
            weights.append(numpy_helper.from_array(array, f"x{k}"))
            continue
        shape = [f"batch_{size}" if same and d == 0 else size for d, size in enumerate(array.shape)]
        infos.append(helper.make_tensor_value_info(f"x{k}", helper.np_dtype_to_tensor_dtype(array.dtype), shape))
        node.feeds[f"x{k}"] = array
    results = [helper.make_empty_tensor_value_info(o) for o in outputs if o]
    graph = helper.make_graph([made], "g", infos, results, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    node.model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return node
