"""Matmuls with block-quantized weights (`quantization/formats.py`): small codes, with a scale and maybe a minimum for each group of codes.

Weights arrive as the bytes of the model file, a tensor [rows, blocks, bytes of a block]. Three operators extract codes, scales and
minimums in packs of 16 rows, and `block_weights` joins them group by group, so that a kernel reads one stream. All this depends on
literals only and runs once, when a program is loaded. Activations are quantized to 8-bit codes with a scale for each part of a group, of
at most 16 elements (`quantize_groups`). Sums of products of codes are exact. With the zero point `z` of the format's codes

    y[i, j] = sum over groups g of  d[j, g] * (sum over parts p of e[i, p] * sum of c[j, k] * q[i, k])  +  m[j, g] * s[i, g]
    s[i, g] = sum over parts p of e[i, p] * sum of q[i, k]                            # m is -z * d where the format has no minimums

in that order, each step one FMA. The only error is that of the activations' codes: at most 1/254 of the largest element of the part, for
each element. Parts are small because a few outliers are much larger than the rest, and cost precision only to elements that share their
scale.

    y = ops.block_linear(x, raw, format="Q4_1")        # x: f32[n, k], raw: u8[rows, k // 32, 20]  ->  f32[n, rows]
    e = ops.block_take(raw, ids, format="Q8_0")        # rows as f32, as an embedding is read
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...dtype import DType, f32, i8, i64, u8, u16, u32
from ...quantization.dequantize import dequantize, exponents, unpack
from ...quantization.formats import Factor, Format
from ...support.errors import Error
from ...sym.expr import And, Bitcast, BitOr, Cast, Const, Expr, Lt, Select, Shl, Shr
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, Body, OpCall, P, R, composite, operand, operator
from ..stage import Indices, Read, Stage
from .block_fields import byte_const, code_value, factor_value, format_of, group_of, half_bytes, packed_dtype, unsigned_code, zero_of
from .shape import concat, reshape

PACK = 16  # rows of weights that are interleaved: a constant of the layout, not of the machine
PART = 16  # the largest number of activations that share a scale: outliers cost precision to few others


@dataclass(frozen=True, slots=True)
class FormatAttrs:
    """The name of a block format."""

    format: str


@dataclass(frozen=True, slots=True)
class BlockMatmulAttrs:
    """Attributes of the matmul operators with block-quantized weights: the format of the weights, and the number of their rows."""

    format: str
    rows: int


# Extracting codes, scales and minimums.


def _raw(d: Deduction, format: str) -> tuple[Expr, Expr, Format]:
    """Returns the number of rows, the elements of a row, and the format of the weights in argument 0.

    Raises if that is not u8[rows, blocks, bytes of a block].
    """
    known, raw = format_of(format), d.rank(0, 3)
    if raw.dtype is not u8:
        raise d.error(f"{d.what}: `{d.args[0].name}` is {raw.dtype}, not the bytes of blocks", arg=0)
    d.equal(raw.shape[2], Const(known.size, i64), f"a block of {format} has {{1}} bytes, `{d.args[0].name}` has {{0}}", arg=0)
    return raw.shape[0], raw.shape[1] * known.length, known


def _packs(rows: Expr) -> Expr:
    return (rows + (PACK - 1)) // PACK


def _deduce_codes(d: Deduction, attrs: FormatAttrs) -> tuple[Annotation, ...]:
    rows, length, format = _raw(d, attrs.format)
    step = 8 if half_bytes(format) else 4
    return (Tensor(u8, (_packs(rows), length // step, Const(PACK, i64), Const(4, i64))),)


def _codes_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: FormatAttrs) -> tuple[Stage, ...]:
    format = format_of(attrs.format)
    halves, packed = half_bytes(format), format.codes
    assert packed is not None

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        p, word, lane, t = i
        row = p * PACK + lane
        inside = Lt(row, args[0].shape[0])

        def code(k: Expr) -> Expr:
            at = partial(read, 0, row, k // format.length)
            return unsigned_code(packed, k % format.length, at)

        byte = BitOr(code(word * 8 + t), Shl(code(word * 8 + 4 + t), byte_const(4))) if halves else code(word * 4 + t)
        return Select(inside, byte, byte_const(0))

    return (Stage("codes", u8, outs[0].shape, value),)


def _codes_reference(args: Sequence[Array], attrs: FormatAttrs) -> list[Array]:
    format = format_of(attrs.format)
    assert format.codes is not None
    rows, blocks, size = args[0].shape
    codes = unpack(format.codes, args[0].reshape(-1, size)).reshape(rows, blocks * format.length)
    whole = np.zeros((-(-rows // PACK) * PACK, codes.shape[1]), np.uint8)
    whole[:rows] = (codes + zero_of(format)).astype(np.uint8)
    if half_bytes(format):
        pairs = whole.reshape(-1, PACK, codes.shape[1] // 8, 2, 4)
        return [(pairs[..., 0, :] | pairs[..., 1, :] << 4).transpose(0, 2, 1, 3)]
    return [whole.reshape(-1, PACK, codes.shape[1] // 4, 4).transpose(0, 2, 1, 3)]


@operator(deduce=_deduce_codes, reference=_codes_reference, stages=_codes_stages, attrs=FormatAttrs)
def block_codes(op: OpCall, raw: Any, format: str) -> Any:
    """The codes of weights, packed for `block_matmul`: u8[packs, words, 16 rows, 4].

    Two codes of at most 4 bits share a byte. Rows that fill up the last pack are 0.
    """
    return op.emit(raw, attrs=FormatAttrs(format))


def _factors(part: str) -> Callable[[Body[P, R]], Callable[P, R]]:
    """Returns a decorator that declares an operator which extracts the scales (`part` "scale") or the minimums ("minimum") of blocks.

    The result is u8[packs, groups, bytes of 16 numbers]; minimums that a format subtracts are negated. The operator raises if blocks of its
    format have no such part.
    """

    def deduce(d: Deduction, attrs: FormatAttrs) -> tuple[Annotation, ...]:
        rows, length, format = _raw(d, attrs.format)
        factor = getattr(format, part)
        if factor is None:
            raise d.error(f"{d.what}: blocks of {attrs.format} have no {part}")
        size = PACK * packed_dtype(factor).itemsize
        return (Tensor(u8, (_packs(rows), length // group_of(format), Const(size, i64))),)

    def stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: FormatAttrs) -> tuple[Stage, ...]:
        format = format_of(attrs.format)
        factor: Factor = getattr(format, part)
        groups = format.length // group_of(format)

        def value(i: Indices, r: Indices, read: Read) -> Expr:
            p, g, byte = i
            size = packed_dtype(factor).itemsize
            row = p * PACK + byte // size
            at = partial(read, 0, row, g // groups)
            number = factor_value(factor, g % groups, at)
            if part == "minimum" and format.sign < 0:
                number = -number
            bits = Bitcast(u16 if size == 2 else u32, number)
            one = Cast(u8, Shr(bits, Cast(bits.dtype, byte % size * 8)))
            return Select(Lt(row, args[0].shape[0]), one, byte_const(0))

        return (Stage(part, u8, outs[0].shape, value),)

    def reference(args: Sequence[Array], attrs: FormatAttrs) -> list[Array]:
        format = format_of(attrs.format)
        factor: Factor = getattr(format, part)
        rows, blocks, size = args[0].shape
        flat = np.ascontiguousarray(args[0].reshape(-1, size))
        raw = flat[:, factor.offset : factor.offset + factor.dtype.itemsize].copy()
        stored = exponents(raw) if factor.dtype is u8 else raw.view(factor.dtype.numpy())
        if factor.groups is not None:
            stored = stored.astype(np.float32) * unpack(factor.groups, flat)
        sign = format.sign if part == "minimum" else 1
        whole = np.zeros((-(-rows // PACK) * PACK, blocks * stored.shape[1]), stored.dtype)
        whole[:rows] = (stored if sign > 0 else -stored).reshape(rows, -1)
        lanes = np.ascontiguousarray(whole.reshape(-1, PACK, whole.shape[1]).transpose(0, 2, 1))
        return [lanes.view(np.uint8)]

    return operator(deduce=deduce, reference=reference, stages=stages, attrs=FormatAttrs)


@_factors("scale")
def block_scales(op: OpCall, raw: Any, format: str) -> Any:
    """The scales of weights, packed for `block_matmul`: u8[packs, groups, bytes of 16 scales]."""
    return op.emit(raw, attrs=FormatAttrs(format))


@_factors("minimum")
def block_minimums(op: OpCall, raw: Any, format: str) -> Any:
    """The minimums of weights, packed for `block_matmul`: u8[packs, groups, bytes of 16 minimums]."""
    return op.emit(raw, attrs=FormatAttrs(format))


# Quantizing activations.


def _deduce_quantize(d: Deduction, attrs: None) -> tuple[Annotation, ...]:
    x = d.rank(0, 3)
    if x.dtype is not f32:
        raise d.error(f"quantize_groups of {x.dtype}", arg=0, help=f"write ops.cast({d.args[0].name}, f32)")
    size = x.shape[2]
    if not isinstance(size, Const) or size.value not in (4, 8, 16, 32, 64, 128, 256):
        raise d.error(f"quantize_groups of groups of {size} elements", arg=0, help="a power of two from 4 to 256")
    return Tensor(i8, x.shape), Tensor(f32, (*x.shape[:2], Const(parts_of(int(size.value)), i64))), Tensor(f32, x.shape[:2])


def parts_of(group: int) -> int:
    """Returns how many scales the activations of a group have: one for each PART elements, at least one."""
    return max(1, group // PART)


def _quantize_reference(args: Sequence[Array], attrs: None) -> list[Array]:
    n, groups, size = args[0].shape
    x = args[0].reshape(n, groups, parts_of(size), size // parts_of(size))
    most = np.abs(x).max(axis=3, initial=0)
    with np.errstate(all="ignore"):
        inverse = np.where(most == 0, np.float32(0), np.float32(127) / most)
        codes = np.rint(x * inverse[..., None]).astype(np.int8)
    scale = most / np.float32(127)
    return [codes.reshape(args[0].shape), scale, _in_order(scale, codes.sum(axis=3, dtype=np.int32))]


def _in_order(scale: Array, sums: Array) -> Array:
    """Returns the f32 sum of `scale * sums` over the last axis, in order; each step is rounded once, as by an FMA."""
    total = np.zeros(np.broadcast_shapes(scale.shape, sums.shape)[:-1], np.float32)
    for p in range(scale.shape[-1]):
        total = (scale[..., p].astype(np.float64) * sums[..., p] + total).astype(np.float32)
    return total


@operator(deduce=_deduce_quantize, reference=_quantize_reference, template="block_quantized.quantize")
def quantize_groups(op: OpCall, x: Any) -> Any:
    """8-bit codes of f32[n, groups, elements], the scale of each part of a group, and the sum of each group.

    The elements of a group are a power of two from 4 to 256.
    """
    return op.emit(x)


# The matmul of codes.


@dataclass(frozen=True, slots=True)
class Group:
    """The layout of one group of packed weights: the bytes of the codes, then 16 scales, then 16 minimums if the format has them."""

    codes: int
    scale: DType
    minimum: DType | None

    @property
    def at_minimum(self) -> int:
        """The offset of the minimums in a group, in bytes."""
        return self.codes + PACK * self.scale.itemsize

    @property
    def size(self) -> int:
        """The number of bytes of a group."""
        return self.at_minimum + (PACK * self.minimum.itemsize if self.minimum is not None else 0)


def group_bytes(format: Format) -> Group:
    """Returns the layout of a group of packed weights of this format."""
    assert format.scale is not None
    codes = group_of(format) * PACK // (2 if half_bytes(format) else 1)
    return Group(codes, packed_dtype(format.scale), None if format.minimum is None else packed_dtype(format.minimum))


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Packed weights as arrays: code * scale + offset. Codes are i64[rows, k] and not negative, factors f32[rows, groups]."""

    codes: Array
    scale: Array
    offset: Array


