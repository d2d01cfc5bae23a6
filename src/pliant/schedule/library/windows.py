"""The default rule of reductions over windows: depthwise convolutions and pools, `y[…, p, q] += x[…, p * 2 + a, q * 2 + b] * w[…, a, b]`.

    for …, tile of R rows p (parallel):
        rows of x that the tile reads, with their padding, on the stack
        for vector of q:
            tile of y in registers = 0
            for a, b unrolled: for p unrolled: for q as a vector: tile[p, q] = fma(x[p * 2 + a, q * 2 + b], w[a, b], tile[p, q])
            y = epilogue(tile)

Vectors lie along the last index of the result; what is read there are its neighbours, and everything else is the same in all
lanes. Rows that windows have in common are read once, as the windows are unrolled. The reduction runs in the order of the program.
"""

from __future__ import annotations

from functools import partial
from math import prod

from ...loop.buffer import Buffer, Load
from ...loop.stmt import Block, Reduce, Store
from ...support.errors import ScheduleError
from ...support.record import dataclass
from ...sym.expr import Const, Mul, Var, free_vars, walk
from ...target import Target
from ..dependence import linear
from ..nest import accesses, allocation, blocks, constant_extent, plain_iters, readers, writers
from ..schedule import LoopHandle, Schedule
from .match import NotApplicable, alone, elementwise, find_block, iter_named, plain_loops, tried

MOST_TAPS = 64  # of a window that is unrolled
MOST_ROWS = 4  # of a tile
LARGEST_COPY = 2**15  # bytes of rows on the stack


@dataclass(frozen=True, slots=True)
class Windows:
    """The roles of the iterators."""

    outer: tuple[str, ...]
    row: str | None  # the last but one index of the result
    column: str  # its last one
    reduced: tuple[str, ...]


def windows_of(block: Block) -> Windows | str:
    """The roles of the iterators of a reduction over windows; else why it is none."""
    s = block.body
    if not isinstance(s, Reduce) or s.combiner.left or block.init is None or len(s.targets) != 1:
        return f"block `{block.name}` is no reduction with a named combiner and an init"
    out = plain_iters(s.targets[0].indices, block)
    if not out or set(out) != {i.var for i in block.iters if i.kind == "S"} or any(i.kind == "O" for i in block.iters):
        return f"the result of block `{block.name}` is not indexed by its S iterators, each once"
    moving = [e for e in walk(s.values[0]) if isinstance(e, Load) and out[-1] in free_vars(e)]
    if not moving or not all(_neighbours(e, out[-1]) for e in moving):
        return f"what block `{block.name}` reads along `{out[-1].name}` is not neighbours"
    taken = {i.var for i in block.iters if i.kind == "R"}
    if not any(taken & free_vars(i) and set(out) & free_vars(i) for e in moving for i in e.indices):
        return f"what block `{block.name}` reduces are no windows"
    outer = tuple(v.name for v in out[:-2])
    reduced = tuple(i.var.name for i in block.iters if i.kind == "R")
    return Windows(outer, out[-2].name if len(out) > 1 else None, out[-1].name, reduced)


def _neighbours(e: Load, v: Var) -> bool:
    """Whether a load goes along the rows of its tensor with `v`, in equal steps."""
    if e.buffer.strides is not None or any(v in free_vars(i) for i in e.indices[:-1]):
        return False
    parts = linear(e.indices[-1], v)
    return parts is not None and list(parts[0]) == [()] and parts[0][()] > 0


def schedule_windows(s: Schedule, name: str, target: Target) -> str:
    """Tile the reduction over windows `name` for registers, threads and vectors, with its elementwise consumers in the write-back."""
    func = s.program
    block = find_block(func, name)
    roles = windows_of(block)
    if isinstance(roles, str):
        raise NotApplicable(roles)
    loops = plain_loops(func, block)
    if isinstance(loops, str):
        raise NotApplicable(loops)
    taps = prod(constant_extent(func, loops[i.var]) or 0 for i in block.iters if i.kind == "R")
    if not 1 <= taps <= MOST_TAPS:
        raise NotApplicable(f"the windows of block `{name}` have {taps or 'an unknown number of'} elements")
    order = blocks(func.body)
    epilogue = [b.name for b in order[order.index(block) + 1 :] if elementwise(b) is not None]
    text = _Rule(s, name, roles, target).apply()
    folded = [e for e in epilogue if tried(partial(s.reverse_compute_inline, e))]
    return text + (f", with {', '.join(f'`{e}`' for e in folded)} in its write-back" if folded else "")


