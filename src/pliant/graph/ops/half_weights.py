"""Matmuls of f32 activations with 16-bit float weights, F16 or BF16, which are widened in registers: memory traffic is that of the file.

Weights are passed as bits, u16[rows, k]. `half_weights` packs 64 rows together, element by element; it depends on literals only, so it runs
once, when a program is loaded. A sum goes over k in order, each step one FMA (a product and a sum on machines without FMA):

    y[i, j] = muladd(x[i, k], wide(w[j, k]), y[i, j])   for k in order

    y = ops.half_linear(x, bits, format="F16")         # x: f32[n, k], bits: u16[rows, k]  ->  f32[n, rows]
    e = ops.half_take(bits, ids, format="BF16")        # rows as f32, as an embedding is read
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dtype import f16, f32, i64, u16, u32
from ...support.errors import Error
from ...sym.expr import And, Bitcast, Cast, Const, Expr, Lt, Select, Shl
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, composite, operator
from ..stage import Indices, Read, Stage

PACK = 64  # rows of weights that are interleaved: a constant of the layout, not of the machine
FORMATS = ("F16", "BF16")


@dataclass(frozen=True, slots=True)
class HalfAttrs:
    """The attributes of operators on 16-bit weights: the format of the bits, F16 or BF16."""

    format: str


@dataclass(frozen=True, slots=True)
class HalfMatmulAttrs(HalfAttrs):
    """The attributes of `half_matmul`: the format of the weights' bits, and the number of rows of the weight matrix."""

    rows: int


def wide(bits: Expr, format: str) -> Expr:
    """Returns the f32 value of 16 bits in the format F16 or BF16, as an expression."""
    if format == "F16":
        return Cast(f32, Bitcast(f16, bits))
    return Bitcast(f32, Shl(Cast(u32, bits), Const(16, u32)))


def widened(bits: Array, format: str) -> Array:
    """Converts 16-bit elements in the format F16 or BF16 to f32, in numpy."""
    if format == "F16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _bits(d: Deduction, k: int, rank: int) -> Tensor:
    bits = d.rank(k, rank)
    if bits.dtype is not u16:
        raise d.error(f"{d.what}: `{d.args[k].name}` is {bits.dtype}, not the bits of numbers, u16", arg=k)
    return bits


def _known(format: str) -> str:
    if format not in FORMATS:
        raise Error(f"there is no format `{format}` of 16 bits", help=f"one of {', '.join(FORMATS)}")
    return format


