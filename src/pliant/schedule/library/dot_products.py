"""Default rule for integer matrix products, c[…, i, j] += i32(a[…, i, k]) * i32(b[…, k, j]), with dot-product instructions (VNNI, SDOT).

    for panel of V vectors of columns (parallel):
        for tile of R rows, then smaller tiles for the rows that remain:
            tile of c in registers = 0
            for each word of G neighbors along k: for i unrolled: for v unrolled:
                tile[i, v, :] += a[i, k] * b[k, v, :] + a[i, k + 1] * b[k + 1, v, :] + …          # one instruction
            the same for what is left of k, one product after the other
            c = epilogue(tile)

The instruction (`target/instructions.py`) takes the G factors of a column side by side. So b is packed, `b[j // L, k // G, j % L, k % G]`:
before the program runs (`layouts.py`), or panel by panel at each call if there are many rows. Integers wrap, so the order of a sum does
not matter.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...dtype import i64
from ...loop.analysis.block_kind import Matmul
from ...loop.analysis.nest_shape import alone, iter_named, plain_loops
from ...loop.analysis.nests import base_facts, blocks, constant_extent, find_block, plain_iters
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Block, For, Func, Reduce
from ...support.choices import heuristic
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.bounds import multiple
from ...sym.expr import TRUE, Const, FloorMod, Var, free_vars
from ...sym.index_map import IndexMap
from ...target import Target
from ...target.instructions import INSTRUCTIONS, instructions_of
from ..auto_tensorize import mapping
from ..decisions import Decide
from ..primitives.layout import layouts_of
from ..primitives.tensorize import tile_of_instruction
from ..schedule import LoopHandle, Schedule
from .accumulate import Summing, sizes_of
from .epilogue import with_epilogue
from .matmul import MANY_ROWS, TiledProduct, TileSize, decide_copy, tile_size, tiles
from .packing import may_be_packed
from .record import NotApplicable, Packing, Rule, Version, required_loops, tried

LARGEST_COPY = 2**20  # most bytes of a panel that may be copied: about what the L2 cache holds
MOST_ROWS = 8  # most rows of `word_tile`: each smaller number of rows needs a body of its own for the remainder
PANEL = 64  # columns of the widest panel; with it LARGEST_COPY bounds the length of a sum
ENOUGH_SUMS = 12  # sums that keep the units busy: a machine starts two such instructions per cycle, with a latency of 4 to 6 cycles


@dataclass(frozen=True, slots=True)
class DotProduct:
    """A record of how dot-product instructions compute a block: iterator roles, the two factors, and the instruction's sizes."""

    roles: Matmul
    wide: Load  # the factor with columns
    narrow: Load  # the other factor
    lanes: int
    group: int  # products that an instruction adds in each lane
    instructions: dict[int, str]  # by lanes

    is_packed: bool  # the right-hand side has the layout of the instruction


def dot_product_of(func: Func, block: Block, target: Target) -> DotProduct | Refusal:
    """Match an integer product that an instruction of the target can do; return how, or why none can."""
    s = block.body
    if not isinstance(s, Reduce) or s.combiner.name != "add" or len(s.targets) != 1 or block.init is None or not s.targets[0].dtype.is_int:
        return Refusal(f"block `{block.name}` is no sum of integers with an init")
    out = plain_iters(s.targets[0].indices, block)
    if not out or set(out) != {i.var for i in block.iters if i.kind == "S"}:
        return Refusal(f"the result of block `{block.name}` is not indexed by its S iterators, each once")
    usable: dict[tuple[int, int], tuple[str, Load, Load]] = {}
    for i in instructions_of(target):
        m = mapping(func, block, i.name)
        if isinstance(m, Refusal) or len(m.fused) != 2 or any(len(vs) != 1 for vs in m.fused) or m.fused[0][0] is not out[-1]:
            continue
        lanes, group = (int(x.stop.value) for x in tile_of_instruction(i.name).loops if isinstance(x.stop, Const))
        factors = [p for p in m.operands.values() if p.buffer is not s.targets[0].buffer]
        narrow, wide = sorted(factors, key=lambda p: out[-1] in free_vars(p))
        usable[group, lanes] = i.name, narrow, wide
    if not usable:
        return Refusal(f"no instruction does what block `{block.name}` does")
    group, lanes = max(usable, key=lambda size: (size[0] * size[1], size))
    _, narrow, wide = usable[group, lanes]
    rows = [v for v in out[:-1] if v not in free_vars(wide)]
    row = rows[-1].name if rows else None
    batch = tuple(v.name for v in out[:-1] if v.name != row)
    roles = Matmul(batch, row, out[-1].name, tuple(i.var.name for i in block.iters if i.kind == "R"))
    names = {n: name for (g, n), (name, *_) in usable.items() if g == group}
    return DotProduct(roles, wide, narrow, lanes, group, names, _is_packed(func, wide.buffer, lanes, group))