class _Rule:
    """One application of the rule."""

    def __init__(self, s: Schedule, name: str, roles: Windows, target: Target) -> None:
        self.s, self.name, self.roles, self.target = s, name, roles, target
        body = find_block(s.program, name).body
        assert isinstance(body, Reduce)
        self.reduce = body
        self.lanes = max(1, target.vector_bits // body.targets[0].dtype.bits)
        rows = self._loop(roles.row) if roles.row else None
        extent = constant_extent(s.program, rows.loop) if rows else None
        self.rows = next((r for r in range(MOST_ROWS, 0, -1) if extent and extent % r == 0), 1)

    def _loop(self, iterator: str) -> LoopHandle:
        value = iter_named(find_block(self.s.program, self.name), iterator).value
        return next(h for h in self.s.loops(self.name) if h.loop.var is value)

    def apply(self) -> str:
        """Schedule the block; what was done, in words."""
        s, r = self.s, self.roles
        outer = [self._loop(v) for v in r.outer]
        row = self._loop(r.row) if r.row else None
        column, reduced = self._loop(r.column), [self._loop(v) for v in r.reduced]
        s.reorder(*outer, *([row] if row else []), column, *reduced)
        if self._sums_products() and self.target.has_fma:
            s.contract(self.name)
        within: list[LoopHandle] = []
        if row is not None:
            tiles, inner = s.split(row, None, self.rows)
            outer, within = [*outer, tiles], [inner]
        at = s.fuse(*outer) if len(outer) > 1 else outer[0] if outer else None
        if at is not None:
            s.parallel(at)
            s.reorder(column, *within, *reduced)
        copied = at is not None and self._padded_rows(at)
        self._columns(at, column, within, reduced)
        side = ", rows with their padding on the stack" if copied else ""
        return f"windows: `{self.name}` in tiles of {self.rows}x{self.lanes} in registers{side}"

    def _sums_products(self) -> bool:
        r = self.reduce
        return r.combiner.name == "add" and isinstance(r.values[0], Mul) and r.targets[0].dtype.is_float

    def _padded_rows(self, at: LoopHandle) -> bool:
        """Copy the rows that a tile reads where they are made by an elementwise block: that is done there then."""
        made = self._producer()
        return made is not None and tried(partial(self._copy, at, *made))

    def _producer(self) -> tuple[str, str] | None:
        """The elementwise block that makes an operand that only this block reads, and the operand."""
        func = self.s.program
        block = find_block(func, self.name)
        for buffer in {a.buffer: None for a in accesses(block) if not a.write}:
            by = writers(func, buffer)
            if allocation(func, buffer) is not None and len(by) == 1 and elementwise(by[0]) and readers(func, buffer) == [block]:
                return by[0].name, buffer.name
        return None

    def _copy(self, at: LoopHandle, producer: str, buffer: str) -> None:
        s = self.s
        with s.attempt():
            copy = s.cache_read(self.name, buffer, at, scope="stack")
            store = copy.block.body
            if not isinstance(store, Store) or _bytes(store.buffer) > LARGEST_COPY:
                raise ScheduleError(f"the rows of `{buffer}` that a tile reads are too long for the stack")
            s.compute_inline(producer)
            s.vectorize(s.loops(copy)[-1])

    def _columns(self, at: LoopHandle | None, column: LoopHandle, within: list[LoopHandle], reduced: list[LoopHandle]) -> None:
        """Vectors of columns, and a masked one for those that remain."""
        s = self.s
        extent = constant_extent(s.program, column.loop)
        depth = len(within) + len(reduced)
        if extent is not None and extent < self.lanes:
            vector, lane = s.split(column, self.lanes)
            self._tile(self.name, vector, lane, depth)
            return
        before = {b.name for b in blocks(s.program.body)}
        vector, lane = s.split(column, None, self.lanes, tail="cut")
        for rest in {b.name for b in blocks(s.program.body)} - before:
            chain = s.loops(rest)
            last, masked = s.split(chain[-1 - depth], self.lanes)
            self._tile(rest, last, masked, depth)
        self._tile(self.name, vector, lane, depth)

    def _tile(self, name: str, at: LoopHandle, lane: LoopHandle, depth: int) -> None:
        """Reduce one tile in registers; the loops inside of `at` are lane, then `depth` of (row, reduced)."""
        s = self.s
        inner = s.loops(name)[-depth:]
        rows, reduced = inner[: depth - len(self.roles.reduced)], inner[depth - len(self.roles.reduced) :]
        s.reorder(*reduced, *rows, lane)
        written = s.cache_write(name, at, scope="register")
        for h in (*reduced, *rows):
            s.unroll(h)
        s.vectorize(lane)
        *outer, last = [h for h in s.loops(written) if h.loop in alone(s.program, written.block)]
        for h in outer:
            s.unroll(h)
        s.vectorize(last)
        s.decompose_reduction(name, reduced[0])


def _bytes(b: Buffer) -> int:
    return prod(int(e.value) for e in b.shape if isinstance(e, Const)) * b.dtype.bits // 8
