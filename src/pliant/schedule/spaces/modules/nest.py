"""What the modules look at: the loops of a reduction by role, the registers that its tile may take, and its consumers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from ....loop.analysis.block_kind import elementwise
from ....loop.analysis.nest_shape import loop_per_iterator
from ....loop.analysis.nests import accesses, blocks, constant_extent, loops_above, path_to, plain_iters
from ....loop.stmt import Block, For, Func, Reduce, Seq, zero
from ....sym.expr import free_vars
from ....target import Target
from ...library import Loops, tried
from ...schedule import LoopHandle, Schedule

SPARE = 2  # vector registers that a tile leaves to its operands
MOST_VECTORS = 4  # most vectors of a tile along its lanes
MOST_ROWS = 8  # most iterations of any other loop of a tile
MOST_UNROLLED = 8  # steps of the innermost loop of a sum
MOST_WHOLE = 32  # steps of loops that are unrolled whole
LANE = 0.8  # how likely the lanes of a drawn tile are contiguous in the result


@dataclass(frozen=True, slots=True)
class Nest:
    """The iterators of a reduction in a nest of its own: those of the result, in the order of its dims, and those of the sum."""

    name: str
    spatial: tuple[str, ...]
    fixed: tuple[str, ...]  # iterators of the result on which extents depend: they stay outside
    reduced: tuple[str, ...]
    bits: int  # of an element of the result


@dataclass(frozen=True, slots=True)
class Tile:
    """The innermost loops of a tile: the iterator along the lanes, vectors and lanes of it, and the iterations of each other iterator."""

    lane: str
    vectors: int
    lanes: int
    rows: dict[str, int]


def nest_of(func: Func, block: Block, whole: bool = False) -> Nest | None:
    """Return the iterators of a reduction with its init in a nest of its own; None for any other block, also for one that is scheduled.

    Other than for rules, it may have a predicate, and extents may depend on outer loops. None also for a reduction of everything to one
    element, unless `whole`.
    """
    s, around = block.body, loops_above(func, block)
    loops = loop_per_iterator(around, block)
    if not isinstance(s, Reduce) or len(s.targets) != 1 or block.init is None or not isinstance(loops, dict) or len(loops) != len(around):
        return None
    if any(x.kind != "serial" or blocks(x) != [block] or x.start is not zero() or isinstance(x.body, Seq) for x in around):
        return None
    if not all(isinstance(x, (For, Seq)) for x in path_to(func, block)):
        return None
    order = plain_iters(s.targets[0].indices, block)
    spatial = {i.var for i in block.iters if i.kind == "S"}
    if order is None or set(order) != spatial or any(i.kind == "O" for i in block.iters):
        return None
    bounding = {v for x in around for v in free_vars(x.stop)}
    moving = tuple(v.name for v in order if loops[v].var not in bounding)
    if not (moving or (whole and not order)):
        return None
    fixed = tuple(v.name for v in order if loops[v].var in bounding)
    return Nest(block.name, moving, fixed, tuple(i.var.name for i in block.iters if i.kind == "R"), s.targets[0].dtype.bits)


def extent_of(s: Schedule, nest: Nest, iterator: str) -> int | None:
    """Return the constant extent of an iterator's loop before it is split; None if it has none."""
    return constant_extent(s.program, s.loop(nest.name, iterator).loop)


