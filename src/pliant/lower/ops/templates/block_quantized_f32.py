"""GEMM of f32 activations and block-quantized weights (graph/ops/block_quantized_f32.py), in the register tiles of `block_quantized.py`.

Weights are decoded to f32 in registers, for all rows of a tile. Each result has two accumulators, because a single row would otherwise
wait for the latency of its FMAs. The sum of a row is computed in the same order in every tile size.
"""

# Inline functions are written in the loop language, which is not typed for mypy.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....graph.ops.block_fields import format_of, group_of, half_bytes
from ....graph.ops.block_quantized import PACK, group_bytes
from ....loop.buffer import Buffer
from ....loop.inline import inline
from ....loop.script import alloc, unroll, vector, view
from ....sym.expr import Dim, Expr, Var
from ....sym.script import cast, muladd
from ....sym.spec import f32, i32, u32
from .block_quantized import LARGEST, clear, load_factors, over_packs
from .build import Site


def matmul_dims(site: Site) -> tuple[Site, dict[Var, Expr]]:
    """Makes the numbers of groups, packs and weight rows symbols: the code does not depend on them, so layers share one kernel."""
    x, weights, y = site.buffer(0), site.buffer(1), site.outs[0]
    groups, packs, end = Dim("groups", max=LARGEST), Dim("packs", max=LARGEST), Dim("end")
    values: dict[Var, Expr] = {groups: weights.shape[1], packs: weights.shape[0], end: y.shape[1]}
    rows, length = y.shape[0], groups * group_of(format_of(site.attrs.format))
    args = (Buffer(x.name, x.dtype, (rows, length)), Buffer(weights.name, weights.dtype, (packs, groups, weights.shape[2])))
    return replace(site, args=args, outs=(Buffer(y.name, y.dtype, (rows, end)),)), values


def matmul(site: Site) -> Any:
    """Builds the body of `block_matmul_exact`."""
    (x, weights), y, format = site.args, site.outs[0], format_of(site.attrs.format)
    (count, end), (packs, groups, _) = y.shape, weights.shape
    GROUP, WORDS, PAIRED = group_of(format), group_bytes(format).codes // (PACK * 4), half_bytes(format)
    EACH, MASK = (8, 15) if PAIRED else (4, 255)  # codes in a word of a lane; 4-bit codes: low halves of its bytes first
    PLACES = tuple((k, 8 * (k % 4) + 4 * (k // 4)) for k in range(EACH))  # the codes of a word and their first bits
    factors = load_factors(site.attrs.format)

    @inline
    def multiply(acc, start, rows, column, code, d, m):
        """Decodes one code of each lane, and adds its products with the activations of the tile's rows."""
        w = alloc((PACK,), f32, scope="register")
        for j in vector(PACK):
            w[j] = muladd(cast(f32, cast(i32, code(j))), d[j], m[j])
        for i in unroll(rows):
            for j in vector(PACK):
                acc[i, j] = muladd(x[start + i, column], w[j], acc[i, j])

    @inline
    def add_group(sums, pack, start, rows, g):
        """Adds the products of a group of weights: to the first sums for even elements, to the second ones for odd elements."""
        codes = view(weights[pack, g, 0], (WORDS, PACK), dtype=u32)
        d = alloc((PACK,), f32, scope="register")
        m = alloc((PACK,), f32, scope="register")
        factors(weights, pack, g, d, m)
        for word in range(GROUP // EACH):
            for k, shift in PLACES:

                def code(j):
                    return (codes[word, j] >> shift) & MASK

                multiply(sums[k % 2], start, rows, g * GROUP + word * EACH + k, code, d, m)

    @inline
    def tile(pack, start, rows):
        """Multiplies adjacent rows of activations by one pack of weights."""
        acc0 = alloc((rows, PACK), f32, scope="register")
        acc1 = alloc((rows, PACK), f32, scope="register")
        clear(acc0, rows, f32)
        clear(acc1, rows, f32)
        for g in range(groups):
            add_group((acc0, acc1), pack, start, rows, g)
        for i in unroll(rows):
            for j in vector(PACK):
                if pack * PACK + j < end:
                    y[start + i, pack * PACK + j] = acc0[i, j] + acc1[i, j]

    @inline
    def product():
        over_packs(packs, count, tile)

    return product
