"""Random functions with the patterns that graph passes look for, and with such that only look like them.

made = make_pattern(seed)
made.function, made.passes      # passes that have to change it: it has the form that they are for
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pliant import ops
from pliant.dtype import DType, f16, f32, f64, i8, u8
from pliant.graph import node as g
from pliant.graph.builder import Builder
from pliant.graph.ops.shape import as_dim
from pliant.sym.expr import Dim

SIZES = (1, 2, 3, 5, 8)


@dataclass(frozen=True)
class Pattern:
    """A function, the passes that have to change it, and how far results may be off, relative to the largest."""

    function: g.Function
    passes: tuple[str, ...]
    near: float


class Maker:
    """Draws operands: parameters and literals."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"pattern {seed}")
        self.rng = np.random.default_rng(seed)
        self.builder = Builder("pattern")
        self.n = Dim("n", 1, 16)
        self.passes: list[str] = []
        self.near = 1e-5

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def chance(self, probability: float = 0.5) -> bool:
        return self.random.random() < probability

    def param(self, dtype: DType, *shape: Any) -> Any:
        dims = tuple(as_dim("", e) for e in shape)
        return self.builder.param(f"x{len(self.builder._params)}", g.Tensor(dtype, dims))

    def numbers(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape).astype(np.float32)

    def literal(self, *shape: int, dtype: DType = f32) -> Any:
        return ops.constant(self.numbers(*shape).astype(dtype.numpy()))

    def codes(self, dtype: DType, *shape: int) -> Any:
        info = np.iinfo(dtype.numpy())
        return self.rng.integers(info.min, info.max + 1, shape).astype(dtype.numpy())