def _is_packed(func: Func, buffer: Buffer, lanes: int, group: int) -> bool:
    """True if a parameter has the layout `words` for these sizes.

    It reads the index map, because index expressions of small tensors are simplified.
    """
    packing = layouts_of(func).get(buffer.name) if buffer in func.buffers else None
    if packing is None or len(packing.map.results) < 4:
        return False
    *_, pack, word, column, factor = packing.map.results
    digits = ((pack, column, lanes), (word, factor, group))
    return all(isinstance(low, FloorMod) and low.args[1] is Const(n, i64) and high is low.args[0] // n for high, low, n in digits)


def copying(func: Func, block: Block, decide: Decide) -> Version | None:
    """Return the version that packs panels of the right-hand side into words if there are enough rows; None if it never pays."""
    dot = dot_product_of(func, block, decide.target)
    loops = plain_loops(func, block)
    if (
        isinstance(dot, Refusal)
        or isinstance(loops, Refusal)
        or dot.is_packed
        or dot.roles.row is None
        or plain_iters(dot.wide.indices, block) is None
    ):
        return None
    extent = {v.name: x.extent for v, x in loops.items()}
    (depth,) = dot.roles.reduced
    size = extent[depth]
    fits = isinstance(size, Const) and dot.group <= size.value <= LARGEST_COPY // PANEL
    why = "a copy packs the operand for the instruction once for all rows"
    return decide_copy(func, extent[dot.roles.row], MANY_ROWS, decide, why) if fits else None


def words(buffer: Buffer, column: int, depth: int, lanes: int, group: int) -> IndexMap:
    """Return the layout for an instruction: packs of `lanes` columns, and in each pack words of `group` neighbors along `depth`."""
    dims = tuple(Var(f"d{n}") for n in range(buffer.ndim))
    others = [d for n, d in enumerate(dims) if n not in (column, depth)]
    j, k = dims[column], dims[depth]
    return IndexMap(dims, (*others, j // lanes, k // group, j % lanes, k % group))


def layouts(func: Func, block: Block, target: Target) -> dict[Buffer, Packing] | None:
    """Return the layout of the right-hand side: the words that the target's instruction takes.

    None if no instruction does the block; an empty dict if the operand cannot be packed.
    """
    dot = dot_product_of(func, block, target)
    if isinstance(dot, Refusal):
        return None
    load, (depth,) = dot.wide, dot.roles.reduced
    at = {v.name: n for n, v in enumerate(plain_iters(load.indices, block) or ())}
    column = iter_named(block, dot.roles.column).var
    if not at or not may_be_packed(func, block, load, column, min(dot.instructions)):
        return {}
    extent = load.buffer.shape[at[depth]]
    if not isinstance(extent, Const) or extent.value < dot.group:
        return {}
    return {load.buffer: Packing({dot.lanes: words(load.buffer, at[column.name], at[depth], dot.lanes, dot.group)}, dot.lanes)}


def schedule_dot_product(s: Schedule, dot: DotProduct, decide: Decide) -> str:
    """Tile a product for registers, threads and dot-product instructions, with its elementwise consumers in the write-back (epilogue).

    Returns text about it; raises NotApplicable if the right-hand side is neither packed nor to be copied.
    """
    name = decide.block
    if not dot.is_packed and not decide.copying:
        raise NotApplicable(
            f"`{dot.wide.buffer.name}` is not packed in words of {dot.group} for {dot.lanes} columns, which the instruction needs"
        )
    dot = _widened(s, name, dot)
    block = find_block(s.program, name)
    loops = required_loops(s.program, block)
    rule = _Rule(s, dot, {v.name: x for v, x in loops.items()}, decide)
    return with_epilogue(s, block, rule.apply)


def _widened(s: Schedule, name: str, dot: DotProduct) -> DotProduct:
    """Copy the rows to i16 before the product, if its instructions have i16 forms and the copy is legal.

    Returns `dot` with those forms, or else unchanged.
    """
    wider = {lanes: INSTRUCTIONS[i].widened for lanes, i in dot.instructions.items()}
    if not all(wider.values()) or not tried(partial(s.reindex, name, dot.narrow.buffer.name, dtype="i16")):
        return dot
    copy = f"{dot.narrow.buffer.name}_reindex"
    *rows, depth = s.loops(copy)
    for outermost in rows[:1]:
        tried(partial(s.parallel, outermost))
    if (constant_extent(s.program, depth.loop) or 0) >= 2 * dot.lanes:
        s.vectorize(s.split(depth, None, 2 * dot.lanes, tail="cut")[1])
    return replace(dot, instructions=wider)


class _Rule(TiledProduct):
    """One application of the rule for dot-product instructions to a block."""

    def __init__(self, s: Schedule, dot: DotProduct, loops: dict[str, For], decide: Decide) -> None:
        self.dot = dot
        super().__init__(s, dot.roles, loops, decide, copy=not dot.is_packed)

    def choose_summing(self, block: Block) -> Summing:
        """Return a sum without partial sums: integers wrap, so the order of a sum does not matter."""
        return Summing(sizes_of(block, self.target))

    def choose_tile(self) -> TileSize:
        """Decide the register tile, of at most MOST_ROWS rows; its domain are all that fit the registers.

        By default it is the one the cost model chooses. If the instruction needs registers for constants, it has 3 vectors and as many rows
        as the other registers allow.
        """
        extents, spare = self.extents(self.dtype, self.dot.group), 1  # one more register: a product before it is added
        tile, terms = tile_size(self.target, extents, spare)
        rows, vectors = tile.rows, tile.vectors
        constants = INSTRUCTIONS[self.dot.instructions[self.dot.lanes]].constants
        if constants:  # registers for constants leave smaller tiles; of these, nearly square ones reuse each factor most
            # 3 vectors of b, an element of a and a product take the registers that constants and 3 sums per row leave.
            rows, vectors = (self.target.n_vector_registers - 3 - 2 - constants) // 3, 3
        best = self._whole(TileSize(min(rows, MOST_ROWS), vectors, self.dot.lanes))
        domain = sorted({(best.rows, best.vectors), *((r, v) for r, v in tiles(self.target, extents, spare + constants) if r <= MOST_ROWS)})
        rows, vectors = self.decide("word_tile", domain, (best.rows, best.vectors), why=terms)
        return TileSize(rows, vectors, self.dot.lanes)

    def _whole(self, tile: TileSize) -> TileSize:
        """Return a tile without remainder rows, of no more registers and at least ENOUGH_SUMS sums; `tile` if there is none."""
        certain = multiple(self.row.loop.extent, base_facts(self.s.program)) if self.row else 1
        if certain % tile.rows == 0:
            return tile
        sizes = [TileSize(r, v, tile.lanes) for v in range(tile.vectors, 0, -1) for r in range(MOST_ROWS, 0, -1) if certain % r == 0]
        fit = [t for t in sizes if ENOUGH_SUMS <= t.rows * t.vectors <= tile.rows * tile.vectors and self._panels_fit(t, tile)]
        return max(fit, key=lambda t: t.rows * t.vectors, default=tile)

    @heuristic
    def _panels_fit(self, size: TileSize, instead: TileSize) -> bool:
        """True if panels of this width leave no columns, or as many as those of another tile."""
        return self.columns is None or self.columns % size.columns in (0, self.columns % instead.columns)

    def apply(self) -> str:
        """Schedule the block by primitives; return the text for `explain` that says what was done."""
        t, sizes = self.tile, self._sizes()
        self.order_loops(self.columns is not None and (len(sizes) != 1 or self.columns % sizes[0].columns != 0))
        rest, (column, batch) = self.name, (self.column, self.batch)
        for size in sizes:
            left = self.panels(rest, column, size, batch)
            if not left:
                break
            (rest,) = left
            column, batch = self.column_of(rest)
        else:
            self.panels(rest, column, self.last_panel(column, min(self.dot.instructions)), batch, guard=True)
        side = "copied by panels" if self.copy else "packed"
        shape = f"{t.rows if self.row else 1}x{t.columns}"
        return f"dot products: `{self.name}` in tiles of {shape} in registers by `{self.dot.instructions[t.lanes]}`, right-hand side {side}"

    def _sizes(self) -> list[TileSize]:
        """Return the panels of columns, wide ones first; they leave fewer columns than any instruction has lanes."""
        rows, n = self.tile.rows, self.columns
        if n is None:
            return [self.tile, TileSize(rows, 1, self.tile.lanes)]
        sizes = [self.tile] if n >= self.tile.columns else []
        n %= self.tile.columns
        for lanes in sorted(self.dot.instructions, reverse=True):
            if n >= lanes:
                sizes.append(TileSize(rows, n // lanes, lanes))
                n %= lanes
        return sizes

    def copy_panel(self, name: str, panel: LoopHandle) -> None:
        """Copy a panel of the right-hand side into the layout of the instruction, if the rule copies panels (`copy`).

        Do nothing if no instruction fits the block.
        """
        if not self.copy or self._instruction(name) is None:
            return
        s, buffer = self.s, self.dot.wide.buffer
        indices = self.dot.wide.indices
        at = {e.name: n for n, e in enumerate(indices) if isinstance(e, Var)}
        copy = s.cache_read(name, buffer.name, panel, scope="workspace")
        layout = words(buffer, at[self.roles.column], at[self.roles.reduced[0]], self.dot.lanes, self.dot.group)
        s.transform_layout(f"{buffer.name}_copy", layout, block=copy)
        if at[self.roles.column] == len(indices) - 1:
            tried(partial(s.vectorize, s.split(s.loops(copy)[-1], self.dot.lanes)[1]))

    def _instruction(self, name: str) -> str | None:
        """Return the instruction for a block whose last loop is over lanes; None if the block has a predicate or no instruction fits."""
        lanes = constant_extent(self.s.program, self.s.loops(name)[-1].loop)
        plain = find_block(self.s.program, name).predicate is TRUE
        return self.dot.instructions.get(lanes) if plain and lanes is not None else None

    def tile_at(self, name: str, at: LoopHandle, row: LoopHandle | None) -> None:
        """Accumulate one tile in registers by an instruction, or by plain vectors if none fits.

        The loops inside `at` are (row,) reduced, vectors, lanes.
        """
        s = self.s
        *_, depth, vector, lane = s.loops(name)
        instruction = self._instruction(name)
        if instruction is None:
            super().tile_at(name, at, row)
            return
        unrolled = [*([row] if row else []), vector]
        s.reorder(depth, *unrolled, lane)
        written = s.cache_write(name, at, scope="register")
        for h in unrolled:
            s.unroll(h)
        *outer, last = [h for h in s.loops(written) if h.loop in alone(s.program, written.block)]
        for h in outer:
            s.unroll(h)
        s.vectorize(last)
        init = s.decompose_reduction(name, depth)
        s.vectorize(s.loops(init)[-1])
        before = {b.name for b in blocks(s.program.body)}
        word, factor = s.split(depth, None, self.dot.group, tail="cut")
        for rest in [b.name for b in blocks(s.program.body) if b.name not in before]:
            s.vectorize(s.loops(rest)[-1])
        s.reorder(word, *unrolled, lane, factor)
        s.tensorize(lane, instruction)


DOT_PRODUCTS = Rule("dot products", "integer products", dot_product_of, schedule_dot_product, version=copying, layouts=layouts)
