"""GEMM with f16 or bf16 weights (graph/ops/half_weights.py), which are widened to f32 in registers.

The sum of a row is computed in the same order in every tile size, so a result does not depend on the number of rows.
"""

# Inline functions are written in the loop language, which is not typed for mypy.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....dtype import i64
from ....graph.ops.half_weights import PACK, wide
from ....loop.buffer import Buffer
from ....loop.inline import compile_time, inline
from ....loop.script import alloc, parallel, unroll, vector
from ....sym.expr import Const, Dim, Expr, Var
from ....sym.script import muladd
from ....sym.spec import f32
from .build import Site

LARGEST = 1 << 24  # upper bound of the row length and of the number of packs: indices then provably do not overflow i64
ROWS = 4  # rows of a register tile: 4 x 64 sums take 16 of 32 registers of 16 lanes, operands the rest
TAILS = (2, 1)  # the tiles of the remaining rows: the bits of their number


def matmul_dims(site: Site) -> tuple[Site, dict[Var, Expr]]:
    """Returns the site with symbols for the row length and the numbers of packs and rows, and their values.

    The code does not depend on them, so layers share one kernel.
    """
    x, weights, y = site.buffer(0), site.buffer(1), site.outs[0]
    length, packs, end = Dim("length", max=LARGEST), Dim("packs", max=LARGEST), Dim("end")
    values: dict[Var, Expr] = {length: x.shape[1], packs: weights.shape[0], end: y.shape[1]}
    rows = y.shape[0]
    args = (Buffer(x.name, x.dtype, (rows, length)), Buffer(weights.name, weights.dtype, (packs, length, Const(PACK, i64))))
    return replace(site, args=args, outs=(Buffer(y.name, y.dtype, (rows, end)),)), values


def matmul(site: Site) -> Any:
    """Builds the body of `half_matmul`: f32 activations times 16-bit weights that are widened to f32 in registers."""
    (x, weights), y = site.args, site.outs[0]
    (count, end), length, packs = y.shape, x.shape[1], weights.shape[0]
    widened = compile_time(lambda bits: wide(bits, site.attrs.format))

    @inline
    def tile(pack, start, rows):
        """Multiplies adjacent rows of activations by one pack of weights."""
        acc = alloc((rows, PACK), f32, scope="register")
        for i in unroll(rows):
            for j in vector(PACK):
                acc[i, j] = 0.0
        for k in range(length):
            for i in unroll(rows):
                for j in vector(PACK):
                    acc[i, j] = muladd(x[start + i, k], widened(weights[pack, k, j]), acc[i, j])
        for i in unroll(rows):
            for j in vector(PACK):
                if pack * PACK + j < end:
                    y[start + i, pack * PACK + j] = acc[i, j]

    @inline
    def product():
        for pack in parallel(packs, grain=1):
            for t in range(count // ROWS):
                tile(pack, t * ROWS, ROWS)
            for rows in TAILS:
                if count // rows % 2 == 1:
                    tile(pack, count // (2 * rows) * (2 * rows), rows)

    return product
