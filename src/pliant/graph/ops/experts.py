"""Matmuls with the weights of experts: rows that are sorted by their expert, each multiplied by the weights of that one alone.

The rows of expert x are `starts[x] .. starts[x + 1]`; `starts` begins with 0 and ends with the number of rows, and a run checks it. Weights
are packed as in `block_quantized.py` and `half_weights.py`, expert after expert, and a row is computed by the same operations as there:
its result depends neither on the other rows of its expert, nor on which experts have rows.

    y = ops.block_linear_experts(x, raw, starts, format="Q4_K")   # x: f32[n, k], raw: u8[experts, rows, blocks, bytes] -> f32[n, rows]
    y = ops.float_linear_experts(x, bits, starts, format="BF16")  # bits: u16[experts, rows, k], or f32 for "F32"
    y = ops.block_linear_experts(x, raw, starts, source, …)       # row i is row source[i] of x, which is quantized once
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ...dtype import f32, i32, i64, u16
from ...support.errors import Error
from ...sym.expr import Const
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, composite, operand, operator
from .block_fields import format_of, group_of
from .block_quantized import PACK, BlockMatmulAttrs, block_weights, group_bytes, matmul_reference, parts_of, quantize_groups
from .half_weights import FORMATS as HALVES
from .half_weights import widened
from .shape import permute, reshape, take

FLOATS = (*HALVES, "F32")
COLUMNS = 16  # rows of float weights that are interleaved: the layout's constant, so that each size of experts that block formats take fits


@dataclass(frozen=True, slots=True)
class FloatExpertsAttrs:
    """The attributes of `float_matmul_experts`: the format of the weights, F16, BF16 or F32, and the number of rows of an expert's."""

    format: str
    rows: int


def _check_starts(d: Deduction, k: int, experts: Any) -> None:
    starts = d.rank(k, 1)
    if starts.dtype is not i32:
        raise d.error(f"{d.what}: the starts `{d.args[k].name}` are {starts.dtype}, not i32", arg=k)
    d.equal(starts.shape[0], experts + 1, f"`{d.args[k].name}` has {{0}} elements, one more than experts are {{1}}", arg=k)


def _deduce_block(d: Deduction, attrs: BlockMatmulAttrs) -> tuple[Annotation, ...]:
    q, weights, format = d.rank(0, 2), d.rank(3, 4), format_of(attrs.format)
    group = group_of(format)
    for k, rank in ((1, 3), (2, 2)):
        factors = d.rank(k, rank)
        d.equal(factors.shape[0], q.shape[0], f"`{d.args[k].name}` has {{0}} rows, `{d.args[0].name}` has {{1}}", arg=k)
        d.equal(factors.shape[1] * group, q.shape[1], f"`{d.args[k].name}` is for rows of {{0}} elements, there are {{1}}", arg=k)
    d.equal(d.rank(1, 3).shape[2], Const(parts_of(group), i64), f"a group has {{1}} parts, `{d.args[1].name}` has {{0}}", arg=1)
    name = d.args[3].name
    d.equal(weights.shape[1] * PACK, Const(attrs.rows, i64), f"`{name}` has {{0}} rows for each expert, not {{1}}", arg=3)
    d.equal(weights.shape[2] * group, q.shape[1], f"`{name}` is for rows of {{0}} elements, there are {{1}}", arg=3)
    d.equal(weights.shape[3], Const(group_bytes(format).size, i64), f"a group of packed {attrs.format} has {{1}} bytes, not {{0}}", arg=3)
    _check_starts(d, 4, weights.shape[0])
    return (Tensor(f32, (q.shape[0], Const(attrs.rows, i64))),)


def _block_reference(args: Sequence[Array], attrs: BlockMatmulAttrs) -> list[Array]:
    q, scale, sums, weights, starts = args
    rows = [slice(a, b) for a, b in pairwise(starts)]
    return [np.concatenate([matmul_reference([q[r], scale[r], sums[r], w], attrs)[0] for r, w in zip(rows, weights, strict=True)])]


@operator(deduce=_deduce_block, reference=_block_reference, attrs=BlockMatmulAttrs, arity=5, template="experts.block_matmul")
def block_matmul_experts(op: OpCall, q: Any, scale: Any, sums: Any, weights: Any, starts: Any, *, format: str, rows: int) -> Any:
    """The matmul of quantized activations with the packed weights of their experts: f32[rows of q, rows].

    Activations are sorted by expert: those of expert e are rows starts[e] to starts[e + 1].
    """
    return op.emit(q, scale, sums, weights, starts, attrs=BlockMatmulAttrs(format, rows))


