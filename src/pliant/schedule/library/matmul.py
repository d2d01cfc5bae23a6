"""Default rule for matrix products (GEMM): c[…, i, j] += a[…, i, k] * b[…, k, j] with b contiguous along j; also reductions over columns.

    for panel of V vectors of columns (parallel):
        for tile of R rows, then smaller tiles for the rows that remain:
            tile of c in registers = 0
            for k: for i unrolled: for v unrolled: for j as a vector: tile[i, v, j] = fma(a[i, k], b[k, v, j], tile[i, v, j])
            c = epilogue(tile)

The micro-kernel is a register tile of R rows by V vectors; the cost model chooses R and V (`tile_cost_model.py`). If b is packed
(`b[j // L, k, j % L]`), vectors are whole packs, and a panel is a few sequential streams. If b is not packed and its rows conflict in few
cache sets, panels are copied first, provided that there are many rows of a (`copying`).

The sum over k runs in order for every element, long sums in parts (`accumulate.py`), whatever the tile. So a row alone gets the same bits
as the row in a batch.
"""

from __future__ import annotations

from functools import partial
from math import gcd, prod

from ...dtype import DType, f16
from ...loop.analysis.block_kind import Matmul, decodes, decodes_along_columns, matmul_of, only_converts
from ...loop.analysis.nest_shape import iter_named, plain_loops
from ...loop.analysis.nests import constant_extent, find_block, writers
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Block, For, Func, Reduce
from ...support.choices import heuristic, worth
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.expr import Const, Expr, Mul, free_vars
from ...sym.walk import walk
from ...target import Target
from ..decisions import Decide
from ..schedule import LoopHandle, Schedule
from ..tile_cost_model import Sizes, choose_tile, legal_tiles, plain_tile
from ..workloads import Gemm
from .accumulate import Summing, decide_summing, sum_tile
from .epilogue import with_epilogue
from .packing import packing, right_side
from .parallelize import fuse_into
from .record import NotApplicable, Packing, Rule, Version, for_many, required_loops, tried

# Row counts that the cost model averages over if the number of rows is dynamic: a small, a medium and a large batch
SOME_ROWS = (8, 64, 512)
SOME = 512  # columns, or length of a sum, that the cost model assumes for a dynamic size
DYNAMIC_ROWS = 8  # most rows of `tile` for a dynamic row count: each smaller row count needs a body of its own for the remainder
MOST_ROWS = 12  # most rows of `tile`: no machine has registers for more rows of two vectors
MOST_VECTORS = 5  # most vectors of `tile`: each is a stream through the right-hand side, and hardware prefetchers follow only a few
PACKS = (1, 2, 4)  # widths of a pack of the right-hand side, in vectors
FEW_PANELS = 4  # fewer panels than this do not keep the threads busy: threads share the rows instead
MANY_ROWS = 64  # from this many rows on, copying a panel is a small part of the work
IN_FLIGHT = 12  # independent sums that hide the latency of a fused multiply-add; bounds the default of `last_rows`
LARGEST_COPY = 2**20  # bytes of a panel that may be copied: about what the L2 cache holds
# (crowding, rows): a panel that exceeds its sets of the L2 cache `crowding` times is worth a copy from `rows` rows on. Measured on Zen 4:
# a product of 1024^3 then runs at 92 % of the FMA rate on one thread, in place at 86 %; for 128 rows both run at 83 %.
CROWDED = ((8.0, MANY_ROWS), (4.0, 192))
COPY_FROM = (0, 1, 32, 64, 128, 192, 512)  # choices of the row count from which on panels are copied; 0 is never