def unpacked(weights: Array, format: Format, rows: int) -> Unpacked:
    """Unpacks weights that `block_weights` packed to numpy arrays, by row: the codes, and the scale and offset of each group."""
    lies = group_bytes(format)

    def factors(start: int, kind: DType) -> Array:
        part = np.ascontiguousarray(weights[:, :, start : start + PACK * kind.itemsize]).view(kind.numpy())  # [packs, groups, 16]
        return np.moveaxis(part, 2, 1).reshape(-1, weights.shape[1])[:rows].astype(np.float32)

    codes = weights[:, :, : lies.codes].reshape(len(weights), -1, PACK, 4)  # [packs, words, lanes, 4]
    if half_bytes(format):
        codes = np.stack([codes & 15, codes >> 4], axis=3)  # [packs, words, lanes, halves, 4]
    plain = np.moveaxis(codes, 2, 1).reshape(len(weights) * PACK, -1).astype(np.int64)[:rows]
    scale = factors(lies.codes, lies.scale)
    return Unpacked(plain, scale, scale * np.float32(-zero_of(format)) if lies.minimum is None else factors(lies.at_minimum, lies.minimum))


def check_weights(d: Deduction, k: int, length: Expr, attrs: BlockMatmulAttrs) -> None:
    """Requires that argument `k` is packed weights with the number of rows in `attrs`, of `length` elements each.

    Raises if it cannot be.
    """
    weights, format = d.rank(k, 3), format_of(attrs.format)
    name, size = d.args[k].name, group_bytes(format).size
    d.equal(weights.shape[1] * group_of(format), length, f"`{name}` is for rows of {{0}} elements, there are {{1}}", arg=k)
    d.equal(weights.shape[2], Const(size, i64), f"a group of packed {attrs.format} has {{1}} bytes, `{name}` has {{0}}", arg=k)
    packs = Const(-(-attrs.rows // PACK), i64)
    d.equal(weights.shape[0], packs, f"{attrs.rows} rows are {{1}} packs, `{name}` has {{0}}", arg=k)


def _deduce_matmul(d: Deduction, attrs: BlockMatmulAttrs) -> tuple[Annotation, ...]:
    q, group = d.rank(0, 2), group_of(format_of(attrs.format))
    for k, rank in ((1, 3), (2, 2)):
        factors = d.rank(k, rank)
        d.equal(factors.shape[0], q.shape[0], f"`{d.args[k].name}` has {{0}} rows, `{d.args[0].name}` has {{1}}", arg=k)
        d.equal(factors.shape[1] * group, q.shape[1], f"`{d.args[k].name}` is for rows of {{0}} elements, there are {{1}}", arg=k)
    d.equal(d.rank(1, 3).shape[2], Const(parts_of(group), i64), f"a group has {{1}} parts, `{d.args[1].name}` has {{0}}", arg=1)
    check_weights(d, 3, q.shape[1], attrs)
    return (Tensor(f32, (q.shape[0], Const(attrs.rows, i64))),)


def matmul_reference(args: Sequence[Array], attrs: BlockMatmulAttrs) -> list[Array]:
    """The matmul of quantized activations with packed weights in numpy, each step rounded as in the kernel."""
    q, scale, sums, weights = args
    format = format_of(attrs.format)
    packed = unpacked(weights, format, attrs.rows)
    n, groups, parts = scale.shape
    shape = (groups, parts, group_of(format) // parts)
    dots = np.einsum("igpk,jgpk->ijgp", q.astype(np.int64).reshape(n, *shape), packed.codes.reshape(attrs.rows, *shape))
    out = np.zeros((len(q), attrs.rows), np.float32)
    for g in range(groups):
        dot = _in_order(scale[:, None, g], dots[:, :, g])
        out = (dot.astype(np.float64) * packed.scale[:, g] + out).astype(np.float32)
        out = (packed.offset[:, g].astype(np.float64) * sums[:, g, None] + out).astype(np.float32)
    return [out]


@operator(deduce=_deduce_matmul, reference=matmul_reference, attrs=BlockMatmulAttrs, arity=4, template="block_quantized.matmul")
def block_matmul(op: OpCall, q: Any, scale: Any, sums: Any, weights: Any, *, format: str, rows: int) -> Any:
    """The matmul of quantized activations with packed weights: f32[n, rows].

    `q`, `scale` and `sums` are the results of `quantize_groups`.
    """
    return op.emit(q, scale, sums, weights, attrs=BlockMatmulAttrs(format, rows))


# Dequantized rows.


def _deduce_take(d: Deduction, attrs: FormatAttrs) -> tuple[Annotation, ...]:
    _, length, _ = _raw(d, attrs.format)
    ids = d.tensor(1)
    if not ids.dtype.is_int:
        raise d.error(f"block_take: the indices `{d.args[1].name}` are {ids.dtype}, not integers", arg=1)
    return (Tensor(f32, (*ids.shape, length)),)


def _take_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: FormatAttrs) -> tuple[Stage, ...]:
    format = format_of(attrs.format)
    groups = format.length // group_of(format)
    rows = args[0].shape[0]

    def index(i: Indices, read: Read) -> Expr:
        row = read(1, *i[:-1])
        return row if row.dtype is i64 else Cast(i64, row)

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        assert format.codes is not None and format.scale is not None
        at = partial(read, 0, index(i, read), i[-1] // format.length)
        k, g = i[-1] % format.length, i[-1] % format.length // group_of(format)
        factor = factor_value(format.scale, g if groups > 1 else Const(0, i64), at)
        weight = (factor if factor.dtype is f32 else Cast(f32, factor)) * code_value(format.codes, k, at)
        if format.minimum is None:
            return weight
        least = factor_value(format.minimum, g if groups > 1 else Const(0, i64), at)
        least = least if least.dtype is f32 else Cast(f32, least)
        return weight + least if format.sign > 0 else weight - least

    def check(i: Indices, read: Read) -> tuple[Expr, str, tuple[Expr, ...]]:
        row = index(i, read)
        inside = And(Lt(Const(-1, i64), row), Lt(row, rows))
        return inside, "block_take: the index {0} is outside of the {1} rows", (row, rows)

    return (Stage("rows", f32, outs[0].shape, value, check=check),)


def _take_reference(args: Sequence[Array], attrs: FormatAttrs) -> list[Array]:
    raw, ids = args
    rows = dequantize(format_of(attrs.format), raw.reshape(len(raw), -1))
    return [rows[ids]]


@operator(deduce=_deduce_take, reference=_take_reference, stages=_take_stages, attrs=FormatAttrs, arity=2)
def block_take(op: OpCall, raw: Any, ids: Any, format: str) -> Any:
    """Rows of block-quantized weights at the indices `ids`, as f32."""
    return op.emit(raw, ids, attrs=FormatAttrs(format))


# Whole products.


@composite
def block_weights(op: OpCall, raw: Any, format: str) -> Any:
    """Weights packed for `block_matmul`: u8[packs, groups, bytes]."""
    known = format_of(format)
    codes = block_codes(raw, format)
    groups = op.operand(raw).tensor.shape[1] * (known.length // group_of(known))
    parts = [reshape(codes, (codes.tensor.shape[0], groups, group_bytes(known).codes)), block_scales(raw, format)]
    if known.minimum is not None:
        parts.append(block_minimums(raw, format))
    return concat(parts, axis=2)


@composite
def block_linear(op: OpCall, x: Any, raw: Any, format: str) -> Any:
    """`x @ w.T` for weights of a block format, with 8-bit activations; x is f32[n, k]."""
    a, weights, rows = linear_operands(op.name, x, raw, format)
    (n, k), group = a.tensor.shape, group_of(format_of(format))
    q, scale, sums = quantize_groups(reshape(a, (n, k // group, group)))
    return block_matmul(reshape(q, (n, k)), scale, sums, weights, format=format, rows=rows)


def linear_operands(op: str, x: Any, raw: Any, format: str) -> tuple[Any, Any, int]:
    """Returns the activations, the packed weights, and the number of rows of the weights; errors name the operator `op`.

    Raises an Error if the number of rows is not a constant, or if the activations are no matrix.
    """
    value, a = operand(op, raw), operand(op, x)
    weights = block_weights(value, format)
    rows, shape = value.tensor.shape[0], a.tensor.shape
    if not isinstance(rows, Const):
        raise Error(f"{op}: the number of rows of `{value.name}` is `{rows}`, which only a run tells", help="give the weights as literals")
    if len(shape) != 2:
        raise Error(f"{op}: `{a.name}` is {a.annotation}, a matrix is expected", help="reshape it to rows of elements")
    return a, weights, int(rows.value)