def batch_norm(m: Maker) -> list[Any]:
    """A convolution, and what scales or shifts its channels."""
    out, groups = m.pick((4, 1), (6, 2), (3, 1))
    dtype = m.pick(f32, f32, f64, f16)
    known, alone = m.chance(0.8), m.chance(0.8)
    shape = (out, 4 // groups if groups == 2 else 2, *m.pick((3, 3), (1, 2), (1, 1)))
    x = m.param(dtype, m.n, shape[1] * groups, 6, 5)
    w = m.literal(*shape, dtype=dtype) if known else m.param(dtype, *shape)
    bias = m.literal(out, dtype=dtype) if m.chance() else None
    y = ops.conv(x, w, bias, stride=m.pick(1, 2), padding=m.pick(0, 1), groups=groups)
    finite = m.chance(0.9)
    how = m.pick("norm", "norm", "mul", "add", "number", "columns")
    if how == "norm":
        parts = [m.numbers(out) for _ in range(3)] + [np.abs(m.numbers(out)) + 0.1]
        if not finite:
            parts[3][0] = np.inf
        z = ops.batch_norm(y, *(ops.constant(p.astype(dtype.numpy())) for p in parts))
    else:
        row = {"number": (), "columns": (int(y.tensor.shape[3].value),)}.get(how, (out, 1, 1))
        values = np.array(m.numbers(*row))
        if not finite:
            values.reshape(-1)[0] = np.inf
        other = ops.constant(values.astype(dtype.numpy()))
        op = ops.add if how == "add" else ops.mul
        z = op(y, other) if m.chance() else op(other, y)
    if known and alone and finite and dtype in (f32, f64) and how in ("norm", "mul", "add"):
        m.passes.append("fold_batch_norm")
    m.near = 1e-2 if dtype is f16 else 1e-5
    return [z] if alone else [z, ops.relu(y)]


def parallel_products(m: Maker) -> list[Any]:
    """Products of one operand with literals, of which readers move elements."""
    x = m.param(f32, *m.pick((m.n, 8), (2, m.n, 8)))
    kind, row, turned = m.pick("matmul", "linear", "linear with bias"), m.chance(0.4), m.chance(0.3)
    moved = m.chance(0.85)
    results = []
    for k in range(m.pick(1, 2, 3)):
        width = m.pick(4, 8, 12)
        if kind == "matmul":
            w = m.literal(width, 8) if turned else m.literal(8, width)
            y = ops.matmul(x, w, transpose_b=turned)
        else:
            y = ops.linear(x, m.literal(width, 8), m.literal(width) if kind != "linear" else None)
        if row:
            y = ops.add(y, m.literal(width)) if m.chance() else ops.add(m.literal(width), y)
        if not moved and k == 0:
            results.append(ops.tanh(y))
            continue
        shape = y.tensor.shape
        results.append(m.pick(
            lambda y=y, shape=shape: ops.reshape(y, (*shape[:-1], 2, -1)),
            lambda y=y, shape=shape: ops.permute(y, (len(shape) - 1, *range(len(shape) - 1))),
            lambda y=y, shape=shape: ops.slice(y, len(shape) - 1, 1, 3),
        )())  # fmt: skip
    if len(results) > (1 if moved else 2):
        m.passes.append("combine_matmuls")
    return results


def attention(m: Maker) -> list[Any]:
    """Two products with a softmax between them."""
    batch = m.pick((), (2,), (2, 3))
    d, width, keys = m.pick(4, 8, 16), m.pick(8, 16, 5), m.pick(m.n, 7)
    q, v = m.param(f32, *batch, m.n, d), m.param(f32, *batch, keys, width)
    how = m.pick("permute", "transpose_b", "plain", "heads")
    rank = len(batch) + 2
    swap = (*range(rank - 2), rank - 1, rank - 2)
    if how == "plain":
        s = ops.matmul(q, m.param(f32, *batch, d, keys))
    elif how == "heads" and len(batch) == 2:
        k = m.param(f32, batch[0], keys, batch[1], d)  # as products give it
        s = ops.matmul(q, ops.permute(k, (0, 2, 3, 1)))
    else:
        k = m.param(f32, *batch, keys, d)
        s = ops.matmul(q, k, transpose_b=True) if how == "transpose_b" else ops.matmul(q, ops.permute(k, swap))
    scale = m.pick("none", "mul", "mul first", "div")
    if scale != "none":
        number = ops.constant(np.float32(m.pick(0.25, 0.5, 3.0)))
        s = ops.div(s, number) if scale == "div" else ops.mul(number, s) if scale == "mul first" else ops.mul(s, number)
    masked = m.pick("none", "none", "literal", "cast", "float")
    if masked == "literal":
        s = ops.add(s, m.literal(1, 1))
    elif masked == "cast":
        seen = ops.cast(m.param(i8, m.n, keys), f32)
        s = ops.add(ops.mul(seen, -0.5), s) if m.chance() else ops.add(s, ops.mul(ops.sub(seen, 1.0), 2.0))
    elif masked == "float":
        s = ops.add(s, m.param(f32, m.n, keys))
    axis = rank - 1 if m.chance(0.9) else rank - 2
    p = ops.softmax(s, axis)
    results = [ops.matmul(p, v)]
    alone = m.chance(0.85)
    results += [] if alone else [ops.relu(p)]
    if len(batch) == 2 and axis == rank - 1 and alone and masked != "float":
        m.passes.append("recognize_attention")
    m.near = 1e-4
    return results


def products_of_codes(m: Maker) -> list[Any]:
    """A convolution or a product of what codes stand for, and something element by element behind it."""
    dtype, coded = m.pick(u8, i8), m.pick(u8, i8)

    def number(codes: Any, of: DType, axis: int | None, size: int) -> Any:
        scale = np.float32(0.1) if axis is None else np.abs(m.numbers(size)) + 0.05
        zero = None
        if m.chance(0.7):
            drawn = m.codes(of) if axis is None else m.codes(of, size)
            zero = ops.constant(drawn * 0 if m.chance(0.2) else drawn)
        return ops.dequantize_linear(codes, ops.constant(scale.astype(np.float32)), zero, **({} if axis is None else {"axis": axis}))

    by_channel = m.chance()
    if m.chance():
        a = number(m.param(dtype, *m.pick((m.n, 6), (2, m.n, 6))), dtype, None, 1)
        turned = m.chance(0.3)
        axis = None if not by_channel else 0 if turned else 1
        b = number(ops.constant(m.codes(coded, 5, 6) if turned else m.codes(coded, 6, 5)), coded, axis, 5)
        y = ops.matmul(a, b, transpose_b=turned)
    else:
        groups = m.pick(1, 1, 2)
        a = number(m.param(dtype, m.n, 4, 5, 6), dtype, None, 1)
        w = number(ops.constant(m.codes(coded, 6, 4 // groups, 3, m.pick(1, 3))), coded, 0 if by_channel else None, 6)
        y = ops.conv(a, w, m.literal(6) if m.chance() else None, stride=m.pick(1, 2), padding=m.pick(0, 1), groups=groups)
    m.passes.append("integer_products")
    m.near = 1e-4
    z = m.pick(lambda: ops.relu(y), lambda: ops.add(y, y), lambda: ops.mul(y, 0.5), lambda: y)()
    if y.tensor.shape[1:2] and len(y.tensor.shape) == 4 and m.chance(0.6):  # another convolution of codes
        q = ops.quantize_linear(z, ops.constant(np.float32(0.7)), ops.constant(np.uint8(120)))
        again = ops.dequantize_linear(q, ops.constant(np.float32(0.7)), ops.constant(np.uint8(120)))
        w = number(ops.constant(m.codes(coded, 3, 6, 1, 1)), coded, None, 1)
        m.near = 0.05  # a number half way between two codes may become either
        return [ops.conv(again, w)]
    return [z]


def pointwise(m: Maker) -> list[Any]:
    """Convolutions of single elements, and transposed ones whose windows lie side by side."""
    inputs, outputs = m.pick(3, 5, 4), m.pick(3, 7, 8)
    rank = m.pick(1, 2, 2, 3)
    image = {1: (70,), 2: m.pick((9, 8), (m.n, 5), (3, 3), (1, 1)), 3: (3, 5, 6)}[rank]
    x = m.param(f32, 2, inputs, *image)
    bias = m.literal(outputs) if m.chance() else None
    if m.chance(0.3):
        stride = m.pick(1, 2)
        window = stride if m.chance(0.8) else 3
        if window == stride:
            m.passes.append("pointwise_convolutions")
        return [ops.conv_transpose(x, m.literal(inputs, outputs, *(window,) * rank), bias, stride=stride)]
    start = ops.relu(x) if m.chance(0.3) else x
    stride, padding = m.pick(1, 1, 1, 2), m.pick(0, 0, 0, 1)
    y = ops.conv(start, m.literal(outputs, inputs, *(1,) * rank), bias, stride=stride, padding=padding)
    if stride == 1 and padding == 0 and start is x and image not in ((3, 3), (1, 1)):  # of small images rows are too short
        m.passes.append("pointwise_convolutions")
    one = (1,) * rank
    for _ in range(m.pick(0, 1, 2)):
        more = [ops.relu, lambda t: ops.mul(t, m.literal(outputs, *one)), lambda t: ops.add(t, t), lambda t: ops.maximum(t, 0.25)]
        y = m.pick(*more, lambda t: ops.add(t, m.literal(*one)))(y)
    return [y]


def transposed(m: Maker) -> list[Any]:
    """Products whose operands are moved before."""
    batch = m.pick((), (3,))
    rank = len(batch) + 2
    swap = (*range(rank - 2), rank - 1, rank - 2)
    a, b = (m.n, 6), (6, m.pick(4, 9))
    left, right = m.chance(), m.chance()
    x, y = m.param(f32, *batch, *(a[::-1] if left else a)), m.param(f32, *batch, *(b[::-1] if right else b))
    if m.chance(0.3) and not batch:
        w = m.param(f32, *b)
        return [ops.linear(ops.permute(x, swap) if left else x, ops.permute(w, (1, 0)), m.literal(b[1]) if m.chance(0.3) else None)]
    by_permute = m.chance()
    if left and by_permute:
        m.passes.append("transposes_into_matmul")
    p, ta = (ops.permute(x, swap), False) if left and by_permute else (x, left)
    q, tb = (ops.permute(y, swap), False) if right and m.chance() else (y, right)
    if tb:  # of many rows, or who knows how many: moved once
        m.passes.append("transposes_into_matmul")
    return [ops.matmul(p, q, transpose_a=ta, transpose_b=tb)]


KINDS: tuple[Callable[[Maker], list[Any]], ...] = (batch_norm, parallel_products, attention, products_of_codes, pointwise, transposed)


def make_pattern(seed: int) -> Pattern:
    """The function of a seed."""
    m = Maker(seed)
    with m.builder:
        results = KINDS[seed % len(KINDS)](m)
        function = m.builder.finish(results)
    return Pattern(function, tuple(m.passes), m.near)


def make_arguments(function: g.Function, seed: int) -> list[Any]:
    """Arrays for the parameters."""
    rng = np.random.default_rng(seed)
    size = int(rng.choice(SIZES))
    made = []
    for p in function.params:
        shape = [size if isinstance(e, Dim) else int(e.value) for e in p.tensor.shape]  # type: ignore[attr-defined]
        if p.tensor.dtype.is_float:
            made.append(rng.standard_normal(shape).astype(p.tensor.dtype.numpy()))
        else:
            info = np.iinfo(p.tensor.dtype.numpy())
            made.append(rng.integers(info.min, info.max + 1, shape).astype(p.tensor.dtype.numpy()))
    return made
