"""Default rule for convolutions by Winograd's algorithm in NCHWc layout: one batch of tiles after the other goes through all stages.

    tiles = B d B' of the padded operand; sum[k, l] = tiles[k, l] * weight[k, l] over channels, for each place (k, l); images = A sum A'

    for image: for batch of rows of tiles (parallel):
        for block of channels: the rows with their padding; then the transformed tiles                            # workspace of a batch
        for k, l: for panel of V vectors of channels j: for tile of R neighboring tiles:                          # sums in registers
            for c: for r, v unrolled: for j as a vector: sum[r, v, j] = fma(tiles[k, l, …], weight[k, l, c, v, j], sum[r, v, j])
        for block of channels: images of the batch; then what follows elementwise (bias, activation, residual)

The operand, the transformed tiles and the sums of a batch fit the L2 cache; batches that run one after the other share one workspace.
Sums run over channels in the order of the program, in parts of about 16 terms: the transforms add rounding errors of their own, and short
parts make up for them. (docs/design/0028-winograd.md)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from ...loop.analysis.block_kind import elementwise
from ...loop.analysis.nests import accesses, allocation, blocks, constant_extent, find_block, plain_iters, readers, writers
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Block, For, Func, Reduce
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.expr import Const, Mul, Var, free_vars
from ...target import Target
from ..decisions import Decide
from ..schedule import LoopHandle, Schedule
from ..tile_cost_model import Choice, choose_tile, legal_tiles
from ..tile_cost_model import Sizes as TileSizes
from ..workloads import ConvOverChannels
from .accumulate import Sizes, Summing, sum_tile
from .channels import pack_of
from .convolution_roles import Convolution, block_registers, product_in_blocks
from .epilogue import join_elementwise
from .record import NotApplicable, Packing, Promotable, Rule, tried

PLACES = {4: 2, 6: 4}  # places of a transformed tile along each dim -> results of a tile along each dim
MOST_ROWS = 8  # most rows of a register tile; each smaller number may need a body of its own
MOST_VECTORS = 4  # most vectors of a register tile: each is a stream through the weights
SOME_TILES = (10, 20, 40)  # tiles in a row that the cost model averages over if the width is dynamic
PART = 16  # terms of a partial sum: with these a result is as near to the truth as one of direct sums in parts of 128 terms
PARTS = Sizes(PART, (32,), (32, 16), long=PART + PART // 2)
WORKSPACES = 16  # most workspaces: batches that share one run one after the other, and threads share what is left
# The weights are read once for each batch. Below this many tiles in a batch they come from the L3 cache faster than they are used.
FEW_TILES = 16


@dataclass(frozen=True, slots=True)
class Winograd:
    """A record of the blocks of a convolution by Winograd's algorithm, by role, and of the iterators of its product."""

    product: Convolution
    places: tuple[str, str]  # the iterators of the product over places of a tile
    results: int  # of a tile along each dim
    down: str  # the iterator of the product over rows of tiles
    padded: str
    tiles: str
    images: str


def winograd_of(func: Func, block: Block, target: Target) -> Winograd | Refusal:
    """Match the product of transformed tiles between their transforms, in NCHWc layout; return the roles, or why the block is none."""
    product = product_in_blocks(block)
    if isinstance(product, Refusal):
        return product
    body = block.body
    assert isinstance(body, Reduce) and isinstance(body.values[0], Mul)
    operand = next((e for e in body.values[0].args if isinstance(e, Load) and e.buffer is not product.weight.buffer), None)
    if operand is None:
        return Refusal(f"an operand of block `{block.name}` is no tensor")
    places, down = _places(block, operand, product.weight)
    if len(places) != 2 or not down:
        return Refusal(f"block `{block.name}` has no 4x4 or 6x6 places that both of its operands have")
    tiles = _made_by(func, operand.buffer)
    sources = {a.buffer for a in accesses(tiles) if not a.write} if tiles else set()
    padded = _made_by(func, sources.pop()) if len(sources) == 1 else None
    users = readers(func, body.targets[0].buffer)
    if tiles is None or padded is None or len(users) != 1 or elementwise(users[0]) is None:
        return Refusal(f"block `{block.name}` does not stand between the transforms of its operand and of its result")
    results = PLACES[_places_along(operand, places[0])]
    return Winograd(product, (places[0], places[1]), results, down[-2], padded.name, tiles.name, users[0].name)


