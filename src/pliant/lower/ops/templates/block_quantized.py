"""GEMM of int8 activations and block-quantized weights (graph/ops/block_quantized.py), and the quantization of activations.

Products of the codes of a part are summed in i32; parts are summed in f32.

for pack of 16 rows of weights, CHUNK of them together (parallel):
    for tile of ROWS rows of activations, then of 4, 2, 1:
        acc[i, l] = 0                                          # in registers
        for group g:
            mixed[i, l] = 0                                    # in registers
            for part p of the group:
                dot[i, l] = 0                                  # in registers
                for each word of 4 codes: dot[i, l] += code[l, 0] * q[i, 0] + … + code[l, 3] * q[i, 3]
                mixed[i, l] = muladd(dot[i, l], e[i, p], mixed[i, l])
            acc[i, l] = muladd(mixed[i, l], scale[l, g], acc[i, l]); acc[i, l] = muladd(offset[l, g], sums[i, g], acc[i, l])
        y = acc

Weights are read once per tile of rows; activations stay in the L1 cache. The sum of a row is computed in the same order in every tile
size, so a result does not depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ....dtype import DType, f32, i8, i32, i64
from ....graph.ops.block_quantized import PACK, format_of, group_bytes, group_of, half_bytes, parts_of, zero_of
from ....loop.buffer import Buffer
from ....loop.stmt import Alloc, For, If, Let, LoopKind, Stmt, Store, View, seq
from ....sym.expr import Add, Binary, BitAnd, Bitcast, Call, Cast, Const, Dim, Div, Eq, Expr, Lt, Max, Mul, MulAdd, Select, Shr, Var
from .build import ZERO, Site

LARGEST = 1 << 24  # upper bound of the numbers of groups and packs: byte offsets then provably do not overflow i64
CHUNK = 4  # packs per unit of parallel work: reading them takes a few microseconds even for short rows, more than handing out the unit
ROWS = 8  # rows of a register tile, a power of two: three sums (acc, mixed, dot) of 8 rows and their operands fit into 32 registers


def matmul_dims(site: Site) -> tuple[Site, dict[Var, Expr]]:
    """Makes the numbers of groups, packs and weight rows symbols: the code does not depend on them, so layers share one kernel."""
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


def matmul(site: Site) -> Stmt:
    """Builds the body of `block_matmul`."""
    return over_packs(site.buffer(3).shape[0], site.outs[0].shape[0], lambda pack, start, number: _tile(site, pack, start, number))


def over_packs(packs: Expr, count: Expr, make: Callable[[Expr, Expr, int], Stmt]) -> Stmt:
    """Loops over packs of weights (parallel, in chunks) and tiles of activation rows: `make(pack, first row, number of rows)`.

    The remainder of the rows runs as tiles of 4, 2 and 1, by the bits of the row count.
    """
    pack, tile = Var("p"), Var("t")
    whole = For(tile, ZERO, count // ROWS, "serial", make(pack, tile * ROWS, ROWS))
    tails = [If(Eq(count // r % 2, Const(1, i64)), make(pack, count // (2 * r) * (2 * r), r)) for r in (4, 2, 1)]
    chunk, k = Var("c"), Var("k")
    some = loop(k, CHUNK, "serial", seq(Let(pack, chunk * CHUNK + k), If(Lt(pack, packs), seq(whole, *tails))))
    return For(chunk, ZERO, (packs + (CHUNK - 1)) // CHUNK, "parallel", some, {"grain": 1})


def _tile(site: Site, pack: Expr, start: Expr, number: int) -> Stmt:
    """Multiplies up to ROWS rows of activations by one pack of weights."""
    y, sums = site.outs[0], site.buffer(2)
    acc, mixed = (Buffer(name, f32, (Const(number, i64), Const(PACK, i64)), scope="register") for name in ("acc", "mixed"))
    g, part = Var("g"), Var("part")
    codes, scale, minimum, defs = views(site, site.buffer(3), pack, g)
    d, m, factors = both_factors(site, scale, minimum)

    def scaled(i: Expr, lane: Expr) -> Stmt:
        sum_ = MulAdd(mixed.load(i, lane), d.load(lane), acc.load(i, lane))
        return Store(acc, (i, lane), MulAdd(m.load(lane), sums.load(start + i, g), sum_))

    def write(i: Expr, lane: Expr) -> Stmt:
        return If(Lt(pack * PACK + lane, y.shape[1]), Store(y, (start + i, pack * PACK + lane), acc.load(i, lane)))

    parts = _over_parts(part, parts_of(group_of(format_of(site.attrs.format))), _part(site, mixed, codes, start, g, part))
    body = seq(*defs, Alloc(mixed), lanes(number, _cleared(mixed)), parts, factors, lanes(number, scaled))
    return seq(Alloc(acc), lanes(number, _cleared(acc)), For(g, ZERO, sums.shape[1], "serial", body), lanes(number, write))


def _over_parts(part: Var, count: int, body: Stmt) -> Stmt:
    """Loops over the parts of a group; unrolled if there are at most two."""
    return loop(part, count, "unroll" if count <= 2 else "serial", body)


def _cleared(b: Buffer) -> Callable[[Expr, Expr], Stmt]:
    return lambda i, lane: Store(b, (i, lane), Const(0, b.dtype))


def both_factors(site: Site, scale: Buffer, minimum: Buffer | None) -> tuple[Buffer, Buffer, Stmt]:
    """Returns registers for the scales and the offsets of a group (value = code * scale + offset), and the statement that loads them.

    A format without stored minimums has the offset `-zero * scale`.
    """
    d, m = (Buffer(name, f32, (Const(PACK, i64),), scope="register") for name in "dm")
    lane, zero = Var("l"), zero_of(format_of(site.attrs.format))
    read = wide(f32, scale.load(lane))
    least = wide(f32, minimum.load(lane)) if minimum is not None else Mul(read, Const(-float(zero), f32))
    return d, m, seq(Alloc(d), Alloc(m), loop(lane, PACK, "vector", seq(Store(d, (lane,), read), Store(m, (lane,), least))))


def views(site: Site, weights: Buffer, pack: Expr, g: Expr, word: DType | None = None) -> tuple[Buffer, Buffer, Buffer | None, list[Stmt]]:
    """Returns views of the codes (four bytes per lane, or one `word`), scales and minimums inside the bytes of a group of weights."""
    fields, all_lanes = group_bytes(format_of(site.attrs.format)), (Const(PACK, i64),)
    words = Const(fields.codes // (PACK * 4), i64)
    each = () if word is not None else (Const(4, i64),)
    codes = Buffer("codes", word or weights.dtype, (words, *all_lanes, *each))
    scale = Buffer("scale", fields.scale, all_lanes)
    defs: list[Stmt] = [View(codes, weights, (pack, g, ZERO)), View(scale, weights, (pack, g, Const(fields.codes, i64)))]
    if fields.minimum is None:
        return codes, scale, None, defs
    minimum = Buffer("minimum", fields.minimum, all_lanes)
    return codes, scale, minimum, [*defs, View(minimum, weights, (pack, g, Const(fields.at_minimum, i64)))]


def lanes(number: int, body: Callable[[Expr, Expr], Stmt]) -> Stmt:
    """Emits a statement for each row of a tile (unrolled) and each lane (vectorized)."""
    i, lane = Var("i"), Var("l")
    return loop(i, number, "unroll", loop(lane, PACK, "vector", body(i, lane)))


def loop(v: Var, extent: int, kind: LoopKind, body: Stmt) -> Stmt:
    """Returns a loop from 0 to a constant."""
    return For(v, ZERO, Const(extent, i64), kind, body)


def _part(site: Site, mixed: Buffer, codes: Buffer, start: Expr, g: Expr, part: Expr) -> Stmt:
    """Adds the i32 dot product of a part, times its activation scale, to `mixed`.

    It multiplies four codes of each row at a time, as integer dot-product instructions do; packed 4-bit codes have two fours per word.
    """
    format = format_of(site.attrs.format)
    group, halves = group_of(format), half_bytes(format)
    size, step = group // parts_of(group), 8 if halves else 4
    number = int(mixed.shape[0].value)  # type: ignore[attr-defined]
    dot = Buffer("dot", i32, mixed.shape, scope="register")
    w = Var("w")

    def add(half: int) -> Callable[[Expr, Expr], Stmt]:
        def word(i: Expr, lane: Expr) -> Stmt:
            total: Expr = dot.load(i, lane)
            for t in range(4):
                byte = codes.load(part * (size // step) + w, lane, Const(t, i64))
                code: Expr = byte
                if halves:
                    code = Shr(byte, Const(4, byte.dtype)) if half else BitAnd(byte, Const(15, byte.dtype))
                q = site.read(0, start + i, g * group + part * size + w * step + (half * 4 + t))
                total = Add(total, Mul(Cast(i32, code), Cast(i32, q)))
            return Store(dot, (i, lane), total)

        return word

    def mix(i: Expr, lane: Expr) -> Stmt:
        return Store(mixed, (i, lane), MulAdd(Cast(f32, dot.load(i, lane)), site.read(1, start + i, g, part), mixed.load(i, lane)))

    words = loop(w, size // step, "unroll", seq(*(lanes(number, add(half)) for half in range(1 + halves))))
    return seq(Alloc(dot), lanes(number, _cleared(dot)), words, lanes(number, mix))


def wide(dtype: DType, e: Expr) -> Expr:
    """Casts an expression if its type differs."""
    return e if e.dtype is dtype else Cast(dtype, e)


def quantize(site: Site) -> Stmt:
    """Builds the body of `quantize_groups`: per part, the largest magnitude gives the scale; codes are rounded and summed."""
    x, (codes, scale, sums) = site.buffer(0), site.outs
    i, g, part = Var("i"), Var("g"), Var("part")
    parts, group = (int(b.shape[2].value) for b in (scale, x))  # type: ignore[union-attr]
    size = group // parts
    most, inverse, step = (Var(name, f32) for name in ("most", "inverse", "step"))
    bits, total = Var("bits", i32), Var("total", i32)
    zero, group_sum = Const(0.0, f32), Buffer("found", f32, (Const(1, i64),), scope="register")

    def element(k: Expr) -> Expr:
        return x.load(i, g, part * size + k)

    def code(k: Expr) -> Expr:
        return Cast(i32, Call("round", Mul(element(k), inverse)))

    lane = Var("l")
    one = seq(
        *_joined("largest", i32, size, lambda k: Bitcast(i32, Call("abs", element(k))), Max, bits),  # float bits, which order like |x|
        Let(most, Bitcast(f32, bits)),
        Let(inverse, Select(Eq(most, zero), zero, Div(Const(127.0, f32), most))),
        Let(step, Div(most, Const(127.0, f32))),
        Store(scale, (i, g, part), step),
        loop(lane, size, "vector", Store(codes, (i, g, part * size + lane), Cast(i8, code(lane)))),
        *_joined("codes", i32, size, code, Add, total),
        Store(group_sum, (ZERO,), MulAdd(step, Cast(f32, total), group_sum.load(ZERO))),
    )
    body = seq(Alloc(group_sum), Store(group_sum, (ZERO,), zero), _over_parts(part, parts, one), Store(sums, (i, g), group_sum.load(ZERO)))
    return For(i, ZERO, x.shape[0], "parallel", For(g, ZERO, x.shape[1], "serial", body))


def _joined(name: str, dtype: DType, size: int, value: Callable[[Expr], Expr], join: type[Binary], result: Var) -> list[Stmt]:
    """Reduces `size` values with `join` into `result`: first lane by lane, then as a tree over the lanes."""
    lane = Var("l")
    width = min(PACK, size)
    first: Expr = value(lane)
    for start in range(width, size, width):
        first = join(first, value(lane + start))
    row = Buffer(name, dtype, (Const(width, i64),), scope="register")
    stmts: list[Stmt] = [Alloc(row), loop(lane, width, "vector", Store(row, (lane,), first))]
    while width > 2:
        width //= 2
        half, lane = Buffer(f"{name}_{width}", dtype, (Const(width, i64),), scope="register"), Var("l")
        stmts += [Alloc(half), loop(lane, width, "vector", Store(half, (lane,), join(row.load(lane), row.load(lane + width))))]
        row = half
    return [*stmts, Let(result, join(row.load(ZERO), row.load(Const(1, i64))))]
