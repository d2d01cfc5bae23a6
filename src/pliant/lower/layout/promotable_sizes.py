"""Finds constant sizes of a loop program that its schedule does not depend on, so that they can become arguments ("free" sizes).

    y[n, t, h, w, 16] += x[n, s, h + a, w + b, 16] * w[t, s * 16 + c, a, b, 16]        # s and t: numbers of channel blocks

A loop is free if it steps over large parts of memory: in every index expression its iterator is the most significant digit, and it never
steps over adjacent elements, which are vector lanes. Not free are lanes, filter windows, iterators under a division, and the loops that a
rule keeps in a register tile. An axis of a buffer is free if only free loops index it, and if it does not determine the distance between
rows of a register tile: such distances are constants in addresses, and would take a register each.

The rule itself says which loops it keeps in registers (`Rule.promotable`). It also returns the choices that it would otherwise derive from
the sizes: its register tile (`tiles`), the required divisors of extents (`steps`), and how it splits its sums (`parts`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...loop.analysis.nest_shape import plain_loops
from ...loop.analysis.nests import accesses, blocks
from ...loop.buffer import Buffer
from ...loop.stmt import Alloc, Block, For, Func, Reduce, Seq, Store, walk_stmts
from ...schedule.decisions import OfKernel
from ...schedule.dependence import linear
from ...schedule.library import Parts, Promotable, Tile, promotable
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.expr import Const, Expr, Var, free_vars
from ...target import Target

Axis = tuple[Buffer, int]
Nest = dict[Var, For]


@dataclass(frozen=True, slots=True)
class FreeSizes:
    """A record of the constants that may become arguments of a kernel: extents of loops and buffer axes, and constants beside them."""

    loops: frozenset[Var]
    iterators: frozenset[Var]
    axes: frozenset[Axis]
    steps: dict[Var, int]  # the required divisor of the extent of a loop
    tiles: dict[str, Tile]  # the register tile of a block, whatever the free sizes are
    parts: dict[str, Parts]  # how a block splits its sum, whatever the free sizes are


def free_sizes(func: Func, target: Target, decisions: OfKernel | None = None) -> FreeSizes:
    """Returns the constant sizes of a program that its schedule does not depend on; `decisions` fixes the register tiles."""
    free = _Free(func, target, decisions)
    return FreeSizes(frozenset(free.loops), frozenset(free.iterators), frozenset(free.axes()), free.steps, free.tiles, free.parts)


class _Free:
    """Collects the loops and iterators of a program whose extents the schedule does not depend on, and the rows of register tiles."""

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
        """Adds the iterators of a block whose extents its rule need not know, and the tile and parts that the rule chooses."""
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
        """Yields the buffer axes that only loops of such free extents index, outside of the rows of register tiles."""
        fixed: set[Axis] = set()
        candidates: set[Axis] = set()
        for b in self.blocks:
            for a in accesses(b):
                inside = False
                for k, e in enumerate(a.indices):
                    used = free_vars(e)
                    (fixed if inside or (used and used.isdisjoint(self.iterators)) else candidates).add((a.buffer, k))
                    inside = inside or not used.isdisjoint(self.rows)
        return (x for x in candidates - fixed if _is_size(*x))


def _is_size(b: Buffer, axis: int) -> bool:
    """True if an axis has a constant extent above 1 and the buffer is contiguous with elements of whole bytes."""
    size = b.shape[axis]
    return isinstance(size, Const) and size.value > 1 and b.strides is None and b.dtype.bits >= 8


def _is_plain(func: Func) -> bool:
    """True if a program consists of loop nests around blocks whose body, and init, is one store or reduction, without declared regions."""
    inner = [s for b in blocks(func.body) for s in (b.body, b.init) if s is not None]
    plain = all(isinstance(s, Store | Reduce) for s in inner) and all(b.reads is None and b.writes is None for b in blocks(func.body))
    rest = [s for s in walk_stmts(func.body) if s not in inner]
    return plain and all(isinstance(s, Seq | Alloc | For | Block) for s in rest)


def _extent(loop: For) -> int:
    """Returns the constant extent of a loop; 0 if it is symbolic."""
    return int(loop.stop.value) if isinstance(loop.stop, Const) else 0


def _is_free(v: Var, block: Block, nest: Nest) -> bool:
    """True if an iterator is the most significant digit of every index that it occurs in."""
    for a in accesses(block):
        for k, e in enumerate(a.indices):
            if v in free_vars(e) and not _is_first_digit(v, e, nest, last=k == len(a.indices) - 1):
                return False
    return True


def _is_first_digit(v: Var, e: Expr, nest: Nest, last: bool) -> bool:
    """True if the other terms of an index stay within one step of `v`; in the `last` index a step must be more than one element."""
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
