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
    """Returns the site with symbols for the numbers of groups, packs and weight rows, and their values.

    The code does not depend on them, so layers share one kernel.
    """
    x, weights, y = site.buffer(0), site.buffer(1), site.outs[0]
    groups, packs, end = Dim("groups", max=LARGEST), Dim("packs", max=LARGEST), Dim("end")
    values: dict[Var, Expr] = {groups: weights.shape[1], packs: weights.shape[0], end: y.shape[1]}
    rows, length = y.shape[0], groups * group_of(format_of(site.attrs.format))
    args = (Buffer(x.name, x.dtype, (rows, length)), Buffer(weights.name, weights.dtype, (packs, groups, weights.shape[2])))
    return replace(site, args=args, outs=(Buffer(y.name, y.dtype, (rows, end)),)), values


def matmul(site: Site) -> Any:
    """Builds the body of `block_matmul_exact`: f32 activations times weights that are decoded to f32 in registers."""
    (x, weights), y, format = site.args, site.outs[0], format_of(site.attrs.format)
    (count, end), (packs, groups, _) = y.shape, weights.shape
    GROUP, WORDS, PAIRED = group_of(format), group_bytes(format).codes // (PACK * 4), half_bytes(format)
    EACH, MASK = (8, 15) if PAIRED else (4, 255)  # codes in a word of a lane; 4-bit codes: low halves of its bytes first
    factors = load_factors(site.attrs.format)

    @inline
    def add_element(acc, start, rows, g, codes, word, k, d, m):
        """Decodes element `k` of a word of codes for all lanes, and adds its products with the rows of the tile."""
        w = alloc((PACK,), f32, scope="register")
        for j in vector(PACK):
            w[j] = muladd(cast(f32, cast(i32, (codes[word, j] >> cast(u32, k % 4 * 8 + k // 4 * 4)) & MASK)), d[j], m[j])
        for i in unroll(rows):
            for j in vector(PACK):
                acc[i, j] = muladd(x[start + i, g * GROUP + word * EACH + k], w[j], acc[i, j])

    @inline
    def tile(pack, start, rows):
        """Multiplies adjacent rows of activations by one pack of weights, with separate sums for even and odd elements."""
        even = alloc((rows, PACK), f32, scope="register")
        odd = alloc((rows, PACK), f32, scope="register")
        clear(even, rows, f32)
        clear(odd, rows, f32)
        for g in range(groups):
            codes = view(weights[pack, g, 0], (WORDS, PACK), dtype=u32)
            d = alloc((PACK,), f32, scope="register")
            m = alloc((PACK,), f32, scope="register")
            factors(weights, (pack,), g, d, m)
            for word in range(GROUP // EACH):
                for pair in unroll(EACH // 2):
                    add_element(even, start, rows, g, codes, word, pair * 2, d, m)
                    add_element(odd, start, rows, g, codes, word, pair * 2 + 1, d, m)
        for i in unroll(rows):
            for j in vector(PACK):
                if pack * PACK + j < end:
                    y[start + i, pack * PACK + j] = even[i, j] + odd[i, j]

    @inline
    def product():
        over_packs(packs, count, tile)

    return product
