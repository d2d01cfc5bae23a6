"""Products of 8-bit activations and weights of block formats (graph/ops/blocks.py): sums of products of a group in i32, of groups in f32;
and what makes codes of activations.

for pack of 16 rows of weights, CHUNK of them together (parallel):
    for tile of ROWS rows of activations, then of 4, 2, 1:
        acc[i, l] = 0                                          # in registers
        for group g:
            dot[i, l] = -zero * total[i, g]                    # in registers
            for each word of 4 codes: dot[i, l] += code[l, 0] * q[i, 0] + … + code[l, 3] * q[i, 3]
            acc[i, l] = fma(dot[i, l], scale[l, g] * e[i, g], acc[i, l]); acc[i, l] = fma(minimum[l, g], e[i, g] * total[i, g], acc[i, l])
        y = acc

Weights are read once for each tile of rows, activations stay in the first cache. A row's sum is the same in every tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...dtype import DType, f32, i8, i32, i64
from ...graph.ops.blocks import PACK, format_of, group_bytes, group_of, half_bytes, zero_of
from ...loop.buffer import Buffer
from ...loop.stmt import Alloc, For, If, Let, LoopKind, Stmt, Store, View, seq
from ...sym.expr import Add, Binary, BitAnd, Call, Cast, Const, Dim, Div, Eq, Expr, Fma, Lt, Max, Mul, Select, Shr, Var
from .build import ZERO, Site

LARGEST = 1 << 24  # groups and packs: with these no index of bytes wraps
CHUNK = 4  # packs that a thread takes at once: a few microseconds of reading even of short rows
ROWS = 8  # a power of two; sums of this many rows, in i32 and f32, and what they are made of fit into 32 registers


def matmul_dims(site: Site) -> tuple[Site, dict[Var, Expr]]:
    """The numbers of groups, packs and rows of weights as symbols: nothing here depends on them, so layers share the code."""
    format, y = format_of(site.attrs.format), site.outs[0]
    groups, packs, end = Dim("groups", max=LARGEST), Dim("packs", max=LARGEST), Dim("end")
    values: dict[Var, Expr] = {groups: site.buffer(1).shape[1], packs: site.buffer(3).shape[0], end: y.shape[1]}
    rows = y.shape[0]
    shapes = ((rows, groups * group_of(format)), (rows, groups), (rows, groups), (packs, groups, site.buffer(3).shape[2]))
    args = tuple(_shaped(site.buffer(k), shape) for k, shape in enumerate(shapes))
    return replace(site, args=args, outs=(_shaped(y, (rows, end)),)), values


def _shaped(b: Buffer, shape: tuple[Expr, ...]) -> Buffer:
    return Buffer(b.name, b.dtype, shape)


def matmul(site: Site) -> Stmt:
    """The body of `block_matmul`."""
    return over_packs(site.buffer(3).shape[0], site.outs[0].shape[0], lambda pack, start, number: _tile(site, pack, start, number))


def over_packs(packs: Expr, count: Expr, make: Callable[[Expr, Expr, int], Stmt]) -> Stmt:
    """Each pack of weights, some at once, with tiles of all rows of activations: `make(pack, first row, number of rows)`."""
    pack, tile = Var("p"), Var("t")
    whole = For(tile, ZERO, count // ROWS, "serial", make(pack, tile * ROWS, ROWS))
    tails = [If(Eq(count // r % 2, Const(1, i64)), make(pack, count // (2 * r) * (2 * r), r)) for r in (4, 2, 1)]
    chunk, k = Var("c"), Var("k")
    some = loop(k, CHUNK, "serial", seq(Let(pack, chunk * CHUNK + k), If(Lt(pack, packs), seq(whole, *tails))))
    return For(chunk, ZERO, (packs + (CHUNK - 1)) // CHUNK, "parallel", some, {"grain": 1})


def _tile(site: Site, pack: Expr, start: Expr, number: int) -> Stmt:
    """Up to ROWS rows of activations, with one pack of weights."""
    y = site.outs[0]
    size = (Const(number, i64), Const(PACK, i64))
    acc, dot = Buffer("acc", f32, size, scope="register"), Buffer("dot", i32, size, scope="register")
    g = Var("g")
    end = y.shape[1]

    def write(i: Expr, lane: Expr) -> Stmt:
        return If(Lt(pack * PACK + lane, end), Store(y, (start + i, pack * PACK + lane), acc.load(i, lane)))

    codes, scale, minimum, made = views(site, site.buffer(3), pack, g)
    body = seq(
        *made,
        Alloc(dot),
        lanes(number, lambda i, lane: Store(dot, (i, lane), _minus_zero(site, start + i, g))),
        _words(site, dot, codes, start, g, number),
        lanes(number, lambda i, lane: _scaled(site, acc, dot, (i, lane), scale, minimum, start + i, g)),
    )
    groups = site.buffer(1).shape[1]
    clear = lanes(number, lambda i, lane: Store(acc, (i, lane), Const(0.0, f32)))
    return seq(Alloc(acc), clear, For(g, ZERO, groups, "serial", body), lanes(number, write))


def views(site: Site, weights: Buffer, pack: Expr, g: Expr, word: DType | None = None) -> tuple[Buffer, Buffer, Buffer | None, list[Stmt]]:
    """The codes (four bytes of each lane, or a `word`), scales and minimums of a group of weights, where they lie in its bytes."""
    lies, all_lanes = group_bytes(format_of(site.attrs.format)), (Const(PACK, i64),)
    words = Const(lies.codes // (PACK * 4), i64)
    each = () if word is not None else (Const(4, i64),)
    codes = Buffer("codes", word or weights.dtype, (words, *all_lanes, *each))
    scale = Buffer("scale", lies.scale, all_lanes)
    made: list[Stmt] = [View(codes, weights, (pack, g, ZERO)), View(scale, weights, (pack, g, Const(lies.codes, i64)))]
    if lies.minimum is None:
        return codes, scale, None, made
    minimum = Buffer("minimum", lies.minimum, all_lanes)
    return codes, scale, minimum, [*made, View(minimum, weights, (pack, g, Const(lies.at_minimum, i64)))]


def lanes(number: int, body: Callable[[Expr, Expr], Stmt]) -> Stmt:
    """A statement for each row of a tile, over lanes."""
    i, lane = Var("i"), Var("l")
    return loop(i, number, "unroll", loop(lane, PACK, "vector", body(i, lane)))


def loop(v: Var, extent: int, kind: LoopKind, body: Stmt) -> Stmt:
    """A loop from 0 to a number."""
    return For(v, ZERO, Const(extent, i64), kind, body)


def _minus_zero(site: Site, row: Expr, g: Expr) -> Expr:
    zero = zero_of(format_of(site.attrs.format))
    return Mul(site.read(2, row, g), Const(-zero, i32)) if zero else Const(0, i32)


def _words(site: Site, dot: Buffer, codes: Buffer, start: Expr, g: Expr, number: int) -> Stmt:
    """The sums of products of a group, four codes of each row after the other; half bytes hold two such words."""
    format = format_of(site.attrs.format)
    group, halves = group_of(format), half_bytes(format)
    count = group // (8 if halves else 4)
    w = Var("w")

    def add(half: int) -> Callable[[Expr, Expr], Stmt]:
        def word(i: Expr, lane: Expr) -> Stmt:
            total: Expr = dot.load(i, lane)
            for t in range(4):
                byte = codes.load(w, lane, Const(t, i64))
                code: Expr = byte
                if halves:
                    code = Shr(byte, Const(4, byte.dtype)) if half else BitAnd(byte, Const(15, byte.dtype))
                q = site.read(0, start + i, g * group + w * (group // count) + (half * 4 + t))
                total = Add(total, Mul(Cast(i32, code), Cast(i32, q)))
            return Store(dot, (i, lane), total)

        return word

    return loop(w, count, "serial", seq(*(lanes(number, add(half)) for half in range(1 + halves))))


def _scaled(site: Site, acc: Buffer, dot: Buffer, at: tuple[Expr, Expr], scale: Buffer, minimum: Buffer | None, row: Expr, g: Expr) -> Stmt:
    """A group's sum times its scales, added to that of the groups before it; then the minimum's part."""
    lane = at[1]
    e = site.read(1, row, g)
    total: Expr = Fma(Cast(f32, dot.load(*at)), Mul(wide(f32, scale.load(lane)), e), acc.load(*at))
    if minimum is not None:
        sums = Mul(e, Cast(f32, site.read(2, row, g)))
        total = Fma(wide(f32, minimum.load(lane)), sums, total)
    return Store(acc, at, total)


def wide(dtype: DType, e: Expr) -> Expr:
    """A cast, where it is one."""
    return e if e.dtype is dtype else Cast(dtype, e)


def quantize(site: Site) -> Stmt:
    """The body of `quantize_groups`: largest element and sum of a group by lanes, which are then joined by halves."""
    x, (codes, scale, total) = site.buffer(0), site.outs
    i, g = Var("i"), Var("g")
    size = x.shape[2]
    assert isinstance(size, Const)
    most, inverse = Var("most", f32), Var("inverse", f32)
    zero = Const(0.0, f32)

    def element(k: Expr) -> Expr:
        return x.load(i, g, k)

    def code(k: Expr) -> Expr:
        return Call("round", Mul(element(k), inverse))

    lane = Var("l")
    body = seq(
        *_joined("largest", f32, int(size.value), lambda k: Call("abs", element(k)), Max, most),
        Let(inverse, Select(Eq(most, zero), zero, Div(Const(127.0, f32), most))),
        Store(scale, (i, g), Div(most, Const(127.0, f32))),
        loop(lane, int(size.value), "vector", Store(codes, (i, g, lane), Cast(i8, code(lane)))),
        *_joined("sums", i32, int(size.value), lambda k: Cast(i32, code(k)), Add, found := Var("sum", i32)),
        Store(total, (i, g), found),
    )
    return For(i, ZERO, x.shape[0], "parallel", For(g, ZERO, x.shape[1], "serial", body))


def _joined(name: str, dtype: DType, size: int, value: Callable[[Expr], Expr], join: type[Binary], result: Var) -> list[Stmt]:
    """`result` is what `join` makes of `size` values: lane by lane, then by halves."""
    lane = Var("l")
    width = min(PACK, size)
    first: Expr = value(lane)
    for start in range(width, size, width):
        first = join(first, value(lane + start))
    row = Buffer(name, dtype, (Const(width, i64),), scope="register")
    made: list[Stmt] = [Alloc(row), loop(lane, width, "vector", Store(row, (lane,), first))]
    while width > 2:
        width //= 2
        half, lane = Buffer(f"{name}_{width}", dtype, (Const(width, i64),), scope="register"), Var("l")
        made += [Alloc(half), loop(lane, width, "vector", Store(half, (lane,), join(row.load(lane), row.load(lane + width))))]
        row = half
    return [*made, Let(result, join(row.load(ZERO), row.load(Const(1, i64))))]
