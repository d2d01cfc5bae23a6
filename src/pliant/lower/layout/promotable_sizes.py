"""Which constant sizes of a loop program its schedule does not need to know: they may be arguments as well.

    y[n, t, h, w, 16] += x[n, s, h + a, w + b, 16] * w[t, s * 16 + c, a, b, 16]        # s and t: how many blocks of channels there are

A loop is free if it goes from one large part of memory to the next: in every index that it is in, it is the digit of most weight, and
never along neighboring elements, which are vectors. So are not free: lanes, windows, what a quotient is taken of, and the loops that
a rule keeps in registers. An axis of a buffer is free if free loops go along it, and if it is no distance between the rows of a tile:
these are constants in addresses, and would be a register each.

Which loops a rule keeps in registers it says itself (`Rule.promotable`), with what its schedule must be told where others are free: the
tile that it takes (`tiles`), what an extent stays a multiple of (`steps`), in which parts it sums (`parts`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...loop.analysis.nests import accesses, blocks
from ...loop.buffer import Buffer
from ...loop.stmt import Alloc, Block, For, Func, Reduce, Seq, Store, walk_stmts
from ...schedule.decisions import OfKernel
from ...schedule.dependence import linear
from ...schedule.library import Parts, Promotable, Tile, promotable
from ...schedule.plain_nest import plain_loops
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.expr import Const, Expr, Var, free_vars
from ...target import Target

Axis = tuple[Buffer, int]
Nest = dict[Var, For]


@dataclass(frozen=True, slots=True)
class FreeSizes:
    """What may be an argument: extents of loops and of axes of buffers, and what is compared with or added to free iterators."""

    loops: frozenset[Var]
    iterators: frozenset[Var]
    axes: frozenset[Axis]
    steps: dict[Var, int]  # what the extent of a loop stays a multiple of
    tiles: dict[str, Tile]  # which blocks keep in registers, whatever the free sizes are
    parts: dict[str, Parts]  # in which blocks sum, whatever the free sizes are


def free_sizes(func: Func, target: Target, decisions: OfKernel | None = None) -> FreeSizes:
    """The sizes of a program that its schedule does not need to know; `decisions` has the tiles that it will take."""
    found = _Free(func, target, decisions)
    return FreeSizes(frozenset(found.loops), frozenset(found.iterators), frozenset(found.axes()), found.steps, found.tiles, found.parts)


class _Free:
    """The free loops and iterators of a program, and the iterators that are rows of tiles."""

    def __init__(self, func: Func, target: Target, decisions: OfKernel | None) -> None:
        self.func, self.target = func, target
        self.loops: set[Var] = set()
        self.iterators: set[Var] = set()
        self.rows: set[Var] = set()
        self.steps: dict[Var, int] = {}
        self.tiles: dict[str, Tile] = {}
        self.parts: dict[str, Parts] = {}
        self.blocks = blocks(func.body) if _is_plain(func) else []
        for b in self.blocks:
            nest = plain_loops(func, b)
            sizes = None if isinstance(nest, Refusal) else promotable(func, b, nest, target, decisions)
            if sizes is not None and not isinstance(nest, Refusal):
                self._take(b, nest, sizes)

    def _take(self, block: Block, nest: Nest, sizes: Promotable) -> None:
        """The free iterators of a block, and what its rule must be told."""
        free = {v for v in sizes.iterators if _extent(nest[v]) > 1 and _is_free(v, block, nest)}
        self.iterators |= free
        self.loops |= {nest[v].var for v in free}
        self.rows |= sizes.rows
        self.steps.update((nest[v].var, step) for v, step in sizes.steps.items())
        if sizes.tile is not None:
            self.tiles[block.name] = sizes.tile
        if sizes.parts is not None:
            self.parts[block.name] = sizes.parts

    def axes(self) -> Iterator[Axis]:
        """The axes that only free loops go along, none of them inside of the rows of a tile."""
        fixed: set[Axis] = set()
        found: set[Axis] = set()
        for b in self.blocks:
            for a in accesses(b):
                inside = False
                for k, e in enumerate(a.indices):
                    used = free_vars(e)
                    (fixed if inside or (used and used.isdisjoint(self.iterators)) else found).add((a.buffer, k))
                    inside = inside or not used.isdisjoint(self.rows)
        return (x for x in found - fixed if _is_size(*x))


def _is_size(b: Buffer, axis: int) -> bool:
    """Whether an axis has a constant extent from which all distances in a buffer follow."""
    size = b.shape[axis]
    return isinstance(size, Const) and size.value > 1 and b.strides is None and b.dtype.bits >= 8


def _is_plain(func: Func) -> bool:
    """Whether a program is nests of blocks that are one statement each, over all of its memory."""
    inner = [s for b in blocks(func.body) for s in (b.body, b.init) if s is not None]
    plain = all(isinstance(s, Store | Reduce) for s in inner) and all(b.reads is None and b.writes is None for b in blocks(func.body))
    rest = [s for s in walk_stmts(func.body) if s not in inner]
    return plain and all(isinstance(s, Seq | Alloc | For | Block) for s in rest)


def _extent(loop: For) -> int:
    """A constant; 0 for what is none."""
    return int(loop.stop.value) if isinstance(loop.stop, Const) else 0


def _is_free(v: Var, block: Block, nest: Nest) -> bool:
    """Whether an iterator goes from one large part of memory to the next, wherever it is in an index."""
    for a in accesses(block):
        for k, e in enumerate(a.indices):
            if v in free_vars(e) and not _is_first_digit(v, e, nest, last=k == len(a.indices) - 1):
                return False
    return True


def _is_first_digit(v: Var, e: Expr, nest: Nest, last: bool) -> bool:
    """Whether everything else in an index stays within one step of `v`; more than one element, where elements are neighbors."""
    parts = linear(e, v)
    if parts is None or set(parts[0]) != {()}:
        return False
    step, spread = int(parts[0][()]), 0
    for term, factor in parts[1].items():
        if term == ():
            continue
        if len(term) != 1 or not isinstance(term[0], Var) or term[0] not in nest or not _extent(nest[term[0]]):
            return False
        spread += abs(int(factor)) * (_extent(nest[term[0]]) - 1)
    return spread < step and not (last and step == 1)