def _deduce_float(d: Deduction, attrs: FloatExpertsAttrs) -> tuple[Annotation, ...]:
    x, weights = d.rank(0, 2), d.rank(1, 4)
    expected = f32 if attrs.format == "F32" else u16
    if x.dtype is not f32 or weights.dtype is not expected:
        raise d.error(f"{d.what} of {x.dtype} and {weights.dtype}: f32 and {expected} are expected for {attrs.format}", arg=0)
    name = d.args[1].name
    d.equal(weights.shape[1] * COLUMNS, Const(attrs.rows, i64), f"`{name}` has {{0}} rows for each expert, not {{1}}", arg=1)
    d.equal(weights.shape[2], x.shape[1], f"`{name}` is for rows of {{0}} elements, `{d.args[0].name}` has {{1}}", arg=1)
    d.equal(weights.shape[3], Const(COLUMNS, i64), f"a pack has {{1}} rows, `{name}` has {{0}}", arg=1)
    _check_starts(d, 2, weights.shape[0])
    return (Tensor(f32, (x.shape[0], Const(attrs.rows, i64))),)


def _float_reference(args: Sequence[Array], attrs: FloatExpertsAttrs) -> list[Array]:
    x, weights, starts = args
    wide = (weights if attrs.format == "F32" else widened(weights, attrs.format)).astype(np.float64)
    out = np.zeros((len(x), attrs.rows), np.float32)
    for expert, (a, b) in enumerate(pairwise(starts)):
        plain = np.moveaxis(wide[expert], 2, 1).reshape(attrs.rows, -1)  # [rows, k]
        for k in range(plain.shape[1]):
            out[a:b] = (x[a:b, k, None].astype(np.float64) * plain[None, :, k] + out[a:b]).astype(np.float32)
    return [out]


@operator(deduce=_deduce_float, reference=_float_reference, attrs=FloatExpertsAttrs, arity=3, template="experts.float_matmul")
def float_matmul_experts(op: OpCall, x: Any, weights: Any, starts: Any, *, format: str, rows: int) -> Any:
    """The matmul of f32 activations with the packed float weights of their experts: f32[rows of x, rows].

    Activations are sorted by expert: those of expert e are rows starts[e] to starts[e + 1].
    """
    return op.emit(x, weights, starts, attrs=FloatExpertsAttrs(format, rows))


def _operands(op: str, x: Any, raw: Any, rank: int) -> tuple[Any, Any, tuple[int, ...]]:
    """Returns the activations, the weights of experts and the sizes of these.

    Raises an Error if the activations are no matrix, the weights have not `rank` constant dims, or an expert's rows are not whole packs.
    """
    value, a = operand(op, raw), operand(op, x)
    shape = value.tensor.shape
    if len(a.tensor.shape) != 2:
        raise Error(f"{op}: `{a.name}` is {a.annotation}, a matrix is expected", help="reshape it to rows of elements")
    sizes = tuple(int(n.value) for n in shape if isinstance(n, Const))
    if len(sizes) != len(shape) or len(sizes) != rank:
        raise Error(f"{op}: the weights `{value.name}` are {value.annotation}, not literals of known sizes with {rank} dims")
    if sizes[1] % PACK:
        raise Error(f"{op}: experts of {sizes[1]} rows are not supported", help=f"a multiple of {PACK}")
    return a, value, sizes


@composite
def block_linear_experts(op: OpCall, x: Any, raw: Any, starts: Any, source: Any = None, *, format: str) -> Any:
    """`x[source[i]] @ w[expert of row i].T` for weights of a block format, with 8-bit activations; without `source` row i of x."""
    a, value, (experts, rows, blocks, size) = _operands(op.name, x, raw, 4)
    weights = block_weights(reshape(value, (experts * rows, blocks, size)), format)
    groups, group = blocks * format_of(format).length // group_of(format_of(format)), group_of(format_of(format))
    packed = reshape(weights, (experts, rows // PACK, groups, group_bytes(format_of(format)).size))
    n = a.tensor.shape[0]
    codes, scale, sums = quantize_groups(reshape(a, (n, groups, group)))
    codes = reshape(codes, (n, groups * group))
    if source is not None:
        codes, scale, sums = (take(a, source, axis=0) for a in (codes, scale, sums))
    return block_matmul_experts(codes, scale, sums, packed, starts, format=format, rows=rows)


@composite
def float_linear_experts(op: OpCall, x: Any, weights: Any, starts: Any, source: Any = None, *, format: str) -> Any:
    """`x[source[i]] @ w[expert of row i].T` for weights in F16 or BF16 (as bits) or F32; without `source` row i of x.

    Raises an Error for another format.
    """
    if format not in FLOATS:
        raise Error(f"there is no float format `{format}`", help=f"one of {', '.join(FLOATS)}")
    a, value, (experts, rows, length) = _operands(op.name, x, weights, 3)
    packed = permute(reshape(value, (experts, rows // COLUMNS, COLUMNS, length)), (0, 1, 3, 2))
    return float_matmul_experts(a if source is None else take(a, source, axis=0), packed, starts, format=format, rows=rows)