def sample_tile(s: Schedule, nest: Nest, target: Target) -> Tile:
    """Sample a tile that fits the vector registers: `<block>.lane`, `<block>.vectors`, and `<block>.rows<n>` for each other dim n."""
    last = len(nest.spatial) - 1
    at = last
    if last:
        weights = [(1 - LANE) / last] * last + [LANE]
        at = int(s.sample_categorical(tuple(range(last + 1)), weights, name=f"{nest.name}.lane"))
    extent = extent_of(s, nest, nest.spatial[at])
    lanes = max(1, target.vector_bits // max(nest.bits, 8))
    while extent is not None and lanes // 2 >= extent:
        lanes //= 2
    most = MOST_VECTORS if extent is None else min(MOST_VECTORS, -(-extent // lanes))
    vectors = int(s.sample_categorical(tuple(range(1, most + 1)), name=f"{nest.name}.vectors"))
    left = max(1, (target.n_vector_registers - SPARE) // vectors)
    rows: dict[str, int] = {}
    tailed = False
    for n in reversed([n for n in range(last + 1) if n != at]):
        extent = extent_of(s, nest, nest.spatial[n])
        most = min(MOST_ROWS, left, MOST_ROWS if extent is None else max(extent, 1))
        legal = [r for r in range(1, most + 1) if not tailed or not _leaves(extent, r)]  # there are no tails of tails
        size = int(s.sample_categorical(tuple(legal), name=f"{nest.name}.rows{n}"))
        rows[nest.spatial[n]], left, tailed = size, left // size, tailed or _leaves(extent, size)
    return Tile(nest.spatial[at], vectors, lanes, rows)


def _leaves(extent: int | None, size: int) -> bool:
    """True if iterations remain behind tiles of a size."""
    return size > 1 and (extent is None or extent % size != 0)


def with_tails_outside(s: Schedule, nest: Nest, tile: Tile) -> tuple[str, ...]:
    """Return the iterators in the order in which their loops are split: that with remaining rows first, after moving its loop outside.

    So remaining rows are a nest of their own, and not a part of one.
    """
    tailed = [i for i, size in tile.rows.items() if _leaves(extent_of(s, nest, i), size)]
    order = (*tailed, *(i for i in nest.spatial if i not in tailed))
    if tailed:
        s.reorder(*(s.loop(nest.name, i) for i in (*tailed, *nest.fixed, *order[len(tailed) :], *nest.reduced)))
    return order


def sample_reads(s: Schedule, nest: Nest, block: Block, at: LoopHandle) -> None:
    """Sample for each operand whether a copy of what a tile reads is made when it begins: `<block>.read<n>`."""
    operands = dict.fromkeys(a.buffer.name for a in accesses(block) if not a.write)
    results = {a.buffer.name for a in accesses(block) if a.write}
    for n, name in enumerate(x for x in operands if x not in results):
        legal = tried(partial(s.copy().cache_read, nest.name, name, at, scope="stack"))
        if legal and s.sample_categorical((0, 1), (0.8, 0.2), name=f"{nest.name}.read{n}"):
            s.cache_read(nest.name, name, at, scope="stack")


def sample_unroll(s: Schedule, name: str, loops: Sequence[LoopHandle]) -> int:
    """Sample how many of the innermost loops of a sum are unrolled whole, as those over a window: `<block>.whole`; unrolls them.

    Return how many steps of the innermost loop are to be unrolled where none is, a divisor of their number: `<block>.unroll`.
    """
    extents = [constant_extent(s.program, h.loop) or 0 for h in loops]  # 0: unknown
    most = max(n for n in range(len(loops) + 1) if 0 < prod(extents[len(loops) - n :]) <= MOST_WHOLE)
    whole = int(s.sample_categorical(tuple(range(most + 1)), name=f"{name}.whole")) if most else 0
    for h in loops[len(loops) - whole :]:
        s.unroll(h)
    legal = [n for n in range(1, MOST_UNROLLED + 1) if extents[-1] and extents[-1] % n == 0]
    return int(s.sample_categorical(tuple(legal), name=f"{name}.unroll")) if not whole and len(legal) > 1 else 1


def levels_of_result(s: Schedule, name: str, nest: Nest, tile: Tile, count: int) -> list[list[LoopHandle]]:
    """Return the loops over the result by levels, outermost first; a block of remaining rows has the outer ones all in one level."""
    levels: list[list[LoopHandle]] = [[s.loop(name, i) for i in nest.fixed], *([] for _ in range(count - 1))]
    for iterator in (*(i for i in nest.spatial if i != tile.lane), tile.lane):
        own = s.loops(name, iterator)
        inside = 2 if iterator == tile.lane else 1
        outer = own[: len(own) - inside]
        for n, h in enumerate(outer):
            levels[n if len(outer) == count - 1 else 0].append(h)
        levels[-1] += own[len(own) - inside :]
    return levels


def levels_of_sum(s: Schedule, name: str, loops: Loops, count: int, splits: bool) -> tuple[Loops, list[list[LoopHandle]]]:
    """Return the loops of a sum, and the same by levels: its parts are levels, else the last loop may be split: `<block>.terms`."""
    if count == 1:
        return loops, [list(loops.loops)]
    cut = max(loops.parts, default=-1) + 1
    *outer, last = loops.loops[cut:]
    if cut or not splits or (constant_extent(s.program, last.loop) or 1) == 1:
        return loops, [*([] for _ in range(count - 2)), list(loops.loops[:cut]), [*outer, last]]
    pieces = s.split(last, *s.sample_perfect_tile(last, count, name=f"{name}.terms"))
    return Loops((*outer, *pieces)), [[*outer, pieces[0]], *([p] for p in pieces[1:])]


def join_consumers(s: Schedule, name: str) -> None:
    """Compute the elementwise blocks that follow a block in its write-back, as far as that is legal."""
    order = [b.name for b in blocks(s.program.body)]
    for b in blocks(s.program.body)[order.index(name) + 1 :]:
        if elementwise(b) is not None:
            tried(partial(s.reverse_compute_inline, b.name))
