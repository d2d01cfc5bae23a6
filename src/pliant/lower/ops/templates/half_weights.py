"""GEMM with f16 or bf16 weights (graph/ops/half_weights.py), which are widened to f32 in registers.

for pack of 64 rows of weights (parallel):
    for tile of ROWS rows of activations, then of 2, 1:
        acc[i, l] = 0                                          # in registers
        for k: acc[i, l] = muladd(x[i, k], wide(w[k, l]), acc[i, l])
        y = acc

The sum of a row is computed in the same order in every tile size, so a result does not depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ....dtype import f32, i64
from ....graph.ops.half_weights import PACK, wide
from ....loop.buffer import Buffer
from ....loop.stmt import Alloc, For, If, Stmt, Store, seq
from ....sym.expr import Const, Dim, Eq, Expr, Lt, MulAdd, Var
from .build import ZERO, Site

LARGEST = 1 << 24  # upper bound of the row length and of the number of packs: indices then provably do not overflow i64
ROWS = 4  # rows of a register tile: 4 x 64 sums take 16 of 32 registers of 16 lanes, operands the rest; tails need a power of two


def matmul_dims(site: Site) -> tuple[Site, dict[Var, Expr]]:
    """Makes the row length and the numbers of packs and rows symbols: the code does not depend on them, so layers share one kernel."""
    x, weights, y = site.buffer(0), site.buffer(1), site.outs[0]
    length, packs, end = Dim("length", max=LARGEST), Dim("packs", max=LARGEST), Dim("end")
    values: dict[Var, Expr] = {length: x.shape[1], packs: weights.shape[0], end: y.shape[1]}
    rows = y.shape[0]
    args = (Buffer(x.name, x.dtype, (rows, length)), Buffer(weights.name, weights.dtype, (packs, length, Const(PACK, i64))))
    return replace(site, args=args, outs=(Buffer(y.name, y.dtype, (rows, end)),)), values


def matmul(site: Site) -> Stmt:
    """Builds the body of `half_matmul`."""
    count = site.outs[0].shape[0]
    pack, tile = Var("p"), Var("t")
    whole = For(tile, ZERO, count // ROWS, "serial", _tile(site, pack, tile * ROWS, ROWS))
    tails = [If(Eq(count // r % 2, Const(1, i64)), _tile(site, pack, count // (2 * r) * (2 * r), r)) for r in (2, 1)]
    return For(pack, ZERO, site.buffer(1).shape[0], "parallel", seq(whole, *tails), {"grain": 1})


def _tile(site: Site, pack: Expr, start: Expr, number: int) -> Stmt:
    """Multiplies up to ROWS rows of activations by one pack of weights."""
    y, x, weights = site.outs[0], site.buffer(0), site.buffer(1)
    acc = Buffer("acc", f32, (Const(number, i64), Const(PACK, i64)), scope="register")
    k = Var("k")

    def add(i: Expr, lane: Expr) -> Stmt:
        weight = wide(weights.load(pack, k, lane), site.attrs.format)
        return Store(acc, (i, lane), MulAdd(x.load(start + i, k), weight, acc.load(i, lane)))

    def write(i: Expr, lane: Expr) -> Stmt:
        column = pack * PACK + lane
        return If(Lt(column, y.shape[1]), Store(y, (start + i, column), acc.load(i, lane)))

    clear = _lanes(number, lambda i, lane: Store(acc, (i, lane), Const(0.0, f32)))
    return seq(Alloc(acc), clear, For(k, ZERO, x.shape[1], "serial", _lanes(number, add)), _lanes(number, write))


def _lanes(number: int, body: Callable[[Expr, Expr], Stmt]) -> Stmt:
    """Emits a statement for each row of a tile (unrolled) and each lane (vectorized)."""
    i, lane = Var("i"), Var("l")
    over = For(lane, ZERO, Const(PACK, i64), "vector", body(i, lane))
    return For(i, ZERO, Const(number, i64), "unroll", over)
