"""GEMM of int8 activations and block-quantized weights (graph/ops/block_quantized.py), and the quantization of activations.

Products of the codes of a part are summed in i32; parts are summed in f32. Weights are read once per tile of rows; activations stay in the
L1 cache. The sum of a row is computed in the same order in every tile size, so a result does not depend on the number of rows.
"""

# Inline functions are written in the loop language, which is not typed for mypy.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....graph.ops.block_fields import format_of, group_of, half_bytes, zero_of
from ....graph.ops.block_quantized import PACK, group_bytes, parts_of
from ....loop.buffer import Buffer
from ....loop.inline import inline
from ....loop.script import alloc, parallel, unroll, vector, view
from ....sym.expr import Dim, Expr, Var
from ....sym.script import bitcast, cast, muladd, select
from ....sym.spec import f32, i8, i32
from .build import Site, converted

LARGEST = 1 << 24  # upper bound of the numbers of groups and packs: byte offsets then provably do not overflow i64
CHUNK = 4  # packs per unit of parallel work: reading them takes a few microseconds even for short rows, more than handing out the unit
ROWS = 8  # rows of a register tile: three sums (acc, mixed, dot) of 8 rows and their operands fit into 32 registers
TAILS = (4, 2, 1)  # the tiles of the remaining rows: the bits of their number


def matmul_dims(site: Site) -> tuple[Site, dict[Var, Expr]]:
    """Returns the site with symbols for the numbers of groups, packs and weight rows, and their values.

    The code does not depend on them, so layers share one kernel.
    """
    format, y = format_of(site.attrs.format), site.outs[0]
    groups, packs, end = Dim("groups", max=LARGEST), Dim("packs", max=LARGEST), Dim("end")
    values: dict[Var, Expr] = {groups: site.buffer(1).shape[1], packs: site.buffer(3).shape[0], end: y.shape[1]}
    rows = y.shape[0]
    parts, size = site.buffer(1).shape[2], site.buffer(3).shape[2]
    shapes = ((rows, groups * group_of(format)), (rows, groups, parts), (rows, groups), (packs, groups, size))
    args = tuple(_shaped(site.buffer(k), shape) for k, shape in enumerate(shapes))
    return replace(site, args=args, outs=(_shaped(y, (rows, end)),)), values


def _shaped(b: Buffer, shape: tuple[Expr, ...]) -> Buffer:
    return Buffer(b.name, b.dtype, shape)


