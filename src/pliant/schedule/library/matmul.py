"""The default rule of sums of products, c[…, i, j] += a[…, i, k] * b[…, k, j] with b contiguous along j, and of reductions of columns.

    for panel of NR columns (parallel):
        for tile of MR rows, then smaller tiles for the rows that remain (12, then 8, 4, 2, 1):
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
from ...support.errors import ScheduleError
from ...sym.expr import Mul, free_vars
from ...target import Target
from ..nest import blocks, constant_extent
from ..schedule import LoopHandle, Schedule
from .match import Matmul, NotApplicable, alone, elementwise, find_block, iter_named, matmul_of, plain_loops, tried

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
        rest: list[str] = []
        s.reorder(*self.batch, self.column, *([self.row] if self.row else []), *self.reduced)
        if self.dtype.is_float and self.target.has_fma and not self._no_product():
            s.contract(self.name)
        if self.columns is not None and self.columns < t.columns:
            self._panel(self.name, None, self.column)
            outer: LoopHandle | None = None
        elif self.columns is not None and self.columns % (2 * t.columns) == 0:
            outer, half, inner = s.split(self.column, None, 2, t.columns)
            outer = self._share_panels(outer)
            self._panel(self.name, outer, inner, half)
        else:
            (outer, inner), rest = self._cut(self.column, t.columns)
            outer = self._share_panels(outer)
            self._panel(self.name, outer, inner)
            for name in rest:
                self._rest(name)
        self._share_out(outer, [self.name, *rest])
        return f"matmul: `{self.name}` in tiles of {t.rows if self.row else 1}x{t.columns} in registers"

    def _no_product(self) -> bool:
        body = find_block(self.s.program, self.name).body
        return not isinstance(body, Reduce) or body.combiner.name != "add" or not isinstance(body.values[0], Mul)

    def _cut(self, loop: LoopHandle, size: int) -> tuple[tuple[LoopHandle, LoopHandle], list[str]]:
        """Split a loop into pieces of `size`; the new loops, and the blocks that do what remains."""
        before = {b.name for b in blocks(self.s.program.body)}
        outer, inner = self.s.split(loop, None, size, tail="cut")
        return (outer, inner), [b.name for b in blocks(self.s.program.body) if b.name not in before]

    def _rest(self, rest: str) -> None:
        """The columns behind the last whole panel: a narrower panel, or vectors with a mask where their number is not known."""
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
        if row is None:
            self._tile(name, 1, around, [], halves, reduced, inner)
        else:
            self._rows(name, self.tile.rows, around, row, bool(half))

    def _rows(self, name: str, size: int, around: LoopHandle | None, row: LoopHandle, halved: bool) -> None:
        """Tiles of `size` rows, then the rows that remain in tiles of the next smaller power of two, down to single ones.

        So a family has few tiles to compile, whatever the number of rows is. The loops inside of `row` are (halves,) reduced, columns.
        """
        s = self.s
        handles = list(s.loops(name))
        reduced = [self._loop_of(name, v) for v in self.roles.reduced]
        halves = [handles[handles.index(reduced[0]) - 1]] if halved else []
        rows = constant_extent(s.program, row.loop)
        if rows is not None and rows <= self.tile.rows:
            self._tile(name, rows, around, [row], halves, reduced, handles[-1])
        elif size == 1:
            self._tile(name, 1, row, [], halves, reduced, handles[-1])
        else:
            (tiles, within), rest = self._cut(row, size)
            self._tile(name, size, tiles, [within], halves, reduced, handles[-1])
            for remaining in rest:
                smaller = 1 << (size - 1).bit_length() - 1
                self._rows(remaining, smaller, around, self._loop_of(remaining, self.roles.row or ""), halved)

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

    def _share_panels(self, panels: LoopHandle) -> LoopHandle:
        """Make the loop over panels parallel, with the batches around it, where it is long enough; the loop that it is then.

        Early, because the proof that iterations are independent is about one block now and about all its tiles later.
        """
        count = constant_extent(self.s.program, panels.loop)
        if count is not None and count < FEW_PANELS and not self.batch:
            return panels
        try:
            joined = self.s.fuse(*self.batch, panels) if self.batch else panels
        except ScheduleError:  # there is a rest of the columns beside the panels
            return panels
        tried(partial(self.s.parallel, joined))
        return joined

    def _share_out(self, panels: LoopHandle | None, names: list[str]) -> None:
        """Make one loop parallel: batches with panels of columns, or tiles of rows where panels are few."""
        s = self.s
        count = None if panels is None else constant_extent(s.program, panels.loop)
        few = panels is None or (count is not None and count < FEW_PANELS)
        for name in names:
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
