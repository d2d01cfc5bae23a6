"""The default rule of sums of products, c[…, i, j] += a[…, i, k] * b[…, k, j] with b contiguous along j, and of reductions of columns.

    for panel of V vectors of columns (parallel):
        for tile of R rows, then smaller tiles for the rows that remain:
            tile of c in registers = 0
            for k: for i unrolled: for v unrolled: for j as a vector: tile[i, v, j] = fma(a[i, k], b[k, v, j], tile[i, v, j])
            c = epilogue(tile)

b may be packed (`b[j // L, k, j % L]`): vectors are whole packs then, and a panel is a few streams through memory. The panels of
a plain b whose rows meet in few sets of the caches are copied first where there are many rows of a (`copy`).

The sum over k runs in order for every element, long ones in parts (`accumulate.py`), whatever the tile: a row alone equals the row in a
batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import gcd, prod

from ...dtype import DType, f16
from ...loop.analysis.nests import blocks, constant_extent, writers
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Block, For, Func, Reduce
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.expr import Const, Expr, Mul, free_vars, walk
from ...target import Target
from ..decisions import Decide
from ..plain_nest import elementwise, iter_named, plain_loops
from ..schedule import LoopHandle, Schedule
from ..tile_cost_model import Sizes, choose_tile, legal_tiles
from ..workloads import Gemm
from .accumulate import Summing, decide_summing, sum_tile
from .match import Matmul, decodes, find_block, matmul_of
from .packing import packing, right_side
from .parallelize import fuse_into
from .record import NotApplicable, Packing, Rule, Version, for_many, tried

SOME_ROWS = (8, 64, 512)  # what the model is asked about where the number of rows is not known
SOME = 512  # columns, or steps of a sum, that are not known: the same
DYNAMIC_ROWS = 8  # limit of `tile` where there is a body for each smaller number of rows
MOST_ROWS = 12  # limit of `tile`: no machine has registers for more rows of two vectors
MOST_VECTORS = 5  # limit of `tile`: streams through the right-hand side that a machine prefetches
PACKS = (1, 2, 4)  # vectors that a pack of the right-hand side may have
FEW_PANELS = 4  # fewer panels than this do not keep threads busy: rows are shared out instead
MANY_ROWS = 64  # from this many rows on, the copy of a panel is a small part of the work
IN_FLIGHT = 12  # by which `last_rows` is chosen: so many sums hide the latency of each other
LARGEST_COPY = 2**20  # limit of `copy_from`: bytes of a panel that may be copied
# A panel of so many times what fits into its sets of the second cache is worth a copy from so many rows on (measured on Zen 4: a product
# of 1024^3 then runs at 92 % of the FMA rate on one thread, in place at 86 %; for 128 rows both at 83 %).
CROWDED = ((8.0, MANY_ROWS), (4.0, 192))
COPY_FROM = (0, 1, 32, 64, 128, 192, 512)  # rows from which on panels may be copied; 0 is never


@dataclass(frozen=True, slots=True)
class TileSize:
    """Rows, vectors of columns, and lanes of the register tile."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """The columns of a panel."""
        return self.vectors * self.lanes


@dataclass(frozen=True, slots=True)
class Extents:
    """The sizes of a product, None where they are not known, and the dtypes of its result and of its right-hand side."""

    rows: int | None
    columns: int | None
    depth: int | None
    result: DType
    wide: DType
    pack: int = 1  # vectors of a pack: those of a tile are whole packs

    def works(self) -> tuple[Gemm, ...]:
        """What a tile is chosen for: this product, or a few such as it may be."""
        sizes = self.result.bits // 8, max(self.wide.bits // 8, 1)
        rows = SOME_ROWS if self.rows is None else (max(self.rows, 1),)
        return tuple(Gemm(r, self.columns or SOME, self.depth or SOME, 1, *sizes) for r in rows)


def tile_size(target: Target, extents: Extents, spare: int = 0) -> tuple[TileSize, str]:
    """The register tile that the model takes where `spare` registers are needed besides, and its terms in words."""
    lanes = max(1, target.vector_bits // extents.result.bits)
    found = choose_tile(target, extents.works(), _sizes(target, extents), spare)
    return TileSize(found.rows, found.vectors, lanes), found.text


def tiles(target: Target, extents: Extents, spare: int = 0) -> tuple[tuple[int, int], ...]:
    """Rows and vectors of the register tiles that a product may have."""
    return legal_tiles(target, extents.works()[-1], _sizes(target, extents), spare)


def _sizes(target: Target, extents: Extents) -> Sizes:
    lanes = max(1, target.vector_bits // extents.result.bits)
    most = DYNAMIC_ROWS if extents.rows is None else min(MOST_ROWS, max(extents.rows, 1))
    vectors = MOST_VECTORS if extents.columns is None else min(MOST_VECTORS, max(1, -(-extents.columns // lanes)))
    return Sizes(range(1, most + 1), range(extents.pack, max(extents.pack, vectors) + 1, extents.pack))


def copying(func: Func, block: Block, decide: Decide) -> Version | None:
    """The program that copies panels of a product, for as many rows as make that worth it; None where they never do.

    Rows of a panel lie a row of the whole right-hand side apart. If that is a large power of two, they share few sets of the second cache,
    which then holds a part of the panel only. What is decoded is so once for all rows.
    """
    roles, target = matmul_of(block), decide.target
    loops = plain_loops(func, block)
    if isinstance(roles, Refusal) or isinstance(loops, Refusal) or roles.row is None or roles.pack or roles.batch:
        return None
    wide = wide_load(block, roles)
    extent = {v.name: x.extent for v, x in loops.items()}
    columns = extent[roles.column]
    depth = prod(e.value if isinstance(e, Const) else 0 for e in (extent[name] for name in roles.reduced))
    if wide is None or not isinstance(columns, Const) or not depth:
        return None
    rows = extent[roles.row]
    sizes = Extents(rows.value if isinstance(rows, Const) else None, columns.value, depth, _result(block), wide.buffer.dtype)
    tile, _ = tile_size(target, sizes)
    width = wide.buffer.dtype.bits * tile.columns // 8
    if not 0 < depth * width <= LARGEST_COPY:
        return None
    if any(decodes(func, b) for b in writers(func, wide.buffer)):
        return decide_copy(func, rows, MANY_ROWS, decide, "what is decoded is so once for all rows")
    found = _crowding(target, depth, width, wide.buffer.dtype.bits * columns.value // 8)
    many = next((many for crowded, many in CROWDED if found >= crowded), 0)
    return decide_copy(func, rows, many, decide, f"a panel is {found:.2g} times what fits into its sets of the second cache")


def decide_copy(func: Func, rows: Expr, many: int, decide: Decide, why: str) -> Version | None:
    """The program that copies panels from so many rows on; 0 stands for never."""
    if isinstance(rows, Const):
        known = int(0 < many <= rows.value)
        return for_many(func, rows, 1) if decide("copy_from", (0, 1), known, why=why) else None
    value = decide("copy_from", sorted({*COPY_FROM, many}), many, why=why)
    return for_many(func, rows, value) if value else None


def _crowding(target: Target, rows: int, width: int, stride: int) -> float:
    """How many times the lines of some rows, `stride` bytes apart, are what fits where they may lie in the second cache."""
    line, ways = target.caches.line, 8
    sets = target.caches.l2 // (line * ways)
    if not sets:
        return 0.0
    places = sets * line // gcd(stride, sets * line)
    per_row = -(-width // line)
    return rows * per_row / (min(places * per_row, sets) * ways)


def _result(block: Block) -> DType:
    assert isinstance(block.body, Reduce)
    return block.body.targets[0].dtype


def wide_load(block: Block, roles: Matmul) -> Load | None:
    """The one load along the columns, if the factor is that load alone (or a cast of it)."""
    body = block.body
    assert isinstance(body, Reduce)
    column = iter_named(block, roles.column).var
    found = {e for e in walk(body.values[0]) if isinstance(e, Load) and column in free_vars(e)}
    return found.pop() if len(found) == 1 else None


def schedule_matmul(s: Schedule, roles: Matmul, decide: Decide) -> str:
    """Tile a sum of products for registers, threads and vectors, with its elementwise consumers in the write-back."""
    name = decide.block
    block = find_block(s.program, name)
    loops = plain_loops(s.program, block)
    if isinstance(loops, Refusal):
        raise NotApplicable(loops.reason)
    if roles.row is not None and _widen_rows(s, block, roles):
        block = find_block(s.program, name)
        loops = plain_loops(s.program, block)
        assert not isinstance(loops, Refusal)
    rule = TiledProduct(s, roles, {v.name: x for v, x in loops.items()}, decide, decide.copying)
    return with_epilogue(s, block, rule.apply)


def _widen_rows(s: Schedule, block: Block, roles: Matmul) -> bool:
    """Widen f16 on the left-hand side once, before the product: in a product, each element would be converted alone, for every panel.

    (That costs a quarter of the time. A bf16 is the half of an f32, which integer units make while vector units multiply.)
    """
    body = block.body
    assert isinstance(body, Reduce)
    column = iter_named(block, roles.column).var
    found = {e for e in walk(body.values[0]) if isinstance(e, Load) and column not in free_vars(e)}
    narrow = found.pop() if len(found) == 1 else None
    if narrow is None or narrow.dtype is not f16 or not _result(block).is_float or _result(block) is f16:
        return False
    return tried(partial(s.reindex, block.name, narrow.buffer.name, dtype=str(_result(block))))


def with_epilogue(s: Schedule, block: Block, apply: Callable[[], str]) -> str:
    """Apply a rule to a product, then put the elementwise blocks that follow it into its write-back, as far as they can be there."""
    order = blocks(s.program.body)
    later = [b.name for b in order[order.index(block) + 1 :] if elementwise(b) is not None]
    text = apply()
    folded = [e for e in later if tried(partial(s.reverse_compute_inline, e))]
    return text + (f", with {', '.join(f'`{e}`' for e in folded)} in its write-back" if folded else "")


class TiledProduct:
    """One application of the rule."""

    sums = "in registers"

    def __init__(self, s: Schedule, roles: Matmul, loops: dict[str, For], decide: Decide, copy: bool) -> None:
        self.s, self.roles, self.decide, self.copy = s, roles, decide, copy
        self.name, self.target = decide.block, decide.target
        name = self.name
        handles = {h.loop: h for h in s.loops(name)}
        self.batch = [handles[loops[v]] for v in roles.batch]
        self.row = handles[loops[roles.row]] if roles.row else None
        self.column = handles[loops[roles.column]]
        self.reduced = [handles[loops[v]] for v in roles.reduced]
        block = find_block(s.program, name)
        self.dtype = _result(block)
        self.wide = wide_load(block, roles)
        # One panel of decoded weights at a time, which all threads make and use: copies for each would be all of them.
        self.decoded = self.wide is not None and any(decodes(s.program, b) for b in writers(s.program, self.wide.buffer))
        self.columns = constant_extent(s.program, self.column.loop)
        self.inside: list[LoopHandle] = []  # batches that are loops inside of those over columns
        self.tile = self.choose_tile()
        self.summing = self.choose_summing(block)

    def choose_summing(self, block: Block) -> Summing:
        """How a tile is summed."""
        return decide_summing(self.s.program, block, [h.loop for h in self.reduced], self.decide)

    def choose_tile(self) -> TileSize:
        """The register tile: what the cost model takes, or another one that fits the registers."""
        extents = self.extents(self.dtype if self.wide is None else self.wide.buffer.dtype)
        best, terms = tile_size(self.target, extents)
        rows, vectors = self.decide("tile", tiles(self.target, extents), (best.rows, best.vectors), why=terms)
        return TileSize(rows, vectors, best.lanes)

    def extents(self, wide: DType, group: int = 1) -> Extents:
        """The sizes of the product where a step of the sum takes `group` elements, together a `wide`."""
        depths = [constant_extent(self.s.program, h.loop) for h in self.reduced]
        depth = None if None in depths else -(-prod(d or 0 for d in depths) // group)
        rows = constant_extent(self.s.program, self.row.loop) if self.row else 1
        lanes = max(1, self.target.vector_bits // self.dtype.bits)
        return Extents(rows, self.columns, depth, self.dtype, wide, max(1, self.roles.pack // lanes))

    def apply(self) -> str:
        """Schedule the block; what was done, in words."""
        s, t = self.s, self.tile
        if self.roles.pack and (self.roles.pack % t.lanes or t.columns % self.roles.pack):
            raise NotApplicable(f"block `{self.name}` reads packs of {self.roles.pack} columns, vectors have {t.lanes}")
        cut = self.columns is not None and self.columns >= t.columns and self.columns % t.columns != 0
        whole = cut and self.decide("column_tail", ("cut", "guard"), "cut", why="only the last panel has a mask") == "guard"
        self.order_loops(cut and not whole)
        if self.dtype.is_float and self.target.has_fma and not self._no_product():
            s.contract(self.name)
        if whole:
            self.panels(self.name, self.column, t, self.batch, guard=True)
        elif self.columns is not None and self.columns < t.columns:
            self.panels(self.name, self.column, TileSize(t.rows, -(-self.columns // t.lanes), t.lanes), self.batch, guard=True)
        else:
            for name in self.panels(self.name, self.column, t, self.batch):
                column, batch = self.column_of(name)
                self.panels(name, column, self.last_panel(column, t.lanes), batch, guard=True)
        side = "packed" if self.roles.pack else "copied by panels" if self.copy else "in place"
        return f"matmul: `{self.name}` in tiles of {t.rows if self.row else 1}x{t.columns} {self.sums}, right-hand side {side}"

    def order_loops(self, cut: bool) -> None:
        """Batches around columns, or inside of them where these are cut into panels of several sizes, which are loops beside each other.

        Then all of them are shared out with the batches. (For panels of unknown number, or several batches, no proof is found that
        they can be one loop; several are work for all.)
        """
        self.inside = []
        if len(self.batch) == 1:
            why = "panels of several sizes are loops beside each other" if cut else "panels of one size"
            order = self.decide("batch", ("around", "inside"), "inside" if cut else "around", why=why)
            self.inside = self.batch if order == "inside" else []
        outer = (self.column, *self.inside) if self.inside else (*self.batch, self.column)
        self.s.reorder(*outer, *([self.row] if self.row else []), *self.reduced)

    def column_of(self, name: str) -> tuple[LoopHandle, list[LoopHandle]]:
        """The loop over the columns of a block that does the rest of them, and the batches inside of it."""
        below = len(self.reduced) + (self.row is not None)
        column, *batch = self.s.loops(name)[-1 - len(self.inside) - below : -below]
        return column, batch

    def last_panel(self, column: LoopHandle, lanes: int) -> TileSize:
        """The tile for columns that are fewer than a panel: vectors, the last of them in part; one column alone is no vector.

        No more rows than hide the latency of sums: each number of rows is a body of its own, for a small part of the columns.
        """
        left = constant_extent(self.s.program, column.loop)
        vectors = 1 if left is None else -(-left // lanes)
        best = min(self.tile.rows, -(-IN_FLIGHT // vectors))
        why = f"{IN_FLIGHT} sums hide the latency of each other"
        rows = self.decide("last_rows", range(1, self.tile.rows + 1), best, why=why)
        return TileSize(rows, vectors, 1 if left == 1 else lanes)

    def _no_product(self) -> bool:
        body = find_block(self.s.program, self.name).body
        return not isinstance(body, Reduce) or body.combiner.name != "add" or not isinstance(body.values[0], Mul)

    def panels(self, name: str, column: LoopHandle, tile: TileSize, batch: list[LoopHandle], guard: bool = False) -> tuple[str, ...]:
        """Split the columns of a block into panels and tile each; the blocks that do the columns behind the last whole panel."""
        s = self.s
        chain = s.loops(name)
        below = chain[chain.index(column) + 1 :]
        panel, vector, lane = panels = s.split(column, None, tile.vectors, tile.lanes, tail="guard" if guard else "cut")
        s.reorder(panel, *below, vector, lane)
        panel, shared = self._share(panel, batch, below, bool(panels.tails))
        self.copy_panel(name, panel)
        self._rows(name, panel, shared, tile.rows)
        tails: tuple[str, ...] = panels.tails
        return tails

    def copy_panel(self, name: str, panel: LoopHandle) -> None:
        """Copy what a panel reads of the right-hand side, where that is asked for."""
        if not self.copy or self.wide is None or name != self.name:
            return
        made = self.s.cache_read(name, self.wide.buffer.name, panel, scope="workspace")
        self.s.vectorize(self.s.loops(made)[-1])
        if self.decoded:
            tried(partial(self.s.parallel, self.s.loops(made)[-2]))

    def _share(self, panel: LoopHandle, batch: list[LoopHandle], below: tuple[LoopHandle, ...], beside: bool) -> tuple[LoopHandle, bool]:
        """Make the batches and the panels one parallel loop, or the batches alone where there are columns beside the panels in them.

        Early, because the proof that iterations are independent is about one block now and about all its tiles later.
        """
        s = self.s
        count = constant_extent(s.program, panel.loop)
        if not batch:
            if self.copy and self.decoded:
                return panel, False
            many = count is None or count >= FEW_PANELS
            why = f"{'so many' if count is None else count} panels; fewer than {FEW_PANELS} do not keep threads busy"
            share = self.decide("share", ("panels", "rows"), "panels" if many else "rows", why=why)
            return panel, share == "panels" and tried(partial(s.parallel, panel))
        inside = batch[0] in below
        beside = beside and not inside
        outer = [panel, *batch] if inside else [*batch] if beside else [*batch, panel]
        joined: list[LoopHandle] = [] if len(outer) > 1 else outer
        if not joined and not tried(partial(fuse_into, s, outer, joined)):  # a dim less 2, as windows leave it, may be negative
            return batch[-1] if inside else panel, tried(partial(s.parallel, outer[0]))
        return panel if beside else joined[0], tried(partial(s.parallel, joined[0]))

    def _rows(self, name: str, panel: LoopHandle, shared: bool, size: int) -> None:
        """Tiles of rows, and smaller ones for those that remain: every tile is unrolled, and none has a predicate for rows."""
        s = self.s
        if self.row is None:
            self.tile_at(name, panel, None)
            return
        chain = s.loops(name)
        row = chain[chain.index(panel) + 1]
        rows = constant_extent(s.program, row.loop)
        if rows is not None and rows <= size:
            self.tile_at(name, panel, row)
            return
        tiles, within = rows = s.split(row, None, size, tail="balance")
        if not shared:
            tried(partial(s.parallel, tiles))
        for tail in rows.tails:
            chain = s.loops(tail)
            *_, own = s.loops(tail, self.roles.row)
            self.tile_at(tail, chain[chain.index(own) - 1], own)
        self.tile_at(name, tiles, within)

    def tile_at(self, name: str, at: LoopHandle, row: LoopHandle | None) -> None:
        """Accumulate one tile in registers; the loops inside of `at` are (row,) reduced, vectors, lanes."""
        s = self.s
        *_, vector, lane = s.loops(name)
        reduced = s.loops(name)[-2 - len(self.reduced) : -2]
        unrolled = [*([row] if row else []), vector]
        s.reorder(*reduced, *unrolled, lane)
        written = s.cache_write(name, at, scope="register")
        self.sums = sum_tile(s, name, at, written, reduced, [*unrolled, lane], self.summing)


def layouts(func: Func, block: Block, target: Target) -> dict[Buffer, Packing] | None:
    """The right-hand side in packs of a vector of columns, or of several."""
    side = right_side(block)
    return None if side is None else packing(func, block, side, target, PACKS)


MATMUL = Rule("matmul", "products", lambda func, block, target: matmul_of(block), schedule_matmul, version=copying, layouts=layouts)
