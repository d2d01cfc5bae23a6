"""Matmuls of f32 activations with block-quantized weights, which are dequantized in registers: memory and traffic are those of the codes.

Weights are packed as in `graph/ops/block_quantized.py`. Activations stay f32, so only the products are rounded. With the zero point `z`
of the format's codes

    w[j, k] = muladd(c[j, k], d[j, g], m[j, g])                       # m is -z * d where the format has no minimums: w is rounded once
    y[i, j] = (sum of x[i, k] * w[j, k] over even k) + (over odd k)   # each in order, each step one FMA

    y = ops.block_linear_exact(x, raw, format="U4_32")                # x: f32[n, k], raw: u8[rows, k // 32, 20]  ->  f32[n, rows]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import f32, i64
from ...sym.expr import Const
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, composite, operator
from .block_fields import format_of
from .block_quantized import BlockMatmulAttrs, check_weights, linear_operands, unpacked


def _deduce(d: Deduction, attrs: BlockMatmulAttrs) -> tuple[Annotation, ...]:
    x = d.rank(0, 2)
    if x.dtype is not f32:
        raise d.error(f"{d.what} of {x.dtype}", arg=0, help=f"write ops.cast({d.args[0].name}, f32)")
    check_weights(d, 1, x.shape[1], attrs)
    return (Tensor(f32, (x.shape[0], Const(attrs.rows, i64))),)


def _reference(args: Sequence[Array], attrs: BlockMatmulAttrs) -> list[Array]:
    x, format = args[0].astype(np.float64), format_of(attrs.format)
    packed = unpacked(args[1], format, attrs.rows)
    group = packed.codes.shape[1] // packed.scale.shape[1] if packed.scale.shape[1] else 1
    scale, shift = (np.repeat(f, group, axis=1).astype(np.float64) for f in (packed.scale, packed.offset))
    weight = (packed.codes * scale + shift).astype(np.float32).astype(np.float64)
    sums = [np.zeros((len(x), attrs.rows), np.float32) for _ in range(2)]
    with np.errstate(all="ignore"):
        for k in range(x.shape[1]):
            sums[k % 2] = (x[:, k, None] * weight[None, :, k] + sums[k % 2]).astype(np.float32)
        return [sums[0] + sums[1]]


@operator(deduce=_deduce, reference=_reference, attrs=BlockMatmulAttrs, arity=2, template="block_quantized_f32.matmul")
def block_matmul_exact(op: OpCall, x: Any, weights: Any, *, format: str, rows: int) -> Any:
    """The matmul of f32 activations with packed weights: f32[n, rows]."""
    return op.emit(x, weights, attrs=BlockMatmulAttrs(format, rows))


@composite
def block_linear_exact(op: OpCall, x: Any, raw: Any, format: str) -> Any:
    """`x @ w.T` for weights of a block format, dequantized to f32 as they are read; x is f32[n, k]."""
    a, weights, rows = linear_operands(op.name, x, raw, format)
    return block_matmul_exact(a, weights, format=format, rows=rows)