def _places(block: Block, operand: Load, weight: Load) -> tuple[list[str], list[str]]:
    """Return the names of the iterators over places that both operands have, and those of the operand that the weight does not have.

    The first are none unless all have 4 or all 6 places. Both are spatial iterators of the block.
    """
    spatial = [i.var for i in block.iters if i.kind == "S" and i.var in free_vars(operand)]
    places = [v for v in spatial if v in free_vars(weight) and v in operand.indices]
    alike = {_places_along(operand, v.name) for v in places}
    return [v.name for v in places] if len(alike) == 1 and alike <= PLACES.keys() else [], [v.name for v in spatial if v not in places]


def _places_along(operand: Load, iterator: str) -> int:
    """Return the size of the dim that an iterator indexes in an operand; 0 if it is no constant."""
    at = next(n for n, e in enumerate(operand.indices) if isinstance(e, Var) and e.name == iterator)
    size = operand.buffer.shape[at]
    return int(size.value) if isinstance(size, Const) else 0


def transforms_tiles(block: Block) -> bool:
    """Return True if a block is the product of transformed tiles, in any layout: its operand and its result should be in NCHWc layout."""
    s = block.body
    if not isinstance(s, Reduce) or s.combiner.name != "add" or not isinstance(s.values[0], Mul):
        return False
    loads = [e for e in s.values[0].args if isinstance(e, Load)]
    return len(loads) == 2 and any(len(_places(block, a, b)[0]) == 2 and _places(block, b, a)[1] for a, b in (loads, loads[::-1]))


def _made_by(func: Func, buffer: Buffer) -> Block | None:
    """Return the elementwise block that alone makes a temporary; None if there is none."""
    by = writers(func, buffer)
    return by[0] if allocation(func, buffer) is not None and len(by) == 1 and elementwise(by[0]) is not None else None


def schedule_winograd(s: Schedule, roles: Winograd, decide: Decide) -> str:
    """Schedule all stages of a convolution by Winograd's algorithm, batch by batch, with its elementwise consumers in the last one.

    Return a text about it. Raise NotApplicable if a number of channels is no constant, or the loops are not as expected.
    """
    join_elementwise(s, find_block(s.program, roles.images))
    _join_last(s, roles.images)
    return _Rule(s, roles, decide).apply()


def _join_last(s: Schedule, images: str) -> None:
    """Inline the elementwise reader of the images into its own reader, even if that reads an element twice, as `y * sigmoid(y)` does.

    Nothing is changed if there is more than one reader or inlining is not legal.
    """
    users = readers(s.program, next(a.buffer for a in accesses(find_block(s.program, images)) if a.write))
    store = elementwise(users[0]) if len(users) == 1 else None
    later = readers(s.program, store.buffer) if store is not None and allocation(s.program, store.buffer) is not None else []
    if len(later) == 1 and elementwise(later[0]) is not None:
        tried(partial(s.compute_inline, users[0].name))


