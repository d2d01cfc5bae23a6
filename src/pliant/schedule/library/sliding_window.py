"""Default rule for reductions over sliding windows with vectors along rows: `y[…, p, q] += x[…, p * 2 + a, q * 2 + b] * w[…, a, b]`.

Depthwise convolutions and pools are tiled over rows of images:

    for …, tile of R rows p (parallel):
        rows of x that the tile reads, with their padding, on the stack
        for vector of q:
            tile of y in registers = 0
            for a, b unrolled: for p unrolled: for q as a vector: tile[p, q] = fma(x[p * 2 + a, q * 2 + b], w[a, b], tile[p, q])
            y = epilogue(tile)

Images in channel blocks (NCHWc), whose lanes are channels, are tiled over neighbors q along a row:

    for …, strip of S rows p (parallel):
        rows of x that the strip reads, with their padding, on the stack
        for p in the strip: for tile of R neighbors q:
            tile of y in registers = 0
            for a, b: for q unrolled: for c as a vector: tile[q, c] = fma(x[p + a, q + b, c], w[a, b, c], tile[q, c])
            y = epilogue(tile)

Convolutions with sums too short for vectors of channels (`along_channels`) are tiled over channels by a few vectors: each vector of `x`
serves all channels of a tile.

Vectors run along the last index of the result. Loads along it are contiguous or strided, and all other loads are broadcasts. Where
registers suffice, windows are unrolled, so that rows that overlapping windows share are loaded once. The reduction runs in the program's
order, long sums in parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from ...loop.analysis.block_kind import elementwise, matmul_of
from ...loop.analysis.nest_shape import iter_named
from ...loop.analysis.nests import accesses, allocation, constant_extent, find_block, readers, writers
from ...loop.buffer import Buffer
from ...loop.stmt import Block, For, Func, Reduce, Store
from ...support.choices import worth
from ...support.errors import ScheduleError
from ...support.refusal import Refusal
from ...sym.expr import Const, Mul, Var
from ...target import Target
from ..decisions import Decide
from ..schedule import LoopHandle, Schedule
from ..tile_cost_model import Choice, Sizes, choose_tile, legal_tiles, plain_tile
from ..workloads import ConvOverRow, Gemm, SlidingWindow
from .accumulate import Sizes as Parts
from .accumulate import Summing, cuts_for, decide_parts, sum_tile
from .convolution_roles import Windows, choose_lanes, convolution_of, in_blocks, known_sums, overlap_of, taps_of, tile_sizes, windows_of
from .epilogue import join_elementwise, with_epilogue
from .parallelize import share
from .record import Promotable, Rule, tried

MOST_TAPS = 64  # most filter taps that `unroll` may unroll: more code than this does not stay in the L1 instruction cache
MOST_ROWS = 8  # most rows of the default `tile`: the cost model knows nothing of code size
TALLEST = 12  # most rows, or channels, of any `tile`
DYNAMIC_ROWS = 4  # most rows of the default for a dynamic height: each smaller number needs a body of its own for the remainder
MOST_CHANNELS = 8  # most channels of the default `tile`, for the same reason as MOST_ROWS
MOST_VECTORS = 4  # most vectors of `tile`: each is a stream through the image
SOME_COLUMNS = 64  # width of an image that the cost model assumes if it is dynamic
SOME_ROWS = 40  # height of an image that the cost model assumes if it is dynamic
SHARED_VECTORS = 64  # default of `grain`: vectors of a single row that a thread takes at a time
GRAINS = (16, 64, 256)  # choices of `grain`
MOST_COPIES = 3.0  # strips that copy each row of the operand more often than this are not the default: memory is not slower
COPIED = 4  # vectors of a row that are copied in one step of a loop
LARGEST_COPY = 2**15  # most bytes of rows that `copy_rows` or `strip` may copy to the stack: about the L1 cache


def windows_for_lanes(func: Func, block: Block, target: Target) -> Windows | Refusal:
    """Match a reduction over windows that is no matrix product; in NCHWc layout any, because pools match a reduction over columns there.

    Returns the iterator roles, or a Refusal.
    """
    if isinstance(matmul_of(block), Refusal) or in_blocks(func, block):
        return windows_of(block)
    return Refusal(f"block `{block.name}` is a product")


def schedule_windows(s: Schedule, roles: Windows, decide: Decide) -> str:
    """Tile a reduction over windows for registers, threads and vectors, with its elementwise consumers in the write-back (epilogue).

    Returns text about it; raises NotApplicable if an extent of the window is dynamic or the block shares its loops with others.
    """
    block = find_block(s.program, decide.block)
    if not isinstance(convolution_of(block), Refusal) and not in_blocks(s.program, block):
        choose_lanes(s.program, block, decide)  # records the decision `lanes`; the convolution rule has left the block to this one
    known_sums(s.program, block)
    join_elementwise(s, block)
    rule = _Rule(s, roles, decide)
    return with_epilogue(s, find_block(s.program, decide.block), rule.apply)


def promotable(func: Func, block: Block, nest: Mapping[Var, For], decide: Decide) -> Promotable | None:
    """Return the sizes that windows in NCHWc layout need not know: all but rows, columns and window sizes. None for other blocks."""
    roles = windows_of(block)
    if isinstance(roles, Refusal) or not in_blocks(func, block):
        return None
    tile = _Rule(Schedule(func), roles, decide).tile
    rows = frozenset(v for v in nest if v.name in (roles.tiled, roles.column, *roles.reduced))
    return Promotable(frozenset(nest) - rows, rows, {}, (tile.rows, tile.vectors))


class _Rule:
    """Schedules one reduction over sliding windows: the constructor decides tile and unrolling, `apply` edits the schedule."""

    sums = "in registers"

    def __init__(self, s: Schedule, roles: Windows, decide: Decide) -> None:
        self.s, self.roles, self.decide = s, roles, decide
        self.name, self.target = name, target = decide.block, decide.target
        body = find_block(s.program, name).body
        assert isinstance(body, Reduce)
        self.reduce = body
        self.lanes = max(1, target.vector_bits // body.targets[0].dtype.bits)
        self.blocked = in_blocks(s.program, find_block(s.program, name))
        self.depth = len(roles.reduced)
        self.strip = 0  # rows of an image in channel blocks that one copy of rows on the stack serves; 0 for no such copy
        self.edge = 0  # the most elements of padding at each end of a row that a strip copies
        self.copies = False  # True if rows with padding may be copied: depthwise, so no other output channel needs the copy
        self.tile = self._tile_size()
        block, loops = find_block(s.program, name), [self._loop(v).loop for v in roles.reduced]
        how = decide_parts(s.program, block, loops, decide, windows=True)
        self.summing = Summing(how, whole=self._choose_unrolled(block, loops, how))

    def _tile_size(self) -> Choice:
        """Decide the tile: rows of images by vectors along them, or channels by vectors; also set `copies`."""
        func, r = self.s.program, self.roles
        block = find_block(func, self.name)
        tiled, width = self._extent(r.tiled) if r.tiled else 1, self._extent(r.column)
        rows = SOME_ROWS if tiled is None else max(tiled, 1)
        depth, batch = (max(prod(self._extent(v) or SOME_ROWS for v in names), 1) for names in (r.reduced, r.outer))
        size = self.reduce.targets[0].dtype.bits // 8
        sizes = rows, SOME_COLUMNS if width is None else max(width, 1), depth, batch, size, size
        taps = taps_of(func, block)
        vectors = range(1, 2 if self.blocked else min(MOST_VECTORS, max(sizes[1] // self.lanes, 1)) + 1)
        if not r.rows:
            work = ConvOverRow(*sizes, taps, overlap_of(func, block, iter_named(block, r.column).var).stride)
            best = choose_tile(self.target, (work,), Sizes(range(1, min(MOST_CHANNELS, rows) + 1), vectors))
            return self._decide_tile(best, work, Sizes(range(1, min(TALLEST, rows) + 1), vectors))
        over = overlap_of(func, block, iter_named(block, r.tiled or r.column).var)
        windows = SlidingWindow(*sizes, over.reach, over.stride, not self.blocked)
        self.copies = taps == depth and tiled is not None
        heights = range(1, min(DYNAMIC_ROWS if tiled is None else MOST_ROWS, rows) + 1)
        best = choose_tile(self.target, (windows,), tile_sizes(block, Sizes(heights, (1,))))
        return self._decide_tile(best, windows, Sizes(range(1, min(MOST_ROWS if tiled is None else TALLEST, rows) + 1), vectors))

    def _decide_tile(self, best: Choice, work: Gemm, sizes: Sizes) -> Choice:
        """Decide the tile: by default `best`, the one the cost model chooses; its domain are all that fit the registers.

        With `effort="fast"` the default is the largest that leaves no remainder, unless the block is annotated with a tile.
        """
        domain = legal_tiles(self.target, work, sizes)
        domain = domain if (best.rows, best.vectors) in domain else (*domain, (best.rows, best.vectors))
        tiled, width = self._extent(self.roles.tiled) if self.roles.tiled else 1, self._extent(self.roles.column)
        annotated = "tile" in find_block(self.s.program, self.name).annotations
        plain = None if annotated else plain_tile(domain, tiled, None if width is None else -(-width // self.lanes))
        rows, vectors = self.decide("tile", domain, (best.rows, best.vectors), why=best.text, plain=plain)
        return Choice(rows, vectors, best.text)

    def _choose_unrolled(self, block: Block, loops: list[For], how: Parts) -> int:
        """Decide how many innermost reduction loops are unrolled: if windows overlap along rows, by default as many as MOST_TAPS allows."""
        taps, most = 1, 0
        for x in reversed(loops):
            taps *= constant_extent(self.s.program, x) or MOST_TAPS + 1
            if taps > MOST_TAPS:
                break
            most += 1
        whole = len(loops) - 1 - max((c.at for c in cuts_for(self.s.program, block, loops, how=how)), default=-1)
        best = most if self.roles.rows and self._rows_fit() else 0
        shared = "rows that overlapping windows share are loaded once"
        spill = "too few registers for the rows that overlapping windows share: sums run side by side, and rows are loaded again"
        why = (shared if best else spill) if self.roles.rows else "windows do not overlap along rows"
        unrolled: int = self.decide("unroll", sorted({best, *range(min(most, whole) + 1)}), best, why=why)
        return unrolled

    def _rows_fit(self) -> bool:
        """True if the registers hold a tile and what its windows share, or lanes are neighbors.

        If they do not, LLVM orders the products of an unrolled window sum by sum, and each waits for the one before.
        """
        if not self.blocked or self.roles.tiled is None:
            return True
        block = find_block(self.s.program, self.name)
        over = overlap_of(self.s.program, block, iter_named(block, self.roles.tiled).var)
        shared = (self.tile.rows - 1) * over.stride + over.reach
        return self.tile.rows + shared + 1 <= self.target.n_vector_registers

    def _loop(self, iterator: str) -> LoopHandle:
        return self.s.loop(self.name, iterator)

    def _extent(self, iterator: str) -> int | None:
        return constant_extent(self.s.program, self._loop(iterator).loop)

    def apply(self) -> str:
        """Schedule the block; return text about what was done."""
        s, r, t = self.s, self.roles, self.tile
        s.reorder(*(self._loop(v) for v in (*([r.tiled] if r.tiled else []), *r.outer, r.column, *r.reduced)))
        if self._sums_products() and self.target.has_fma:
            s.contract(self.name)
        producer = self._copied_producer()
        tiles = self._strips if self.strip else self._tiles
        copied = producer is not None and tried(partial(tiles, producer))
        if not copied:
            self._tiles(None)
        side = ", rows with their padding on the stack" if copied else ""
        return f"windows: `{self.name}` in tiles of {t.rows}x{t.vectors * self.lanes} {self.sums}{side}"

    def _tiles(self, producer: tuple[str, Buffer] | None) -> None:
        """Tile all rows; if there is a producer (its block and its buffer), each tile computes the rows that it reads on the stack.

        The producer's block is inlined into these copies then.
        """
        s, r = self.s, self.roles
        with s.attempt():
            extent = self._extent(r.tiled) if r.tiled else 1
            if r.tiled is None:
                self._nest(self.name, [], [], producer)
            elif extent is not None and extent <= self.tile.rows:
                self._nest(self.name, [], [self._loop(r.tiled)], producer)
            elif extent is None and r.outer:
                self._any_rows(self._loop(r.tiled))
            else:
                tiles, within = rows = s.split(self._loop(r.tiled), None, self.tile.rows, tail="balance")
                for rest in rows.tails:
                    *around, own = s.loops(rest, r.tiled)
                    self._nest(rest, around, [own], producer)
                self._nest(self.name, [tiles], [within], producer)
            if producer is not None:
                s.compute_inline(producer[0])

    def _strips(self, producer: tuple[str, Buffer]) -> None:
        """Tile strips of rows of images in channel blocks: each strip computes the rows that it reads, with their padding, on the stack."""
        s, r = self.s, self.roles
        assert r.tiled is not None
        with s.attempt():
            *outer, rows = (self._loop(v) for v in r.outer)
            tiled, inner = self._loop(r.tiled), [self._loop(v) for v in (r.column, *r.reduced)]
            strips, row = s.split(rows, None, self.strip)
            s.reorder(*outer, strips, row, tiled, *inner)
            self._copy(self.name, share(s, [*outer, strips]), producer[1])
            s.compute_inline(producer[0])
            extent = constant_extent(s.program, tiled.loop)
            whole = extent is not None and extent <= self.tile.rows
            tails = () if whole else s.split(tiled, None, self.tile.rows, tail="balance").tails
            for name in (self.name, *tails):
                self._along_row(name)

    def _along_row(self, name: str) -> None:
        """Reduce the tiles of one size along a row, inside of the loops that threads share."""
        s = self.s
        column, reduced = s.loop(name, self.roles.column), [s.loop(name, v) for v in self.roles.reduced]
        *_, within = s.loops(name, self.roles.tiled)
        s.reorder(column, within, *reduced)
        self._columns(name, column, 1)

    def _nest(self, name: str, tiles: list[LoopHandle], within: list[LoopHandle], producer: tuple[str, Buffer] | None) -> None:
        """Schedule the tiles of one size: parallelize them, copy the rows they read if there is a producer, and schedule their columns.

        `tiles` are the loops over tiles, `within` those inside of a tile.
        """
        s = self.s
        chain = s.loops(name)
        outer = list(chain[-len(self.roles.outer) - 1 - self.depth : -1 - self.depth])
        column, reduced = chain[-1 - self.depth], chain[len(chain) - self.depth :]
        s.reorder(*outer, *tiles, column, *within, *reduced)
        at = self._share(outer, tiles)
        if producer is not None:
            self._copy(name, at, producer[1])
        self._columns(name, column, len(within))

    def _share(self, outer: list[LoopHandle], tiles: list[LoopHandle]) -> LoopHandle | None:
        """Parallelize images and tiles of rows, or images alone; return the loop around a tile. None if there is none."""
        why = "there are more tiles than images: they keep more threads busy"
        if not outer or not tiles or self.decide("share", ("tiles", "images"), "tiles", kind="sharing", why=why) == "tiles":
            return share(self.s, [*outer, *tiles])
        share(self.s, outer)
        return tiles[-1]

    def _any_rows(self, tiled: LoopHandle) -> None:
        """Tile a dynamic number of rows; threads share the loops around, because no proof shows that tiles and these fuse into one loop."""
        s = self.s
        outer = [self._loop(v) for v in self.roles.outer]
        s.reorder(*outer, tiled)
        share(s, outer)
        for name in (self.name, *s.split(tiled, None, self.tile.rows, tail="balance").tails):
            self._along_row(name)

    def _sums_products(self) -> bool:
        r = self.reduce
        return r.combiner.name == "add" and isinstance(r.values[0], Mul) and r.targets[0].dtype.is_float

    def _copied_producer(self) -> tuple[str, Buffer] | None:
        """Decide whether each tile computes the rows it reads (padding) on the stack.

        Return the block that makes them and their buffer, or None.
        """
        producer = self._producer() if self.copies else None
        if producer is None:
            return None
        size = _bytes(producer[1])
        if self.blocked:
            self.strip = self._choose_strip(producer[1])
            return producer if self.strip else None
        why = f"the padded operand has {size >> 10} KiB: one that exceeds the L2 cache is not written to memory and read again"
        return producer if self.decide("copy_rows", (False, True), size > self.target.caches.l2, why=why) else None

    def _choose_strip(self, padded: Buffer) -> int:
        """Decide how many rows of an image in channel blocks are computed from one copy of the rows that they read.

        With 0, the whole operand is padded in memory. Strips divide the image: a smaller one at its end would need code of its own.
        """
        func, r = self.s.program, self.roles
        height = self._extent(r.outer[-1]) if r.outer and r.tiled else None
        if height is None or len(padded.shape) < 3:
            return 0
        block = find_block(func, self.name)
        over = overlap_of(func, block, iter_named(block, r.outer[-1]).var)
        assert r.tiled is not None
        self.edge = overlap_of(func, block, iter_named(block, r.tiled).var).reach - 1
        line = prod(int(e.value) for e in padded.shape[-2:] if isinstance(e, Const)) * padded.dtype.bits // 8
        reads = {n: (n - 1) * over.stride + over.reach for n in range(1, height + 1) if height % n == 0}
        fit = [n for n in reads if reads[n] * line <= LARGEST_COPY]
        best = max(fit, default=0)
        again = reads[best] / (best * over.stride) if best else 0.0
        why = f"rows computed from one copy on the stack, which copies each row of the operand {again:.2g} times; 0 pads it in memory"
        strip: int = self.decide("strip", (0, *fit), best if again <= MOST_COPIES else 0, why=why)
        return strip

    def _producer(self) -> tuple[str, Buffer] | None:
        """Return the elementwise block that makes an operand read by this block alone, and that operand; None if there is none."""
        func = self.s.program
        block = find_block(func, self.name)
        for buffer in {a.buffer: None for a in accesses(block) if not a.write}:
            by = writers(func, buffer)
            if allocation(func, buffer) is not None and len(by) == 1 and elementwise(by[0]) and readers(func, buffer) == [block]:
                return by[0].name, buffer
        return None

    def _copy(self, name: str, at: LoopHandle | None, buffer: Buffer) -> None:
        """Copy the rows of an operand that a tile reads to the stack.

        Raise ScheduleError without a loop `at`, and above LARGEST_COPY bytes.
        """
        s = self.s
        if at is None:
            raise ScheduleError(f"block `{name}` has one tile: there is no loop in which to copy its rows")
        copy = s.cache_read(name, buffer.name, at, scope="stack")
        store = copy.block.body
        assert isinstance(store, Store)
        if not worth(_bytes(store.buffer) <= LARGEST_COPY):
            raise ScheduleError(f"the rows of `{buffer.name}` that a tile reads are too long for the stack")
        *_, place, lane = s.loops(copy)
        s.vectorize(lane)
        edge = self.edge
        if edge and (constant_extent(s.program, place.loop) or 0) >= 2 * edge + COPIED:
            # Between its edges a row has no padding: vectors are copied there without a test for each.
            _, middle, _ = s.loop_partition(place, edge, None, edge)
            s.unroll(s.split(middle, None, COPIED, tail="cut")[1])

    def _columns(self, name: str, column: LoopHandle, tiled: int) -> None:
        """Split columns into vectors, with a masked vector for the remainder; a block of channels is one vector."""
        s, v = self.s, self.tile.vectors
        extent = constant_extent(s.program, column.loop)
        if extent == 1 or self.blocked:
            chain = s.loops(name)
            at = chain.index(column)
            self._tile(name, chain[at - 1] if at else None, tiled, 1)
            return
        if extent is not None and extent < self.lanes:
            self._masked(name, column, extent, tiled)
            return
        vectors, _ = columns = s.split(column, None, self.lanes, tail="cut")
        for rest in columns.tails:
            left = s.loop(rest, self.roles.column)
            self._masked(rest, left, constant_extent(s.program, left.loop), tiled)
        if len(s.loops(name)) == 2 + tiled + self.depth:  # a row is all there is
            grain = self.decide("grain", GRAINS, SHARED_VECTORS, kind="sharing", why="vectors that a thread takes at a time")
            tried(partial(s.parallel, vectors, grain=grain))
            v = 1
        if v == 1:
            self._tile(name, vectors, tiled, 1)
            return
        panels, _ = whole = s.split(vectors, None, v, tail="cut")
        for rest in whole.tails:
            chain, (left, _) = s.loops(rest), s.loops(rest, self.roles.column)
            around = chain[chain.index(left) - 1] if left is not chain[0] else None
            known = constant_extent(s.program, left.loop) is not None
            self._tile(rest, around if known else left, tiled, 2 if known else 1)
        self._tile(name, panels, tiled, 2)

    def _masked(self, name: str, column: LoopHandle, extent: int | None, tiled: int) -> None:
        """Handle fewer columns than lanes with one masked vector."""
        if extent == 1:
            self._columns(name, column, tiled)
        else:
            self._tile(name, self.s.split(column, self.lanes)[0], tiled, 1)

    def _tile(self, name: str, at: LoopHandle | None, tiled: int, vectors: int) -> None:
        """Reduce one tile in registers.

        The innermost loops of the block are `vectors` many (the last one over lanes), then `tiled` many, then those of the reduction.
        """
        s = self.s
        inner = s.loops(name)[-vectors - tiled - self.depth :]
        *others, lane = inner[:vectors]
        rows, reduced = list(inner[vectors : vectors + tiled]), inner[vectors + tiled :]
        s.reorder(*reduced, *rows, *others, lane)
        written = s.cache_write(name, at, scope="register")
        self.sums = sum_tile(s, name, at, written, reduced, [*rows, *others, lane], self.summing)


def _bytes(b: Buffer) -> int:
    return prod(int(e.value) for e in b.shape if isinstance(e, Const)) * b.dtype.bits // 8


WINDOWS = Rule("windows", "windows", windows_for_lanes, schedule_windows, promotable=promotable)
