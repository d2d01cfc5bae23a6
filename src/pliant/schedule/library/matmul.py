"""The default rule of sums of products, c[…, i, j] += a[…, i, k] * b[…, k, j] with b contiguous along j, and of reductions of columns.

    for panel of NR columns (parallel):
        for tile of MR rows, and one constant tile for the rows that remain:
            tile of c in registers = 0
            for k: for i unrolled: for j as vectors: tile[i, j] = fma(a[i, k], b[k, j], tile[i, j])
            c = epilogue(tile)

The sum over k runs in order for every element, whatever the tile: a row alone equals the row in a batch. Tile sizes come from
the number of vector registers: accumulators, one row of b and a broadcast element of a must fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ...dtype import DType
from ...loop.stmt import Block, For, Func, Reduce
from ...sym.expr import Mul, free_vars
from ...target import Target
from ..nest import blocks, constant_extent
from ..schedule import LoopHandle, Schedule
from .match import Matmul, NotApplicable, alone, elementwise, find_block, has_block, iter_named, matmul_of, plain_loops, tried

FEW_PANELS = 4  # fewer panels than this do not keep threads busy: rows are shared out instead


@dataclass(frozen=True, slots=True)
class TileSize:
    """Rows, columns and lanes of the register tile."""

    rows: int
    columns: int
    lanes: int


def tile_size(target: Target, dtype: DType, columns: int | None) -> TileSize:
    """The register tile: as square as the registers allow, columns in whole vectors that divide the columns if they can."""
    lanes = max(1, target.vector_bits // dtype.bits)
    if target.n_vector_registers >= 32:
        choices = [(8, 3), (12, 2)]
    elif target.n_vector_registers >= 16:
        choices = [(6, 2), (4, 3)]
    else:
        choices = [(2, 2)]
    if columns is not None:
        fitting = [(r, v) for r, v in choices if columns % (v * lanes) == 0]
        choices = fitting or choices
    rows, vectors = choices[0]
    return TileSize(rows, vectors * lanes, lanes)


def schedule_matmul(s: Schedule, name: str, target: Target) -> str:
    """Tile the sum of products `name` for registers, threads and vectors, with its elementwise consumers in the write-back."""
    func = s.program
    block = find_block(func, name)
    roles = matmul_of(block)
    if isinstance(roles, str):
        raise NotApplicable(roles)
    loops = plain_loops(func, block)
    if isinstance(loops, str):
        raise NotApplicable(loops)
    epilogue = _epilogue(func, block)
    rule = _Rule(s, name, roles, {v.name: x for v, x in loops.items()}, target)
    text = rule.apply()
    folded = [e for e in epilogue if tried(partial(s.reverse_compute_inline, e))]
    return text + (f", with {', '.join(f'`{e}`' for e in folded)} in its write-back" if folded else "")


def _epilogue(func: Func, block: Block) -> list[str]:
    """The elementwise blocks that could follow in the write-back, in order."""
    order = blocks(func.body)
    return [b.name for b in order[order.index(block) + 1 :] if elementwise(b) is not None]


class _Rule:
    """One application of the rule."""

    def __init__(self, s: Schedule, name: str, roles: Matmul, loops: dict[str, For], target: Target) -> None:
        self.s, self.name, self.roles, self.target = s, name, roles, target
        handles = {h.loop: h for h in s.loops(name)}
        self.batch = [handles[loops[v]] for v in roles.batch]
        self.row = handles[loops[roles.row]] if roles.row else None
        self.column = handles[loops[roles.column]]
        self.reduced = [handles[loops[v]] for v in roles.reduced]
        body = find_block(s.program, name).body
        assert isinstance(body, Reduce)
        self.dtype = body.targets[0].dtype
        self.columns = constant_extent(s.program, self.column.loop)
        self.tile = tile_size(target, self.dtype, self.columns)

    def apply(self) -> str:
        """Schedule the block; what was done, in words."""
        s, t = self.s, self.tile
        s.reorder(*self.batch, self.column, *([self.row] if self.row else []), *self.reduced)
        if self.dtype.is_float and self.target.has_fma and not self._no_product():
            s.contract(self.name)
        if self.columns is not None and self.columns < t.columns:
            self._panel(self.name, None, self.column)
            outer: LoopHandle | None = None
        elif self.columns is not None and self.columns % (2 * t.columns) == 0:
            outer, half, inner = s.split(self.column, None, 2, t.columns)
            self._panel(self.name, outer, inner, half)
        else:
            outer, inner = s.split(self.column, None, t.columns, tail="cut")
            self._panel(self.name, outer, inner)
            self._rest()
        self._share_out(outer)
        return f"matmul: `{self.name}` in tiles of {t.rows if self.row else 1}x{t.columns} in registers"

    def _no_product(self) -> bool:
        body = find_block(self.s.program, self.name).body
        return not isinstance(body, Reduce) or body.combiner.name != "add" or not isinstance(body.values[0], Mul)

    def _rest(self) -> None:
        """The columns behind the last whole panel: a narrower panel, or vectors with a mask where their number is not known."""
        rest = f"{self.name}_rest"
        if not has_block(self.s.program, rest):
            return
        column = self._loop_of(rest, self.roles.column)
        if constant_extent(self.s.program, column.loop) is not None:
            self._panel(rest, None, column)
        else:
            outer, inner = self.s.split(column, None, self.tile.lanes)
            self._panel(rest, outer, inner)

    def _loop_of(self, block: str, iterator: str) -> LoopHandle:
        """The loop that feeds an iterator of a block."""
        found = iter_named(find_block(self.s.program, block), iterator)
        return next(h for h in self.s.loops(block) if h.loop.var in free_vars(found.value))

    def _panel(self, name: str, outer: LoopHandle | None, inner: LoopHandle, half: LoopHandle | None = None) -> None:
        """Tile the rows of one panel of columns: `inner` is the columns of a tile, `half` the two tiles of a panel, `outer` the panels."""
        s = self.s
        above = [outer] if outer else []
        halves = [half] if half else []
        reduced = [self._loop_of(name, v) for v in self.roles.reduced]
        row = self._loop_of(name, self.roles.row) if self.roles.row else None
        s.reorder(*above, *([row] if row else []), *halves, *reduced, inner)
        around = outer or (self._loop_of(name, self.roles.batch[-1]) if self.roles.batch else None)
        rows = 1 if row is None else constant_extent(s.program, row.loop)
        if rows is not None and rows <= self.tile.rows:
            self._tile(name, rows, around, [row] if row else [], halves, reduced, inner)
            return
        tiles, within = s.split(row, self.tile.rows, tail="balance")
        self._tile(name, self.tile.rows, tiles, [within], halves, reduced, inner)
        for r in range(1, self.tile.rows):
            if has_block(s.program, f"{name}_tail{r}"):
                self._tail(f"{name}_tail{r}", r, around, bool(half))

    def _tail(self, name: str, count: int, around: LoopHandle | None, halved: bool) -> None:
        """Tiles of fewer rows: the loops are (tiles,) rows, (halves,) reduced, columns."""
        handles = list(self.s.loops(name))
        reduced = [self._loop_of(name, v) for v in self.roles.reduced]
        first = handles.index(reduced[0])
        halves = [handles[first - 1]] if halved else []
        rows = first - 1 - halved
        self._tile(name, count, handles[rows - 1] if rows else around, [handles[rows]], halves, reduced, handles[-1])

    def _tile(
        self,
        name: str,
        count: int,
        at: LoopHandle | None,
        rows: list[LoopHandle],
        halves: list[LoopHandle],
        reduced: list[LoopHandle],
        columns: LoopHandle,
    ) -> None:
        """Put the loops of one tile in order; few rows take both halves of a panel at once, to have enough sums under way."""
        vectors = 2 * self.tile.columns // self.tile.lanes
        if halves and (count + 1) * vectors + 1 <= self.target.n_vector_registers:
            self.s.reorder(*reduced, *rows, *halves, columns)
            columns = self.s.fuse(*halves, columns)
        else:
            self.s.reorder(*halves, *reduced, *rows, columns)
            at = halves[0] if halves else at
        self._registers(name, at, rows, reduced, columns)

    def _registers(self, name: str, at: LoopHandle | None, rows: list[LoopHandle], reduced: list[LoopHandle], columns: LoopHandle) -> None:
        """Accumulate one tile in registers."""
        s = self.s
        written = s.cache_write(name, at, scope="register")
        for h in rows:
            s.unroll(h)
        s.vectorize(columns)
        *outer, last = [h for h in s.loops(written) if h.loop in alone(s.program, written.block)]
        for h in outer:
            s.unroll(h)
        s.vectorize(last)
        s.decompose_reduction(name, reduced[0])

    def _share_out(self, panels: LoopHandle | None) -> None:
        """Make one loop parallel: batches with panels of columns, or tiles of rows where panels are few."""
        s = self.s
        count = None if panels is None else constant_extent(s.program, panels.loop)
        few = panels is None or (count is not None and count < FEW_PANELS)
        for name in (self.name, f"{self.name}_rest"):
            if not has_block(s.program, name):
                continue
            handles = list(s.loops(name))
            serial = [h for h in handles if h.loop.kind == "serial" and h not in self.reduced]
            if any(h.loop.kind == "parallel" for h in handles):
                continue
            chain = [serial[0]] if serial else []
            while chain and isinstance(chain[-1].loop.body, For) and chain[-1].loop.body in [h.loop for h in serial]:
                chain.append(next(h for h in serial if h.loop is chain[-1].loop.body))
            if not chain:
                continue
            if few and not self.batch and len(serial) > 1 and serial[-1] not in self.reduced:
                tried(partial(s.parallel, serial[1] if panels is not None else serial[0]))
            else:
                tried(partial(s.parallel, s.fuse(*chain) if len(chain) > 1 else chain[0]))
