"""Default rule for direct convolutions with channels as vector lanes, without im2col; also products whose columns are not the last index.

    y[n, j, p, q] += x[n, c, p * 2 + a, q * 2 + b] * w[j, c, a, b]

    for panel of V vectors of channels j, n, row p (parallel):
        for tile of R neighboring q, then a smaller tile:
            tile of y in registers = 0
            for c, a, b: for q unrolled: for v unrolled: for j as a vector: tile[q, v, j] = fma(x[…], w[c, a, b, v, j], tile[q, v, j])
            y = epilogue(tile)

It takes NCHW images, whose elements it broadcasts and whose results it stores strided, and NCHWc images, whose vectors are contiguous.
Weights are packed, `w[j // L, c, a, b, j % L]`: before the program runs if they are known (`layouts.py`), else at each call, which costs
little because every output position reuses them.

The sum runs in the order of the program's reduction loops for every element, long ones in parts (`accumulate.py`), whatever the tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, prod

from ...loop.analysis.block_kind import along, elementwise, matmul_of, packed, sums_rows
from ...loop.analysis.nest_shape import iter_named, plain_loops, untouched
from ...loop.analysis.nests import accesses, allocation, base_facts, constant_extent, find_block, plain_iters, readers
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Block, For, Func, Reduce
from ...support.refusal import Refusal
from ...sym.bounds import multiple
from ...sym.expr import Const, Var
from ...target import Target
from ..decisions import Decide
from ..schedule import BlockHandle, LoopHandle, Schedule
from ..tile_cost_model import Choice, Sizes, choose_tile, legal_tiles, plain_tile
from ..workloads import PAGE, WAYS, ConvOverChannels
from .accumulate import cuts_for, decide_summing, sum_tile
from .convolution_roles import (
    Convolution,
    along_channels,
    block_registers,
    blocked_convolution_of,
    choose_lanes,
    convolution_of,
    in_blocks,
    known_sums,
    may_read_packs,
    over_image,
    taps_of,
    tile_sizes,
)
from .dot_products import dot_product_of
from .epilogue import join_elementwise, with_epilogue
from .packing import packing, packs, right_side
from .parallelize import share
from .record import NotApplicable, NotChosen, Packing, Promotable, Rule

SOME_WIDTHS = (20, 40, 80)  # widths of an image that the cost model averages over if the width is dynamic
SOME_ROWS = 40  # height of an image that the cost model assumes if it is dynamic
SOME_CHANNELS = 128  # number of channels that the cost model assumes if it is dynamic
MOST_ROWS = 28  # most rows of `tile`: with one vector it needs 30 registers, and no machine has more than 32
# Most rows of the default `tile`, and of any for a dynamic width, where each smaller number needs a body of its own for the remainder.
# Eight rows of one vector hide the latency of two FMA units. The write-back of more is unrolled into so many activations that they spill.
DEFAULT_ROWS = 8
SQUARES = (4, 8, 16)  # rows of a tile whose registers can be transposed: squares that fit into vectors
MOST_VECTORS = 4  # most vectors of `tile`: each is a stream through the weights
LONG = 1024  # a sum of at least this many terms keeps its constant length, so that its parts have one size; shorter sums may share a kernel


def over_channels(func: Func, block: Block, target: Target) -> Convolution | Refusal:
    """Match a convolution whose weights can be read in vectors of channels; return its iterator roles, or why the block is none."""
    roles = convolution_of(block)
    if isinstance(roles, Refusal):
        return roles
    if sums_rows(block) or not (isinstance(matmul_of(block), Refusal) or over_image(block, roles)):
        return Refusal(f"block `{block.name}` is a product of matrices")
    if in_blocks(func, block) or not isinstance(dot_product_of(func, block, target), Refusal):
        return Refusal(f"block `{block.name}` is in NCHWc layout, or a dot-product instruction does it")
    if not may_read_packs(block, roles, target):
        return Refusal(f"`{roles.weight.buffer.name}` is neither indexed by iterators of block `{block.name}` nor packed by vectors")
    return roles


def schedule_convolution(s: Schedule, roles: Convolution, decide: Decide) -> str:
    """Tile a convolution for registers, threads and vectors, with elementwise consumers in the write-back (epilogue); return text about it.

    Raises NotChosen if the decision `lanes` prefers neighbors in a row, and NotApplicable if the loops do not fit the rule.
    """
    name = decide.block
    block = find_block(s.program, name)
    if not roles.lane and choose_lanes(s.program, block, decide) == "row":
        raise NotChosen
    known_sums(s.program, block, any_size=roles.lane is not None)
    join_elementwise(s, block)
    rule = _Rule(s, roles, decide)
    text = with_epilogue(s, find_block(s.program, name), rule.apply)
    if roles.lane:
        _share_copies(s, name)
    return text


def promotable(func: Func, block: Block, nest: Mapping[Var, For], decide: Decide) -> Promotable | None:
    """Return the sizes that a convolution in NCHWc layout need not know as constants; None for any other block.

    These are the number of output channel blocks, if the vectors of its tile divide it, and the number of input channel blocks, if sums are
    short. Constant extents determine in which parts a sum is added. So the answer fixes the parts, and results keep their bits.
    """
    roles = blocked_convolution_of(func, block, decide.target)
    if isinstance(roles, Refusal):
        return None
    loops = {v.name: x for v, x in nest.items()}
    rule = _Rule(Schedule(func), roles, decide)
    tile = rule.tile
    long = prod(_size(loops[v]) for v in roles.reduced) >= LONG
    fixed = {roles.row, roles.lane, *(roles.reduced if long else ())}
    rows = frozenset(v for v in nest if v.name in fixed)
    column = next((v for v in nest if v.name == roles.column), None)
    whole = column is not None and _size(nest[column]) % tile.vectors == 0
    free = frozenset(v for v in nest if v.name not in fixed and (v is not column or whole))
    cuts = cuts_for(func, block, [loops[v] for v in roles.reduced], how=rule.summing.how)
    parts = tuple((c.at, c.size) for c in cuts)
    return Promotable(free, rows, {column: tile.vectors} if whole and column is not None else {}, (tile.rows, tile.vectors), parts)


def layouts(func: Func, block: Block, target: Target) -> dict[Buffer, Packing] | None:
    """Return the layout of a convolution's weights: packs of one vector of channels.

    None if the block is not for this rule; an empty dict if it is, but gains nothing from packs.
    """
    roles = convolution_of(block)
    if isinstance(roles, Refusal) or right_side(block) is not None or not isinstance(dot_product_of(func, block, target), Refusal):
        return None
    if plain_iters(roles.weight.indices, block) is None or not along_channels(func, block, target):
        return {}
    return packing(func, block, (roles.weight, iter_named(block, roles.column).var), target)


def _size(loop: For) -> int:
    """Return a constant extent, or 0 if it is not constant."""
    return int(loop.stop.value) if isinstance(loop.stop, Const) else 0


def _share_copies(s: Schedule, name: str) -> None:
    """Parallelize the outer loops, and vectorize the last, of each unscheduled elementwise block with three or more loops.

    In a kernel of a convolution in NCHWc layout these are the copies that pad its operands.
    """
    for b in untouched(s.program):
        if elementwise(b) is None or isinstance(loops := plain_loops(s.program, b), Refusal) or len(loops) < 3:
            continue
        handles = s.loops(b.name)
        share(s, list(handles[: len(handles) - 2]), inner=True)
        s.vectorize(handles[-1])


class _Rule:
    """Schedules one convolution: the constructor decides tile and parts of the sum, `apply` edits the schedule."""

    sums = "in registers"

    def __init__(self, s: Schedule, roles: Convolution, decide: Decide) -> None:
        self.s, self.roles, self.decide = s, roles, decide
        self.name, self.target = name, target = decide.block, decide.target
        block = find_block(s.program, name)
        self.dtype = _target(block).dtype
        self.inside = allocation(s.program, _target(block).buffer) is not None  # a temporary, whose layout may change
        self.result = [v.name for v in plain_iters(_target(block).indices, block) or ()]
        lane = self._extent(roles.lane) if roles.lane else None
        self.lanes = lane or max(1, target.vector_bits // self.dtype.bits)
        columns = self._extent(roles.column) if roles.column else 1
        if columns == 0 or (columns is None and not lane):
            raise NotApplicable(f"the number of columns of block `{name}` is not a constant")
        self.columns = None if columns is None else columns * (lane or 1)
        self.rows = self._extent(roles.row)
        self.transposes = self._stores_rows()
        self.tile = self._tile_size()
        self.summing = decide_summing(s.program, block, [s.loop(name, v).loop for v in roles.reduced], decide)

    def _tile_size(self) -> Choice:
        """Decide the register tile: by default the one the cost model chooses; its domain are all that fit the registers.

        With `effort="fast"` the default is the largest that leaves no remainder, unless the block is annotated with a tile.
        """
        r = self.roles
        most, few = (min(max(self.rows, 1), n) if self.rows is not None else DEFAULT_ROWS for n in (MOST_ROWS, DEFAULT_ROWS))
        depth, batch = (prod(self._extent(v) or some for v in names) for names, some in ((r.reduced, SOME_CHANNELS), (r.outer, SOME_ROWS)))
        size, full = self.dtype.bits // 8, self.target.vector_bits // self.dtype.bits
        registers = block_registers(self.lanes, full)
        columns = SOME_CHANNELS if self.columns is None else -(-self.columns // self.lanes) * registers * full
        block = find_block(self.s.program, self.name)
        widths = SOME_WIDTHS if self.rows is None else (max(self.rows, 1),)
        works = tuple(ConvOverChannels(w, columns, depth, max(batch, 1), size, size, taps_of(self.s.program, block)) for w in widths)
        heights = tuple(n for n in range(1, few + 1) if not self.transposes or n in SQUARES or few < min(SQUARES))
        usual = tile_sizes(block, Sizes(*self._apart(heights, self._vectors_of_a_panel())))
        in_registers = tuple(v * registers for v in usual.vectors)
        best = choose_tile(self.target, works, Sizes(usual.rows, in_registers))
        default = best.rows, best.vectors // registers
        legal = legal_tiles(self.target, works[-1], Sizes(range(1, most + 1), tuple(v * registers for v in self._vectors_of_a_panel())))
        domain = [(rows, vectors // registers) for rows, vectors in legal]
        whole = None if self.columns is None else -(-self.columns // self.lanes)
        plain = default if "tile" in block.annotations else plain_tile(domain, self.rows, whole)
        rows, vectors = self.decide("tile", domain if default in domain else [*domain, default], default, why=best.text, plain=plain)
        return Choice(rows, vectors, best.text)

    def _apart(self, heights: Sequence[int], vectors: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """Return the heights and vectors of tiles whose stores to planes of an image do not evict each other's cache lines.

        A tile stores a piece of a line into the plane of each of its channels. Planes of whole pages lie in one set of the L1 cache. If a
        tile has more channels than the set has lines, each line is evicted before the next tile completes it. So only small numbers of
        vectors are left, and of the heights the largest; all sizes if none or all are small enough, or the write-back does not transpose
        tiles.
        """
        if not self.transposes:
            return heights, vectors
        shape = _target(find_block(self.s.program, self.name)).buffer.shape[self.result.index(self.roles.column) + 1 :]
        plane = prod(int(e.value) if isinstance(e, Const) else 0 for e in shape) * self.dtype.bits // 8
        if not plane:
            return heights, vectors
        lines = WAYS * PAGE // gcd(plane, PAGE)
        few = tuple(v for v in vectors if v * self.lanes <= lines)
        return ((max(heights),), few) if few and few != tuple(vectors) else (heights, vectors)

    def _vectors_of_a_panel(self) -> tuple[int, ...]:
        """Return the possible vector counts of a panel; for a dynamic number of channel blocks, those that certainly divide it."""
        some = range(1, MOST_VECTORS + 1)
        if self.columns is not None:
            return tuple(v for v in some if v == 1 or v * self.lanes <= self.columns)
        certain = multiple(self.s.loop(self.name, self.roles.column).loop.extent, base_facts(self.s.program))
        return tuple(v for v in some if certain % v == 0)

    def _extent(self, iterator: str) -> int | None:
        return constant_extent(self.s.program, self.s.loop(self.name, iterator).loop)

    def apply(self) -> str:
        """Schedule the block; return text about what was done."""
        s, r = self.s, self.roles
        side = "before" if r.lane else self._pack()
        if self.inside and not r.lane:
            self._columns_last(s.block(self.name))
        s.reorder(*(s.loop(self.name, v) for v in (r.column, r.lane, *r.outer, r.row, *r.reduced) if v))
        if self.dtype.is_float and self.target.has_fma:
            s.contract(self.name)
        if r.lane:
            lane = s.loop(self.name, r.lane)
            self._vectors(s.loop(self.name, r.column), lane) if r.column else self._panel(self.name, None, lane)
            return self._said(side)
        column = s.loop(self.name, r.column)
        assert self.columns is not None
        if self.columns < self.lanes:
            self._few(self.name, column, self.columns)
        else:
            vectors, lane = columns = s.split(column, None, self.lanes, tail="cut")
            for rest in columns.tails:
                self._few(rest, s.loop(rest, r.column), self.columns % self.lanes)
            self._vectors(vectors, lane)
        return self._said(side)

    def _said(self, side: str) -> str:
        t = self.tile
        return f"convolution: `{self.name}` in tiles of {t.rows}x{t.vectors * self.lanes} {self.sums}, weights packed {side}"

    def _pack(self) -> str:
        """Pack the weights at run time unless they are packed already; return when they are packed, as text: "before", or "first"."""
        weight = self.roles.weight
        block = find_block(self.s.program, self.name)
        column = iter_named(block, self.roles.column).var
        if packed(weight, column) is not None or along(weight, column):
            return "before"
        copy = self.s.cache_read(self.name, weight.buffer.name, None, scope="workspace")
        self.s.transform_layout(f"{weight.buffer.name}_copy", packs(block, weight, column, self.lanes), block=copy)
        return "first"

    def _few(self, name: str, column: LoopHandle, columns: int) -> None:
        """Handle fewer columns than lanes with one masked vector."""
        if columns == 1:
            self._panel(name, None, column)
        else:
            self._panel(name, *self.s.split(column, self.lanes))

    def _vectors(self, vectors: LoopHandle, lane: LoopHandle) -> None:
        """Split vectors into panels of the tile's width, and a narrower panel for the remainder."""
        s, r = self.s, self.roles
        panel, vector = panels = s.split(vectors, None, self.tile.vectors, tail="cut")
        for rest in panels.tails:
            over, within = (s.loop(rest, r.column), s.loop(rest, r.lane)) if r.lane else s.loops(rest, r.column)
            self._panel(rest, None, within, over)
        self._panel(self.name, panel, lane, vector)

    def _panel(self, name: str, panel: LoopHandle | None, lane: LoopHandle, vector: LoopHandle | None = None) -> None:
        """Schedule one panel: threads share it with the rows of images, and each row is cut into tiles."""
        s, r = self.s, self.roles
        outer, reduced = ([s.loop(name, v) for v in some] for some in (r.outer, r.reduced))
        row = s.loop(name, r.row)
        inner = [*([vector] if vector else []), lane]
        shared = [*outer, panel] if panel and self._rows_first() else [*outer[:-1], *([panel] if panel else []), *outer[-1:]]
        s.reorder(*shared, row, *reduced, *inner)
        at = share(s, shared, inner=True)
        if self.rows is not None and self.rows <= self.tile.rows:
            self._tile(name, at, row, len(inner))
            return
        tiles, within = rows = s.split(row, None, self.tile.rows, tail="balance")
        for tail in rows.tails:
            *_, own = s.loops(tail, r.row)
            chain = s.loops(tail)
            around = chain[chain.index(own) - 1] if own is not chain[0] else None
            self._tile(tail, around, own, len(inner))
        self._tile(name, tiles, within, len(inner))

    def _rows_first(self) -> bool:
        """Decide the loop order: True if all panels of an image row run before the next row, False if all rows of a panel run first.

        It is False without a decision if there is no outer loop or the number of columns is dynamic.
        """
        if not self.roles.outer or self.columns is None:
            return False
        return self.decide("order", ("panels", "rows"), "panels", why="the weights of a panel stay in the cache for all rows") == "rows"

    def _tile(self, name: str, at: LoopHandle | None, row: LoopHandle, depth: int) -> None:
        """Accumulate one tile in registers; the innermost `depth` loops are (vectors and) lanes."""
        s = self.s
        reduced = [s.loop(name, v) for v in self.roles.reduced]
        *vectors, lane = s.loops(name)[-depth:]
        s.reorder(*reduced, row, *vectors, lane)
        written = s.cache_write(name, at, scope="register")
        if not self.inside and not self.roles.lane:
            self._columns_last(written)
        self._transpose(written, depth)
        self.sums = sum_tile(s, name, at, written, reduced, [row, *vectors, lane], self.summing)

    def _stores_rows(self) -> bool:
        """True if float results are finally stored along rows of the image, where vectors of channels would be stored element by element.

        That is so if the result is a parameter, or if its one reader is elementwise with the row innermost; never in NCHWc layout.
        """
        func = self.s.program
        result = _target(find_block(func, self.name)).buffer
        if self.roles.lane or not self.dtype.is_float:
            return False
        if not self.inside:
            return True
        users = readers(func, result)
        store = elementwise(users[0]) if len(users) == 1 else None
        iters = None if store is None else plain_iters(store.indices, users[0])
        place = self.result.index(self.roles.row)
        reads = [a.indices[place] for a in accesses(users[0]) if a.buffer is result and not a.write] if iters else []
        return iters is not None and reads == [iters[-1]]

    def _transpose(self, written: BlockHandle, depth: int) -> None:
        """Move the row loop of a write-back innermost if its tile is square: the code generator transposes the registers for that form.

        Does nothing if results are not stored along rows.
        """
        row, *others = self.s.loops(written)[-1 - depth :]
        if self.transposes and constant_extent(self.s.program, row.loop) in SQUARES:
            self.s.reorder(*others, row)

    def _columns_last(self, block: BlockHandle) -> None:
        """Make columns the last dim of the buffer a block works on, so that they are the lanes of registers."""
        dims = [f"d{n}" for n in range(len(self.result))]
        column = dims[self.result.index(self.roles.column)]
        order = ", ".join([*(d for d in dims if d != column), column])
        body = block.block.body
        buffer = body.targets[0].buffer if isinstance(body, Reduce) else next(a.buffer for a in accesses(block.block) if not a.write)
        self.s.transform_layout(buffer.name, f"lambda {', '.join(dims)}: ({order})", block=block)


def _target(block: Block) -> Load:
    assert isinstance(block.body, Reduce)
    return block.body.targets[0]


BLOCKED_CONVOLUTION = Rule("convolution", "convolutions of blocks", blocked_convolution_of, schedule_convolution, promotable=promotable)
CONVOLUTION = Rule("convolution", "convolutions", over_channels, schedule_convolution, layouts=layouts)
