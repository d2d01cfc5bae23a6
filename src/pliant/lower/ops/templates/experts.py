"""GEMMs with the weights of experts (graph/ops/experts.py): each expert's rows go through the register tiles of an ordinary GEMM.

A unit of parallel work is a few packs of weights of one expert, with all rows of that expert: weights are read once, and experts
without rows cost a comparison. The sum of a row is computed in the same order in every tile size.
"""

# Inline functions are written in the loop language, which is not typed for mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....dtype import i64 as wide_int
from ....graph.ops.block_fields import format_of, group_of
from ....graph.ops.block_quantized import PACK
from ....graph.ops.experts import COLUMNS
from ....graph.ops.half_weights import wide
from ....loop.buffer import Buffer
from ....loop.inline import compile_time, inline
from ....loop.script import alloc, check, parallel, unroll, vector
from ....sym.expr import Const, Dim, Expr, Var
from ....sym.script import cast, muladd
from ....sym.spec import f32, i64
from .block_quantized import CHUNK, LARGEST, ROWS, TAILS, register_tile
from .build import Site

MOST_EXPERTS = 1 << 12  # upper bound of the number of experts: indices then provably do not overflow i64
FLOAT_ROWS = 4  # rows of a register tile of floats


def block_matmul_dims(site: Site) -> tuple[Site, dict[Var, Expr]]:
    """Makes the numbers of experts, groups and packs symbols: the code does not depend on them, so layers share one kernel."""
    format, y, weights, starts = format_of(site.attrs.format), site.outs[0], site.buffer(3), site.buffer(4)
    experts, packs, groups = Dim("experts", min=1, max=MOST_EXPERTS), Dim("packs", max=LARGEST), Dim("groups", max=LARGEST)
    values: dict[Var, Expr] = {experts: weights.shape[0], packs: weights.shape[1], groups: weights.shape[2]}
    rows, parts = y.shape[0], site.buffer(1).shape[2]
    packed = (experts, packs, groups, weights.shape[3])
    shapes = ((rows, groups * group_of(format)), (rows, groups, parts), (rows, groups), packed, (experts + 1,))
    args = tuple(Buffer(b.name, b.dtype, shape) for b, shape in zip((*site.args[:3], weights, starts), shapes, strict=True))
    return replace(site, args=args, outs=(Buffer(y.name, y.dtype, (rows, packs * PACK)),)), values


@inline
def over_experts(starts, experts, packs, count, most, tails, tile):
    """Runs `tile(expert, pack, first row, number of rows)` for all packs of all experts (parallel, in chunks) and the expert's rows."""
    end = cast(i64, starts[experts])
    check(starts[0] == 0 and end == count, "the rows of experts run from {0} to {1}, not from 0 to {2}", starts[0], end, count)
    for unit in parallel(experts * ((packs + (CHUNK - 1)) // CHUNK), grain=1):
        expert = unit // ((packs + (CHUNK - 1)) // CHUNK)
        chunk = unit % ((packs + (CHUNK - 1)) // CHUNK)
        begin = cast(i64, starts[expert])
        stop = cast(i64, starts[expert + 1])
        check(begin >= 0 and begin <= stop and stop <= count, "expert {0} has the rows {1} to {2} of {3}", expert, begin, stop, count)
        for k in range(CHUNK):
            pack = chunk * CHUNK + k
            if pack < packs:
                for t in range((stop - begin) // most):
                    tile(expert, pack, begin + t * most, most)
                for rows in tails:
                    if (stop - begin) // rows % 2 == 1:
                        tile(expert, pack, begin + (stop - begin) // (2 * rows) * (2 * rows), rows)


def block_matmul(site: Site) -> Any:
    """Builds the body of `block_matmul_experts`."""
    (q, e, sums, weights, starts), y = site.args, site.outs[0]
    count, (experts, packs, groups, _) = y.shape[0], weights.shape
    rows_by_pack = register_tile(site.attrs.format, q, e, sums, weights, y, groups)

    @inline
    def tile(expert, pack, start, rows):
        check(start >= 0 and start + rows <= count, "row {0} of {1} is not there", start, count)
        rows_by_pack((expert, pack), pack * PACK, start, rows)

    @inline
    def product():
        over_experts(starts, experts, packs, count, ROWS, TAILS, tile)

    return product


def float_matmul_dims(site: Site) -> tuple[Site, dict[Var, Expr]]:
    """Makes the numbers of experts, packs and elements symbols: the code does not depend on them, so layers share one kernel."""
    x, weights, starts, y = site.buffer(0), site.buffer(1), site.buffer(2), site.outs[0]
    experts, packs, length = Dim("experts", min=1, max=MOST_EXPERTS), Dim("packs", max=LARGEST), Dim("length", max=LARGEST)
    values: dict[Var, Expr] = {experts: weights.shape[0], packs: weights.shape[1], length: weights.shape[2]}
    shapes = ((y.shape[0], length), (experts, packs, length, Const(COLUMNS, wide_int)), (experts + 1,))
    args = tuple(Buffer(b.name, b.dtype, shape) for b, shape in zip((x, weights, starts), shapes, strict=True))
    return replace(site, args=args, outs=(Buffer(y.name, y.dtype, (y.shape[0], packs * COLUMNS)),)), values


def float_matmul(site: Site) -> Any:
    """Builds the body of `float_matmul_experts`."""
    (x, weights, starts), y = site.args, site.outs[0]
    count, (experts, packs, length, _) = y.shape[0], weights.shape
    format = site.attrs.format
    widened = compile_time(lambda bits: bits if format == "F32" else wide(bits, format))

    @inline
    def tile(expert, pack, start, rows):
        """Multiplies adjacent rows of activations by one pack of an expert's weights."""
        check(start >= 0 and start + rows <= count, "row {0} of {1} is not there", start, count)
        acc = alloc((rows, COLUMNS), f32, scope="register")
        for i in unroll(rows):
            for j in vector(COLUMNS):
                acc[i, j] = 0.0
        for k in range(length):
            for i in unroll(rows):
                for j in vector(COLUMNS):
                    acc[i, j] = muladd(x[start + i, k], widened(weights[expert, pack, k, j]), acc[i, j])
        for i in unroll(rows):
            for j in vector(COLUMNS):
                y[start + i, pack * COLUMNS + j] = acc[i, j]

    @inline
    def product():
        over_experts(starts, experts, packs, count, FLOAT_ROWS, (2, 1), tile)

    return product