@dataclass(frozen=True, slots=True)
class TileSize:
    """The size of a register tile: rows, vectors of columns, and lanes per vector."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """The number of columns of a tile: vectors times lanes."""
        return self.vectors * self.lanes


@dataclass(frozen=True, slots=True)
class Extents:
    """The extents of a matrix product (None if dynamic), and the dtypes of its result and of its right-hand side."""

    rows: int | None
    columns: int | None
    depth: int | None
    result: DType
    wide: DType
    pack: int = 1  # vectors per pack; a tile takes whole packs

    def works(self) -> tuple[Gemm, ...]:
        """Return the workloads a tile is chosen for: this product, or a few sample sizes of a dynamic one."""
        sizes = self.result.bits // 8, max(self.wide.bits // 8, 1)
        rows = SOME_ROWS if self.rows is None else (max(self.rows, 1),)
        return tuple(Gemm(r, self.columns or SOME, self.depth or SOME, 1, *sizes) for r in rows)


def tile_size(target: Target, extents: Extents, spare: int = 0) -> tuple[TileSize, str]:
    """Return the register tile that the cost model chooses if `spare` more registers are needed, and the model's terms as text."""
    lanes = max(1, target.vector_bits // extents.result.bits)
    choice = choose_tile(target, extents.works(), _sizes(target, extents), spare)
    return TileSize(choice.rows, choice.vectors, lanes), choice.text


def tiles(target: Target, extents: Extents, spare: int = 0) -> tuple[tuple[int, int], ...]:
    """Return all register tiles of a product that leave `spare` registers free, as rows and vectors."""
    return legal_tiles(target, extents.works()[-1], _sizes(target, extents), spare)


def _sizes(target: Target, extents: Extents) -> Sizes:
    lanes = max(1, target.vector_bits // extents.result.bits)
    most = DYNAMIC_ROWS if extents.rows is None else min(MOST_ROWS, max(extents.rows, 1))
    vectors = MOST_VECTORS if extents.columns is None else min(MOST_VECTORS, max(1, -(-extents.columns // lanes)))
    return Sizes(range(1, most + 1), range(extents.pack, max(extents.pack, vectors) + 1, extents.pack))


def copying(func: Func, block: Block, decide: Decide) -> Version | None:
    """Return the version of a program that copies panels of the right-hand side if there are enough rows; None if a copy never pays.

    The rows of a panel are one row of the whole matrix apart. If that stride is a large power of two, they share few sets of the L2 cache,
    which then holds only a part of the panel. A copy also decodes quantized weights once for all rows.
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
    if not worth(0 < depth * width <= LARGEST_COPY):
        return None
    decoders = [b for b in writers(func, wide.buffer) if decodes(func, b)]
    if decoders and not all(decodes_along_columns(func, b) for b in decoders):
        return _decide_strided(func, rows, not all(only_converts(func, b) for b in decoders), decide)
    if decoders:
        return decide_copy(func, rows, MANY_ROWS, decide, "a copy decodes the weights once for all rows")
    crowding = _crowding(target, depth, width, wide.buffer.dtype.bits * columns.value // 8)
    many = next((many for crowded, many in CROWDED if crowding >= crowded), 0)
    return decide_copy(func, rows, many, decide, f"a panel is {crowding:.2g} times the capacity of its sets of the L2 cache")


def decide_copy(func: Func, rows: Expr, many: int, decide: Decide, why: str) -> Version | None:
    """Decide from how many rows on panels are copied (`many` by default, 0 for never); return that version, or None for never."""
    if isinstance(rows, Const):
        known = int(0 < many <= rows.value)
        return for_many(func, rows, 1) if decide("copy_from", (0, 1), known, why=why) else None
    value = decide("copy_from", sorted({*COPY_FROM, many}), many, why=why)
    return for_many(func, rows, value) if value else None


def _decide_strided(func: Func, rows: Expr, costly: bool, decide: Decide) -> Version | None:
    """Decide whether panels of weights are copied whose codes are not contiguous along the columns; return that version or None.

    Without a copy the product is a dot product for each element, which adds in another order (rule `rows`). So the choice holds for any
    number of rows: a row alone has the same bits as in a batch. Dot products decode the weights again for every row, which pays only if
    decoding is a conversion.
    """
    why = "dot products would decode the weights for every row" if costly else "a conversion costs about as much as a load"
    return for_many(func, rows, 1) if decide("copy_from", (0, 1), int(costly), reorders=True, why=why) else None


@heuristic
def _crowding(target: Target, rows: int, width: int, stride: int) -> float:
    """Return how many times the cache lines of some rows, `stride` bytes apart, exceed the L2 sets that they map to."""
    line, ways = target.caches.line, 8  # 8 ways are assumed: the target's facts do not have the associativity
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
    """Return the only load in the product that is indexed by the columns; None if there are several, or none."""
    body = block.body
    assert isinstance(body, Reduce)
    column = iter_named(block, roles.column).var
    loads = {e for e in walk(body.values[0]) if isinstance(e, Load) and column in free_vars(e)}
    return loads.pop() if len(loads) == 1 else None


def schedule_matmul(s: Schedule, roles: Matmul, decide: Decide) -> str:
    """Tile a matrix product for registers, threads and vectors, with its elementwise consumers in the write-back (epilogue).

    Returns text about it; raises NotApplicable if the block shares its loops with others.
    """
    name = decide.block
    block = find_block(s.program, name)
    loops = required_loops(s.program, block)
    if roles.row is not None and _widen_rows(s, block, roles):
        block = find_block(s.program, name)
        loops = required_loops(s.program, block)
    rule = TiledProduct(s, roles, {v.name: x for v, x in loops.items()}, decide, decide.copying)
    return with_epilogue(s, block, rule.apply)


def _widen_rows(s: Schedule, block: Block, roles: Matmul) -> bool:
    """Convert an f16 left-hand side to the dtype of the result once, before the product; return True if that was done.

    Inside the product each element would be converted alone, for every panel, which costs a quarter of the time. bf16 needs no such copy:
    it is the upper half of an f32, and integer units widen it while vector units multiply.
    """
    body = block.body
    assert isinstance(body, Reduce)
    column = iter_named(block, roles.column).var
    loads = {e for e in walk(body.values[0]) if isinstance(e, Load) and column not in free_vars(e)}
    narrow = loads.pop() if len(loads) == 1 else None
    if narrow is None or narrow.dtype is not f16 or not _result(block).is_float or _result(block) is f16:
        return False
    return tried(partial(s.reindex, block.name, narrow.buffer.name, dtype=str(_result(block))))


class TiledProduct:
    """One application of the matmul rule to a block; GEMV and dot products override how the tile is chosen and summed."""

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
        # All threads decode and use one panel at a time. A copy per thread would decode all weights in every thread.
        self.decoded = self.wide is not None and any(decodes(s.program, b) for b in writers(s.program, self.wide.buffer))
        self.columns = constant_extent(s.program, self.column.loop)
        self.inside: list[LoopHandle] = []  # batch loops that are inside the loop over columns
        self.tile = self.choose_tile()
        self.summing = self.choose_summing(block)

    def choose_summing(self, block: Block) -> Summing:
        """Decide how the sum of a tile runs: the lengths of partial sums, and the unrolling."""
        return decide_summing(self.s.program, block, [h.loop for h in self.reduced], self.decide)

    def choose_tile(self) -> TileSize:
        """Decide the register tile: by default the one the cost model chooses; its domain are all that fit the registers.

        With `effort="fast"` the default is the largest that leaves no remainder.
        """
        extents = self.extents(self.dtype if self.wide is None else self.wide.buffer.dtype)
        best, terms = tile_size(self.target, extents)
        domain = tiles(self.target, extents)
        plain = plain_tile(domain, extents.rows, None if extents.columns is None else -(-extents.columns // best.lanes))
        rows, vectors = self.decide("tile", domain, (best.rows, best.vectors), why=terms, plain=plain)
        return TileSize(rows, vectors, best.lanes)

    def extents(self, wide: DType, group: int = 1) -> Extents:
        """Return the sizes of the product if a step of the sum takes `group` elements, together one `wide` element."""
        depths = [constant_extent(self.s.program, h.loop) for h in self.reduced]
        depth = None if None in depths else -(-prod(d or 0 for d in depths) // group)
        rows = constant_extent(self.s.program, self.row.loop) if self.row else 1
        lanes = max(1, self.target.vector_bits // self.dtype.bits)
        return Extents(rows, self.columns, depth, self.dtype, wide, max(1, self.roles.pack // lanes))

    def apply(self) -> str:
        """Schedule the block by primitives; return the text for `explain` that says what was done.

        Raises NotApplicable if the packs of the right-hand side are not whole vectors, or the tile is not whole packs.
        """
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
        """Put batch loops around the column loop; by decision a single one inside it, by default if `cut`: panels of several sizes.

        Panels of different sizes are sibling loops. With the batch inside, threads share each of them together with the batches. It takes a
        single batch loop: for a dynamic number of panels, or several batch loops, no proof shows that they fuse into one loop, and several
        batch loops are work enough for all threads.
        """
        self.inside = []
        if len(self.batch) == 1:
            why = "panels of several sizes are sibling loops" if cut else "panels of one size"
            order = self.decide("batch", ("around", "inside"), "inside" if cut else "around", why=why)
            self.inside = self.batch if order == "inside" else []
        outer = (self.column, *self.inside) if self.inside else (*self.batch, self.column)
        self.s.reorder(*outer, *([self.row] if self.row else []), *self.reduced)

    def column_of(self, name: str) -> tuple[LoopHandle, list[LoopHandle]]:
        """Return the column loop of a block that does the remaining columns, and the batch loops inside it."""
        below = len(self.reduced) + (self.row is not None)
        column, *batch = self.s.loops(name)[-1 - len(self.inside) - below : -below]
        return column, batch

    def last_panel(self, column: LoopHandle, lanes: int) -> TileSize:
        """Return the tile for fewer columns than a panel: vectors, the last one masked; a single column is no vector.

        The rows are a decision; by default no more than hide the latency of the sums, because each row count is a body of its own, for a
        small part of the columns.
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
        """Split the columns of a block into panels and tile each; return the blocks that do the remaining columns.

        With `guard` there are none: the last panel has a predicate.
        """
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
        """Copy the columns of one panel of the right-hand side to contiguous memory, by vectors; threads share the copy if it decodes.

        Do nothing if this version does not copy, or for a remainder block.
        """
        if not self.copy or self.wide is None or name != self.name:
            return
        copy = self.s.cache_read(name, self.wide.buffer.name, panel, scope="workspace")
        self.s.vectorize(self.s.loops(copy)[-1])
        if self.decoded:
            tried(partial(self.s.parallel, self.s.loops(copy)[-2]))

    def _share(self, panel: LoopHandle, batch: list[LoopHandle], below: tuple[LoopHandle, ...], beside: bool) -> tuple[LoopHandle, bool]:
        """Make one parallel loop of batches and panels, or of batches alone if there are remaining columns beside the panels.

        Returns the loop around the rows, and True if threads share it. Without batches, the decision `share` says whether threads share
        panels or rows. This comes before tiling, because independence of iterations must be proved for one block now and for all of its
        tiles later. Panels of decoded weights that are copied are not shared.
        """
        s = self.s
        count = constant_extent(s.program, panel.loop)
        if not batch:
            if self.copy and self.decoded:
                return panel, False
            many = count is None or count >= FEW_PANELS
            why = f"{'a dynamic number of' if count is None else count} panels; fewer than {FEW_PANELS} do not keep threads busy"
            share = self.decide("share", ("panels", "rows"), "panels" if many else "rows", kind="sharing", why=why)
            return panel, worth(share == "panels") and tried(partial(s.parallel, panel))
        inside = batch[0] in below
        beside = beside and not inside
        outer = [panel, *batch] if inside else [*batch] if beside else [*batch, panel]
        joined: list[LoopHandle] = [] if len(outer) > 1 else outer
        if not joined and not tried(partial(fuse_into, s, outer, joined)):  # an extent such as n - 2 may be negative: no fusion
            return batch[-1] if inside else panel, tried(partial(s.parallel, outer[0]))
        return panel if beside else joined[0], tried(partial(s.parallel, joined[0]))

    def _rows(self, name: str, panel: LoopHandle, shared: bool, size: int) -> None:
        """Split rows into tiles and smaller tiles for the remainder: every tile is unrolled, and none has a predicate on rows.

        The loop of tiles is parallel if that is legal, unless threads have `shared` the panels.
        """
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
        """Accumulate one tile in registers; the loops inside `at` are (row,) reduced, vectors, lanes."""
        s = self.s
        *_, vector, lane = s.loops(name)
        reduced = s.loops(name)[-2 - len(self.reduced) : -2]
        unrolled = [*([row] if row else []), vector]
        s.reorder(*reduced, *unrolled, lane)
        written = s.cache_write(name, at, scope="register")
        self.sums = sum_tile(s, name, at, written, reduced, [*unrolled, lane], self.summing)


def layouts(func: Func, block: Block, target: Target) -> dict[Buffer, Packing] | None:
    """Return the layouts of a product's right-hand side: packs of one or more vectors of columns.

    None if the block has no such side; an empty dict if the side may not be packed.
    """
    side = right_side(block)
    return None if side is None else packing(func, block, side, target, PACKS)


MATMUL = Rule("matmul", "products", lambda func, block, target: matmul_of(block), schedule_matmul, version=copying, layouts=layouts)
