"""GEMM of f32 activations and block-quantized weights (graph/ops/block_quantized_f32.py), in the register tiles of `block_quantized.py`.

for pack of 16 rows of weights, for tile of rows of activations:
    acc[i, parity, l] = 0                                      # in registers
    for group g, for each word of codes, for each element k of it:
        w[l] = muladd(code[l, k], scale[l, g], minimum[l, g])     # in a register, for all rows of the tile
        acc[i, k % 2, l] = muladd(x[i, k], w[l], acc[i, k % 2, l])
    y = acc[:, 0] + acc[:, 1]

Each result has two accumulators, because a single row would otherwise wait for the latency of its FMAs. The sum of a row is computed in
the same order in every tile size.
"""

from __future__ import annotations

from dataclasses import replace

from ....dtype import f32, i32, i64, u32
from ....graph.ops.block_quantized import PACK, format_of, group_of, half_bytes
from ....loop.buffer import Buffer
from ....loop.stmt import Alloc, For, If, Stmt, Store, seq
from ....sym.expr import Add, BitAnd, Cast, Const, Dim, Expr, Lt, MulAdd, Shr, Var
from .block_quantized import LARGEST, both_factors, lanes, loop, over_packs, views
from .build import ZERO, Site


def matmul_dims(site: Site) -> tuple[Site, dict[Var, Expr]]:
    """Makes the numbers of groups, packs and weight rows symbols: the code does not depend on them, so layers share one kernel."""
    x, weights, y = site.buffer(0), site.buffer(1), site.outs[0]
    groups, packs, end = Dim("groups", max=LARGEST), Dim("packs", max=LARGEST), Dim("end")
    values: dict[Var, Expr] = {groups: weights.shape[1], packs: weights.shape[0], end: y.shape[1]}
    rows, length = y.shape[0], groups * group_of(format_of(site.attrs.format))
    args = (Buffer(x.name, x.dtype, (rows, length)), Buffer(weights.name, weights.dtype, (packs, groups, weights.shape[2])))
    return replace(site, args=args, outs=(Buffer(y.name, y.dtype, (rows, end)),)), values


def matmul(site: Site) -> Stmt:
    """Builds the body of `block_matmul_exact`."""
    return over_packs(site.buffer(1).shape[0], site.outs[0].shape[0], lambda pack, start, number: _tile(site, pack, start, number))


def _tile(site: Site, pack: Expr, start: Expr, number: int) -> Stmt:
    """Multiplies some rows of activations by one pack of weights."""
    y, weights = site.outs[0], site.buffer(1)
    sums = [Buffer(f"acc{k}", f32, (Const(number, i64), Const(PACK, i64)), scope="register") for k in range(2)]
    g = Var("g")
    codes, scale, minimum, defs = views(site, weights, pack, g, u32)
    d, m, factors = both_factors(site, scale, minimum)

    def write(i: Expr, lane: Expr) -> Stmt:
        column = pack * PACK + lane
        return If(Lt(column, y.shape[1]), Store(y, (start + i, column), Add(sums[0].load(i, lane), sums[1].load(i, lane))))

    clear = [lanes(number, lambda i, lane, acc=acc: Store(acc, (i, lane), Const(0.0, f32))) for acc in sums]  # type: ignore[misc]
    body = seq(*defs, factors, _words(site, sums, codes, d, m, start, g, number))
    return seq(*map(Alloc, sums), *clear, For(g, ZERO, weights.shape[1], "serial", body), lanes(number, write))


def _words(site: Site, sums: list[Buffer], codes: Buffer, d: Buffer, m: Buffer, start: Expr, g: Expr, number: int) -> Stmt:
    """Adds the products of a group: decodes four or eight codes per word (4-bit codes: low halves of the bytes first) and multiplies."""
    format = format_of(site.attrs.format)
    x, halves, group = site.buffer(0), half_bytes(format), group_of(format)
    each, bits = (8, 4) if halves else (4, 8)
    w, lane = Var("w"), Var("l")
    steps: list[Stmt] = []
    for k in range(each):
        weight = Buffer(f"w{k}", f32, (Const(PACK, i64),), scope="register")
        shift = Const(8 * (k % 4) + 4 * (k // 4), u32)
        code = BitAnd(Shr(codes.load(w, lane), shift), Const((1 << bits) - 1, u32))
        value = MulAdd(Cast(f32, Cast(i32, code)), d.load(lane), m.load(lane))
        steps += [Alloc(weight), loop(lane, PACK, "vector", Store(weight, (lane,), value))]
        acc, column = sums[k % 2], g * group + w * each + k

        def add(i: Expr, j: Expr, acc: Buffer = acc, weight: Buffer = weight, column: Expr = column) -> Stmt:
            return Store(acc, (i, j), MulAdd(x.load(start + i, column), weight.load(j), acc.load(i, j)))

        steps.append(lanes(number, add))
    return loop(w, group // each, "serial", seq(*steps))