class _Rule:
    """Schedules one convolution: the constructor decides batch, register tile and parts of the sum, `apply` edits the schedule."""

    def __init__(self, s: Schedule, roles: Winograd, decide: Decide) -> None:
        self.s, self.roles, self.decide, self.name, self.target = s, roles, decide, decide.block, decide.target
        p = roles.product
        self.rows = self._extent(p.row)
        lanes = self._extent(p.lane or "")
        if lanes is None or (p.column and self._extent(p.column) is None):
            raise NotApplicable(f"the number of channels of block `{self.name}` is not a constant")
        self.lanes, self.columns = lanes, self._extent(p.column) or 1 if p.column else 1
        self.depth = prod(self._extent(v) or 1 for v in p.reduced)
        self.batch = self._batch()
        self.tile = self._tile_size()
        why = f"parts of about {PART} terms make up for the rounding of the transforms; longer ones round more"
        part = decide("part", (PART, 2 * PART, 4 * PART, 8 * PART), PART, reorders=True, why=why)
        self.summing = Summing(Sizes(part, PARTS.groups, PARTS.rows, part + part // 2))

    def _extent(self, iterator: str) -> int | None:
        return constant_extent(self.s.program, self.s.loop(self.name, iterator).loop)

    def _batch(self) -> int:
        """Decide the rows of tiles in a batch: as few as make FEW_TILES tiles, in at least two batches, all of one size.

        With a dynamic number of rows of tiles it is 1.
        """
        down = self._extent(self.roles.down)
        legal = (1,) if down is None else tuple(n for n in range(1, down + 1) if down % n == 0)
        several = [n for n in legal if down is None or 2 * n <= down] or [1]
        best = next((n for n in several if n * (self.rows or FEW_TILES) >= FEW_TILES), several[-1])
        why = f"the weights are read once for each batch; {FEW_TILES} tiles and more hide that, and fewer rows take less of the L2 cache"
        return self.decide("batch", legal, best, why=why)

    def _tile_size(self) -> Choice:
        """Decide the register tile: by default the one the cost model chooses; its domain are all that fit the registers."""
        full = self.target.vector_bits // 32
        registers = block_registers(self.lanes, full)
        widths = SOME_TILES if self.rows is None else (self.rows,)
        columns = self.columns * registers * full
        places = prod(self._extent(v) or 1 for v in self.roles.places)
        works = tuple(ConvOverChannels(w, columns, self.depth, places * self.batch, 4, 4) for w in widths)
        vectors = tuple(v * registers for v in range(1, min(MOST_VECTORS, self.columns) + 1))
        sizes = TileSizes(range(1, min(MOST_ROWS, self.rows or MOST_ROWS) + 1), vectors)
        best = choose_tile(self.target, works, sizes)
        domain = [(r, v // registers) for r, v in legal_tiles(self.target, works[-1], sizes)]
        default = best.rows, best.vectors // registers
        rows, of_panel = self.decide("tile", domain if default in domain else [*domain, default], default, why=best.text)
        return Choice(rows, of_panel, best.text)

    def apply(self) -> str:
        """Schedule the blocks; return text about what was done.

        All stages are computed in a parallel loop over batches of rows of tiles, whose iterations share at most WORKSPACES workspaces.
        """
        s, r = self.s, self.roles
        if self.target.has_fma:
            s.contract(self.name)
        last, at, channel, inner = self._batches()
        if last != r.images:
            s.compute_at(r.images, channel or at)
        images = self._inside(r.images, channel or at) if last != r.images else inner
        *rows, across, lane = images
        if len(rows) == 1 and self.batch > 1:  # rows of tiles, and rows of a tile: what a batch reads of the sums is known then
            rows = list(s.split(rows[0], None, r.results))
        s.compute_at(self.name, at)
        product = self._inside(self.name, at)
        names = self._iterators(r.tiles, self._result(r.tiles), write=True)
        s.compute_at(r.tiles, at)
        tiles = {h.loop.var.name: h for h in self._inside(r.tiles, at)}
        if last != r.images:
            s.compact(last, self._result(r.images), channel or at)
            s.vectorize(inner[-1])
        s.compact(r.images, self._result(self.name), at)
        s.compact(self.name, self._result(r.tiles), at)
        self._check_batch()
        self._transform_operand([tiles.get(v) for v in names], at)
        self._product(self.name, product)
        self._transform_result(rows, across, lane)
        s.parallel(at)
        s.annotate(at, "workspaces", WORKSPACES)
        t, with_last = self.tile, "" if last == r.images else f", with `{last}` in its write-back"
        return f"winograd: `{self.name}` in tiles of {t.rows}x{t.vectors * self.lanes} in registers, rows of tiles in batches{with_last}"

    def _check_batch(self) -> None:
        """Raise NotApplicable if a batch would compute more rows of tiles than it has, because what it reads of them was not found out."""
        down, _, _ = self._made(self.name).shape[-3:]
        if down is not Const(self.batch, down.dtype):
            raise NotApplicable(f"a batch of {self.batch} rows of tiles reads `{down}` of them")

    def _made(self, name: str) -> Buffer:
        """Return the buffer that a block writes."""
        return next(a.buffer for a in accesses(find_block(self.s.program, name)) if a.write)

    def _result(self, name: str) -> str:
        """Return the name of the buffer that a block writes."""
        return self._made(name).name

    def _inside(self, name: str, at: LoopHandle) -> list[LoopHandle]:
        """Return the loops around a block that are inside of `at`."""
        chain = self.s.loops(name)
        return list(chain[chain.index(at) + 1 :])

    def _batches(self) -> tuple[str, LoopHandle, LoopHandle | None, list[LoopHandle]]:
        """Cut the last block into batches; return it, the loop over batches, that over channel blocks, and all loops of a batch but this.

        The last block is the only elementwise reader of the images if its vectors are those of the images, else the images themselves.
        Raise NotApplicable if the images are not indexed by their iterators.
        """
        s, images = self.s, self.roles.images
        last, indices = images, self._iterators(images, self._result(images), write=True)
        users = readers(s.program, self._made(images))
        if len(users) == 1 and (store := elementwise(users[0])) is not None:
            own, stored = self._iterators(users[0].name, self._result(images), write=False), plain_iters(store.indices, users[0])
            if own and stored and own[-1] == stored[-1].name and len(s.loops(users[0].name)) == len(own):
                last, indices = users[0].name, own
        if not indices:
            raise NotApplicable(f"block `{images}` is not indexed by its iterators")
        loops = [s.loop(last, v) for v in indices]
        y = loops[-3]
        front, channel = loops[:-3], None
        if self.roles.product.column:
            *front, channel = front
        at, *rows = s.split(y, None, *([self.batch] if self.batch > 1 else []), self.roles.results)
        s.reorder(*front, at, *([channel] if channel else []), *rows, *loops[-2:])
        return last, at, channel, [*rows, *loops[-2:]]

    def _iterators(self, name: str, buffer: str, write: bool) -> list[str]:
        """Return the names of the iterators at which a block accesses a buffer; none if these are not its iterators, each once."""
        block = find_block(self.s.program, name)
        places = {a.indices for a in accesses(block) if a.buffer.name == buffer and a.write == write}
        iters = plain_iters(places.pop(), block) if len(places) == 1 else None
        return [v.name for v in iters or ()] if iters and len(iters) == len(block.iters) else []

    def _transform_operand(self, loops: list[LoopHandle | None], at: LoopHandle) -> None:
        """Schedule the transform of the operand: channels outermost, each with its padded rows, and all places of a tile unrolled.

        `loops` has a loop for each index of the tiles; None for those outside of a batch, and for the only row of tiles of a batch. Raise
        NotApplicable if the places of a tile have no loops.
        """
        s, r = self.s, self.roles
        channels, places, rows = ([h for h in part if h is not None] for part in (loops[:-5], loops[-5:-3], loops[-3:-1]))
        lane = loops[-1]
        if lane is None or len(places) != 2:
            raise NotApplicable(f"block `{r.tiles}` has no loops over the places of a tile")
        s.reorder(*channels, *rows, *places, lane)
        around = channels[-1] if channels else at
        s.compute_at(r.padded, around)
        s.compact(r.tiles, self._result(r.padded), around)
        s.vectorize(s.loops(r.padded)[-1])
        for h in places:
            s.unroll(h)
        s.vectorize(lane)

    def _product(self, name: str, loops: list[LoopHandle]) -> None:
        """Schedule the product: for each place, panels of vectors of channels, in each of these register tiles of neighboring rows.

        Without a column, the lanes of one channel block are the only panel. A rest of columns is a panel of its own.
        """
        s, p = self.s, self.roles.product
        named = {h.loop.var.name: h for h in loops}
        reduced = loops[len(loops) - len(p.reduced) :]
        down = [named[self.roles.down]] if self.roles.down in named else []
        row, lane, places = named[p.row], named[p.lane or ""], [named[v] for v in self.roles.places]
        s.reorder(*places, *([named[p.column]] if p.column else []), *down, row, *reduced, lane)
        if not p.column:
            self._panel(name, down, row, reduced, [lane])
            return
        panel, vector = panels = s.split(named[p.column], None, self.tile.vectors, tail="cut")
        for rest in panels.tails:
            chain = s.loops(rest)
            column, *below = chain[len(chain) - len(down) - len(reduced) - 3 :]
            self._panel(rest, below[: len(down)], below[len(down)], below[len(down) + 1 : -1], [column, below[-1]])
        self._panel(name, [panel, *down], row, reduced, [vector, lane])

    def _panel(self, name: str, outer: list[LoopHandle], row: LoopHandle, reduced: list[LoopHandle], inner: list[LoopHandle]) -> None:
        """Cut the rows of one panel into register tiles and accumulate each; rows that fit one tile stay whole."""
        s = self.s
        s.reorder(*outer, row, *reduced, *inner)
        if self.rows is not None and self.rows <= self.tile.rows:
            chain = s.loops(name)
            self._tile(name, chain[chain.index(row) - 1], row, len(reduced), len(inner))
            return
        tiles, within = rows = s.split(row, None, self.tile.rows, tail="balance")
        below = len(reduced) + len(inner)
        for tail in rows.tails:
            chain = s.loops(tail)
            self._tile(tail, chain[-below - 2], chain[-below - 1], len(reduced), len(inner))
        self._tile(name, tiles, within, len(reduced), len(inner))

    def _tile(self, name: str, at: LoopHandle, row: LoopHandle, reduced: int, depth: int) -> None:
        """Accumulate one tile in registers, inside the loop `at`.

        The innermost loops are `reduced` loops of the sum, then `depth` (vectors and) lanes.
        """
        s = self.s
        chain = s.loops(name)
        sums, inner = chain[-reduced - depth : -depth], chain[-depth:]
        s.reorder(*sums, row, *inner)
        written = s.cache_write(name, at, scope="register")
        sum_tile(s, name, at, written, sums, [row, *inner], self.summing)

    def _transform_result(self, rows: list[LoopHandle], x: LoopHandle, lane: LoopHandle) -> None:
        """Schedule the transform of the sums: the results of a tile are unrolled, and channels are vectors; `x` is cut into tiles."""
        s = self.s
        s.reorder(*rows[:-1], x, rows[-1], lane)
        across, beside = columns = s.split(x, None, self.roles.results, tail="cut")
        for rest in columns.tails:
            *_, y, last = s.loops(rest)
            s.unroll(y)
            s.vectorize(last)
        s.reorder(across, rows[-1], beside, lane)
        s.unroll(rows[-1])
        s.unroll(beside)
        s.vectorize(lane)


def layouts(func: Func, block: Block, target: Target) -> dict[Buffer, Packing] | None:
    """Return the layout of transformed weights: in each place packs of one block of channels, as the product reads them.

    None if the block is no product of tiles, or its result has no constant channel block; empty if no parameter is read or it is packed
    already.
    """
    if not transforms_tiles(block):
        return None
    lanes = {a.indices[-1]: int(a.buffer.shape[-1].value) for a in accesses(block) if a.write and isinstance(a.buffer.shape[-1], Const)}
    if not lanes:
        return None
    weight = next((a for a in accesses(block) if a.buffer in func.buffers and not a.write), None)
    pack = None if weight is None else pack_of(weight.buffer, weight.indices, lanes)
    return {} if weight is None or pack is None else {weight.buffer: Packing({1: pack}, 1, reorders=True)}


def promotable(func: Func, block: Block, nest: Mapping[Var, For], decide: Decide) -> Promotable | None:
    """Return no sizes for the blocks of a convolution by Winograd's algorithm: batch and tile depend on them, and so do its transforms.

    None if the function has no such convolution.
    """
    return Promotable(frozenset()) if any(map(transforms_tiles, blocks(func.body))) else None


WINOGRAD = Rule("winograd", "convolutions by winograd", winograd_of, schedule_winograd, layouts=layouts, promotable=promotable)