@inline
def over_packs(packs, count, tile):
    """Runs `tile(pack, first row, number of rows)` for all packs of weights (parallel, in chunks) and all `count` rows."""
    for chunk in parallel((packs + (CHUNK - 1)) // CHUNK, grain=1):
        for k in range(CHUNK):
            pack = chunk * CHUNK + k
            if pack < packs:
                for t in range(count // ROWS):
                    tile(pack, t * ROWS, ROWS)
                for rows in TAILS:
                    if count // rows % 2 == 1:
                        tile(pack, count // (2 * rows) * (2 * rows), rows)


@inline
def clear(sums, rows, X):
    """Sets the sums of a tile to zero."""
    for i in unroll(rows):
        for j in vector(PACK):
            sums[i, j] = cast(X, 0)


def load_factors(name: str) -> Any:
    """Returns an inline function that loads the scales `d` and the offsets `m` of a group of weights: value = code * scale + offset.

    A format without stored minimums has the offset `-zero * scale`.
    """
    fields, OFFSET = group_bytes(format_of(name)), -float(zero_of(format_of(name)))
    SCALE: Any = fields.scale
    MINIMUM: Any = fields.minimum
    HAS_MINIMUM, AT_SCALE, AT_MINIMUM = MINIMUM is not None, fields.codes, fields.at_minimum

    @inline
    def factors(weights, at, g, d, m):
        scale = view(weights[*at, g, AT_SCALE], (PACK,), dtype=SCALE)
        if HAS_MINIMUM:
            minimum = view(weights[*at, g, AT_MINIMUM], (PACK,), dtype=MINIMUM)
            for j in vector(PACK):
                d[j] = converted(f32, scale[j])
                m[j] = converted(f32, minimum[j])
        else:
            for j in vector(PACK):
                d[j] = converted(f32, scale[j])
                m[j] = converted(f32, scale[j]) * OFFSET

    return factors


def register_tile(name: str, q: Any, e: Any, sums: Any, weights: Any, y: Any, groups: Any) -> Any:
    """Returns the inline function `tile(at, column, start, rows)`: adjacent rows of activations times the pack of weights `weights[*at]`.

    Its results go to the columns of `y` from `column` on. A row is computed by the same operations for every number of rows.
    """
    format, end, W = format_of(name), y.shape[1], weights.dtype
    GROUP, PARTS, PAIRED, WORDS = group_of(format), parts_of(group_of(format)), half_bytes(format), group_bytes(format).codes // (PACK * 4)
    SIZE, STEP, HALVES = GROUP // PARTS, 8 if PAIRED else 4, (0, 1) if PAIRED else (0,)  # packed 4-bit codes have two fours per word
    factors = load_factors(name)

    @inline
    def add_part(mixed, codes, start, rows, g, part):
        """Adds the i32 dot product of a part, times its activation scale, to `mixed`: four codes at a time, as instructions do."""
        dot = alloc((rows, PACK), i32, scope="register")
        clear(dot, rows, i32)
        for w in unroll(SIZE // STEP):
            for half in HALVES:

                def product(i, j, t):
                    (byte := codes[part * (SIZE // STEP) + w, j, t])
                    (code := (byte >> 4 if half == 1 else byte & 15) if PAIRED else byte)
                    return cast(i32, code) * cast(i32, q[start + i, g * GROUP + part * SIZE + w * STEP + (half * 4 + t)])

                for i in unroll(rows):
                    for j in vector(PACK):
                        dot[i, j] = dot[i, j] + product(i, j, 0) + product(i, j, 1) + product(i, j, 2) + product(i, j, 3)
        for i in unroll(rows):
            for j in vector(PACK):
                mixed[i, j] = muladd(cast(f32, dot[i, j]), e[start + i, g, part], mixed[i, j])

    @inline
    def tile(at, column, start, rows):
        """Multiplies adjacent rows of activations by one pack of weights, group by group, and stores the results up to column `end`."""
        acc = alloc((rows, PACK), f32, scope="register")
        clear(acc, rows, f32)
        for g in range(groups):
            codes = view(weights[*at, g, 0], (WORDS, PACK, 4), dtype=W)
            mixed = alloc((rows, PACK), f32, scope="register")
            clear(mixed, rows, f32)
            if PARTS <= 2:
                for part in unroll(PARTS):
                    add_part(mixed, codes, start, rows, g, part)
            else:
                for part in range(PARTS):
                    add_part(mixed, codes, start, rows, g, part)
            d = alloc((PACK,), f32, scope="register")
            m = alloc((PACK,), f32, scope="register")
            factors(weights, at, g, d, m)
            for i in unroll(rows):
                for j in vector(PACK):
                    acc[i, j] = muladd(m[j], sums[start + i, g], muladd(mixed[i, j], d[j], acc[i, j]))
        for i in unroll(rows):
            for j in vector(PACK):
                if column + j < end:
                    y[start + i, column + j] = acc[i, j]

    return tile


def matmul(site: Site) -> Any:
    """Builds the body of `block_matmul`: i32 dot products of int8 codes per group, scaled by the factors of weights and activations."""
    (q, e, sums, weights), y = site.args, site.outs[0]
    count, (packs, groups, _) = y.shape[0], weights.shape
    rows_by_pack = register_tile(site.attrs.format, q, e, sums, weights, y, groups)

    @inline
    def tile(pack, start, rows):
        rows_by_pack((pack,), pack * PACK, start, rows)

    @inline
    def product():
        over_packs(packs, count, tile)

    return product


@inline
def larger(a, b):
    return max(a, b)


@inline
def added(a, b):
    return a + b


@inline
def over_chunks(value, join, j, start):
    """Joins the values of lane `j` in all chunks of PACK elements up to the one at `start`; expands recursively."""
    return join(over_chunks(value, join, j, start - PACK), value(j + start)) if start > 0 else value(j)


@inline
def join_lanes(row, width, join, result):
    """Joins the lanes of a vector of i32 as a tree."""
    if width > 2:
        half = alloc((width // 2,), i32, scope="register")
        for j in vector(width // 2):
            half[j] = join(row[j], row[j + width // 2])
        join_lanes(half, width // 2, join, result)
    else:
        result[0] = join(row[0], row[1])


@inline
def join_all(value, size, join, result):
    """Joins `size` values of type i32: first lane by lane, then as a tree over the lanes."""
    row = alloc((min(PACK, size),), i32, scope="register")
    for j in vector(min(PACK, size)):
        row[j] = over_chunks(value, join, j, size - PACK)
    join_lanes(row, min(PACK, size), join, result)


def quantize(site: Site) -> Any:
    """Builds the body of `quantize_groups`: per part, the largest magnitude gives the scale; codes are rounded and summed."""
    x, (codes, scale, sums) = site.args[0], site.outs
    (count, groups, group), parts = x.shape, scale.shape[2].value
    PARTS, SIZE = parts, group.value // parts

    @inline
    def quantize_part(i, g, part, group_sum):
        def magnitude(k):
            return bitcast(i32, abs(x[i, g, part * SIZE + k]))  # the bits of floats, which order like |x|

        largest = alloc((1,), i32, scope="register")
        join_all(magnitude, SIZE, larger, largest)
        most = bitcast(f32, largest[0])
        inverse = select(most == 0.0, 0.0, 127.0 / most)
        step = most / 127.0
        scale[i, g, part] = step

        def code(k):
            return cast(i32, round(x[i, g, part * SIZE + k] * inverse))

        for j in vector(SIZE):
            codes[i, g, part * SIZE + j] = cast(i8, code(j))
        total = alloc((1,), i32, scope="register")
        join_all(code, SIZE, added, total)
        group_sum[0] = muladd(step, cast(f32, total[0]), group_sum[0])

    @inline
    def quantized():
        for i in parallel(count):
            for g in range(groups):
                group_sum = alloc((1,), f32, scope="register")
                group_sum[0] = 0.0
                if PARTS <= 2:
                    for part in unroll(PARTS):
                        quantize_part(i, g, part, group_sum)
                else:
                    for part in range(PARTS):
                        quantize_part(i, g, part, group_sum)
                sums[i, g] = group_sum[0]

    return quantized
