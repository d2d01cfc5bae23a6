"""Default rule for transposes: elementwise programs that read along another index than they store, `y[i, j] = f(x[j, i])`.

    for tile of L x L (parallel):
        tile of x in registers: whole rows of it
        for i unrolled: for j as a vector: y[i, j] = f(tile[j, i])

Each cache line is read and written once, whatever the row stride; the code generator transposes the registers with shuffles. Elements of a
storage type are in the registers as loaded (i4 as i8), so each is decoded once. Remainders at the ends of rows go element by element.
"""

from __future__ import annotations

from functools import partial

from ...loop.analysis.block_kind import along, elementwise
from ...loop.analysis.nest_shape import iter_named
from ...loop.analysis.nests import constant_extent, find_block, plain_iters
from ...loop.buffer import Load
from ...loop.stmt import Block, Func
from ...support.choices import worth
from ...support.errors import ScheduleError
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.expr import FloorDiv, Var, free_vars
from ...sym.walk import walk
from ...target import Target
from ..decisions import Decide
from ..schedule import LoopHandle, Schedule
from .record import NotApplicable, Rule, required_loops, tried

MOST_LANES = 16  # largest side of `tile`: the tile takes as many registers as it has lanes, and no machine has room for 32 and the rest


@dataclass(frozen=True, slots=True)
class Transposed:
    """A record of a transposing block: the names of its iterators by role, and the load that is transposed."""

    column: str  # the last index of the store
    across: str  # the last index of the load
    others: tuple[str, ...]
    source: Load


def transposed(func: Func, block: Block, target: Target) -> Transposed | Refusal:
    """Match an elementwise block that reads one tensor transposed; return its iterator roles, or why it is none."""
    store = elementwise(block)
    order = None if store is None else plain_iters(store.indices, block)
    if store is None or order is None or len(order) != len(block.iters) or len(order) < 2:
        return Refusal(f"block `{block.name}` does not store at its iterators, each once")
    column = order[-1]
    if not along(Load(store.buffer, store.indices), column):
        return Refusal(f"block `{block.name}` does not store rows")
    across_of = {e: _across(e, block, column) for e in walk(store.value) if isinstance(e, Load) and column in free_vars(e)}
    across = {v for v in across_of.values() if v is not None}
    sources = [e for e, v in across_of.items() if v is not None]
    if len(across) != 1 or len({e.buffer for e in sources}) != 1 or len(sources) != 1:
        return Refusal(f"block `{block.name}` does not read one tensor transposed")
    at = across.pop()
    return Transposed(column.name, at.name, tuple(v.name for v in order if v is not column and v is not at), sources[0])


def _across(e: Load, block: Block, column: Var) -> Var | None:
    """Return the iterator along which a load is contiguous if that is not the column; else None."""
    iters = plain_iters(e.indices, block)
    return iters[-1] if iters and iters[-1] is not column and along(e, iters[-1]) else None


def schedule_transpose(s: Schedule, roles: Transposed, decide: Decide) -> str:
    """Tile an elementwise nest into squares that are transposed in registers; return text about it.

    Raises NotApplicable if a constant extent is shorter than a tile, or if the block shares its loops with others.
    """
    name, target = decide.block, decide.target
    block = find_block(s.program, name)
    loops = required_loops(s.program, block)
    most = min(MOST_LANES, target.vector_bits // roles.source.dtype.bits)
    extents = [constant_extent(s.program, loops[iter_named(block, which).var]) for which in (roles.column, roles.across)]
    short = min((e for e in extents if e is not None), default=most)
    if not worth(short >= most):
        raise NotApplicable(f"block `{name}` has rows of {short} elements")
    sides = [n for n in (4, 8, 16, 32) if n <= most]
    lanes = decide("tile", sides if most in sides else [most], most, why="a square of one vector by as many registers")
    _Rule(s, name, roles, lanes).apply()
    return f"transpose: `{name}` in tiles of {lanes}x{lanes} in registers"


class _Rule:
    """One application of the transpose rule to a block."""

    def __init__(self, s: Schedule, name: str, roles: Transposed, lanes: int) -> None:
        self.s, self.name, self.roles, self.lanes = s, name, roles, lanes

    def _loops(self, *iterators: str) -> list[LoopHandle]:
        return [self.s.loop(self.name, v) for v in iterators]

    def apply(self) -> None:
        """Schedule the block and its remainder blocks by primitives."""
        s, r = self.s, self.roles
        s.reorder(*self._loops(r.column, r.across, *r.others))
        c0, c1 = columns = s.split(s.loop(self.name, r.column), None, self.lanes, tail="cut")
        for rest in columns.tails:
            self._share([*(s.loop(rest, v) for v in (*r.others, r.across))], [s.loop(rest, r.column)])
        others = self._loops(*r.others)
        s.reorder(*self._loops(r.across), c0, c1, *others)
        a0, a1 = rows = s.split(s.loop(self.name, r.across), None, self.lanes, tail="cut")
        for rest in rows.tails:
            self._share([*(s.loop(rest, v) for v in (*r.others, r.across))], [*s.loops(rest, r.column)])
        at = self._share([*others, a0, c0], [a1, c1])
        source = r.source.buffer
        dtype = str(r.source.dtype) if source.dtype.storage else None
        copy = s.cache_read(self.name, source.name, at, scope="register", dtype=dtype)
        *rows, lane = s.loops(copy)[-source.ndim :]
        s.vectorize(lane)
        for row in (*rows, s.loops(self.name)[-2]):
            s.unroll(row)

    def _share(self, outer: list[LoopHandle], inner: list[LoopHandle]) -> LoopHandle:
        """Parallelize the outer loops, fused if that is legal, else the first of them; vectorize the last inner one.

        Return the loop around a tile. Reorders all of them first.
        """
        s = self.s
        s.reorder(*outer, *inner)
        try:
            with s.attempt():
                at = _joined(s, outer)
                s.parallel(at)
        except ScheduleError:
            tried(partial(s.parallel, outer[0]))
            at = outer[-1]
        s.vectorize(inner[-1])
        return at


def _joined(s: Schedule, loops: list[LoopHandle]) -> LoopHandle:
    """Fuse loops into one, and return it; raise ScheduleError if accesses could then not be proved in bounds."""
    if len(loops) == 1:
        return loops[0]
    if any(isinstance(x.loop.stop, FloorDiv) for x in loops):
        raise ScheduleError("a fused loop over a dynamic number of tiles is not proved to stay in bounds")
    whole: LoopHandle = s.fuse(*loops)
    return whole


TRANSPOSE = Rule("transpose", "transposes", transposed, schedule_transpose)