def _deduce_weights(d: Deduction, attrs: None) -> tuple[Annotation, ...]:
    rows, k = _bits(d, 0, 2).shape
    return (Tensor(u16, ((rows + (PACK - 1)) // PACK, k, Const(PACK, i64))),)


def _weights_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: None) -> tuple[Stage, ...]:
    def value(i: Indices, r: Indices, read: Read) -> Expr:
        row = i[0] * PACK + i[2]
        return Select(Lt(row, args[0].shape[0]), read(0, row, i[1]), Const(0, u16))

    return (Stage("packed", u16, outs[0].shape, value),)


def _weights_reference(args: Sequence[Array], attrs: None) -> list[Array]:
    rows, k = args[0].shape
    whole = np.zeros((-(-rows // PACK) * PACK, k), np.uint16)
    whole[:rows] = args[0]
    return [np.ascontiguousarray(whole.reshape(-1, PACK, k).transpose(0, 2, 1))]


@operator(deduce=_deduce_weights, reference=_weights_reference, stages=_weights_stages)
def half_weights(op: OpCall, bits: Any) -> Any:
    """Weights packed for `half_matmul`: u16[packs, k, 64], 64 rows to a pack; the last pack is filled up with zeros."""
    return op.emit(bits)


def _deduce_matmul(d: Deduction, attrs: HalfMatmulAttrs) -> tuple[Annotation, ...]:
    x, weights = d.rank(0, 2), _bits(d, 1, 3)
    if x.dtype is not f32:
        raise d.error(f"{d.what} of {x.dtype}", arg=0, help=f"write ops.cast({d.args[0].name}, f32)")
    d.equal(weights.shape[1], x.shape[1], f"`{d.args[1].name}` is for rows of {{0}} elements, `{d.args[0].name}` has {{1}}", arg=1)
    d.equal(weights.shape[2], Const(PACK, i64), f"a pack has {{1}} rows, `{d.args[1].name}` has {{0}}", arg=1)
    packs = Const(-(-attrs.rows // PACK), i64)
    d.equal(weights.shape[0], packs, f"{attrs.rows} rows are {{1}} packs, `{d.args[1].name}` has {{0}}", arg=1)
    return (Tensor(f32, (x.shape[0], Const(attrs.rows, i64))),)


def _matmul_reference(args: Sequence[Array], attrs: HalfMatmulAttrs) -> list[Array]:
    x, weights = args[0].astype(np.float64), widened(args[1], attrs.format).astype(np.float64)
    plain = np.moveaxis(weights, 2, 1).reshape(-1, weights.shape[1])[: attrs.rows]  # [rows, k]
    out = np.zeros((len(x), attrs.rows), np.float32)
    with np.errstate(all="ignore"):
        for k in range(plain.shape[1]):
            out = (x[:, k, None] * plain[None, :, k] + out).astype(np.float32)
    return [out]


@operator(deduce=_deduce_matmul, reference=_matmul_reference, attrs=HalfMatmulAttrs, arity=2, template="half_weights.matmul")
def half_matmul(op: OpCall, x: Any, weights: Any, *, format: str, rows: int) -> Any:
    """The matmul of f32 activations with packed 16-bit weights: f32[n, rows]."""
    return op.emit(x, weights, attrs=HalfMatmulAttrs(_known(format), rows))


def _deduce_take(d: Deduction, attrs: HalfAttrs) -> tuple[Annotation, ...]:
    bits, ids = _bits(d, 0, 2), d.tensor(1)
    if not ids.dtype.is_int:
        raise d.error(f"half_take: the indices `{d.args[1].name}` are {ids.dtype}, not integers", arg=1)
    return (Tensor(f32, (*ids.shape, bits.shape[1])),)


def _take_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: HalfAttrs) -> tuple[Stage, ...]:
    rows = args[0].shape[0]

    def index(i: Indices, read: Read) -> Expr:
        row = read(1, *i[:-1])
        return row if row.dtype is i64 else Cast(i64, row)

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        return wide(read(0, index(i, read), i[-1]), attrs.format)

    def check(i: Indices, read: Read) -> tuple[Expr, str, tuple[Expr, ...]]:
        row = index(i, read)
        inside = And(Lt(Const(-1, i64), row), Lt(row, rows))
        return inside, "half_take: the index {0} is outside of the {1} rows", (row, rows)

    return (Stage("rows", f32, outs[0].shape, value, check=check),)


def _take_reference(args: Sequence[Array], attrs: HalfAttrs) -> list[Array]:
    return [widened(args[0][args[1]], attrs.format)]


@operator(deduce=_deduce_take, reference=_take_reference, stages=_take_stages, attrs=HalfAttrs, arity=2)
def half_take(op: OpCall, bits: Any, ids: Any, format: str) -> Any:
    """Rows of 16-bit weights at the indices `ids`, as f32."""
    return op.emit(bits, ids, attrs=HalfAttrs(_known(format)))


@composite
def half_linear(op: OpCall, x: Any, bits: Any, format: str) -> Any:
    """`x @ w.T` for 16-bit weights, F16 or BF16, passed as u16[rows, k]; x is f32[n, k].

    Raises an Error if the number of rows is not a constant.
    """
    value = op.operand(bits)
    rows = value.tensor.shape[0]
    if not isinstance(rows, Const):
        raise Error(
            f"{op.name}: the number of rows of `{value.name}` is `{rows}`, which only a run tells", help="give the weights as literals"
        )
    return half_matmul(x, half_weights(value), format=format, rows=int(rows.value))
