"""Where images have their pixels: which dims of a loop program's buffers are the rows and columns of an image.

    y[c, i, j] += x[k, i * 2 + a, j * 2 + b] * w[c, k, a, b]      the rows of x are dim 1, so those of y are dim 1
    m[c] += x[c, i, j]                                            m has no pixels: each element depends on the whole image

Nothing here knows operators. A buffer has pixels if each element depends on a window of the pixels of what it is computed from, and one
iterator of the block moves that window along the rows, the next one along the columns. Columns are always the dim after the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from ...loop.analysis.nest_shape import plain_loops
from ...loop.analysis.nests import blocks, loops_above
from ...loop.buffer import Buffer, Load, has_load, loads_in
from ...loop.stmt import Alloc, Block, For, Func, Reduce, Seq, Stmt, Store
from ...support.refusal import Refusal
from ...sym.expr import Expr, Var, free_vars

Rows = Mapping[Buffer, int]  # of each buffer with pixels: the dim of its rows


@dataclass(frozen=True, slots=True)
class Stage:
    """A block of a loop program that computes one buffer, with the loops of its iterators."""

    block: Block
    loops: Mapping[Var, For]  # by iterator, outermost first
    target: Load  # the element that an instance writes
    values: tuple[Expr, ...]  # what the element is computed from, without the element itself

    @property
    def loads(self) -> list[Load]:
        """The elements that an instance reads, without the one that it writes."""
        return [x for x in loads_in(self.values) if x is not self.target]

    def pixel(self, rows: Rows) -> tuple[Var, Var]:
        """Returns the iterators of the row and of the column that an instance writes."""
        r = rows[self.target.buffer]
        row, column = self.target.indices[r : r + 2]
        assert isinstance(row, Var)
        assert isinstance(column, Var)
        return row, column


def stages_of(func: Func) -> list[Stage] | Refusal:
    """Returns the blocks of a loop program in order, or why it is not a sequence of plain loop nests that each write one buffer."""
    if func.attrs.scheduled:
        return Refusal(f"`{func.name}` has a schedule of its own")
    for s in func.body.body if isinstance(func.body, Seq) else (func.body,):
        if not isinstance(s, Alloc | For | Block):
            return Refusal(f"`{func.name}` has code outside of its loops")
    stages: list[Stage] = []
    for b in blocks(func.body):
        plain, s = plain_loops(func, b), b.body
        if isinstance(plain, Refusal):
            return plain
        iterators = {x: v for v, x in plain.items()}
        loops = {iterators[x]: x for x in loops_above(func, b)}
        if any(i.kind == "O" for i in b.iters):
            return Refusal(f"block `{b.name}` has an ordered iterator")
        if isinstance(s, Store):
            stages.append(Stage(b, loops, Load(s.buffer, s.indices), (s.value,)))
        elif isinstance(s, Reduce) and len(s.targets) == 1:
            stages.append(Stage(b, loops, s.targets[0], (*s.values, *_initial(b.init))))
        else:
            return Refusal(f"block `{b.name}` is neither a store nor a reduction of one value")
    return stages


def _initial(init: Stmt | None) -> tuple[Expr, ...]:
    """Returns the value that an init stores."""
    return (init.value,) if isinstance(init, Store) else ()


def rows_of(stages: list[Stage], inputs: Rows) -> Rows:
    """Returns the dim of the rows of each buffer that has pixels, given those of the inputs.

    A buffer that some block fills without pixels has none.
    """
    rows = dict(inputs)
    none: set[Buffer] = set()
    for stage in stages:
        written = stage.target.buffer
        places = {_moved(stage, x, rows[x.buffer]) for x in stage.loads if x.buffer in rows}
        if len(places) == 1 and None not in places and written not in none:
            (place,) = places
            assert place is not None
            if rows.setdefault(written, place) == place:
                continue
        if places or written in rows:
            rows.pop(written, None)
            none.add(written)
    return rows


def _moved(stage: Stage, x: Load, rows: int) -> int | None:
    """Returns the dim of the target whose iterator moves along the rows of a load, while the next one moves along its columns.

    None if there is no such dim, or several.
    """
    if any(has_load(e) for e in x.indices[rows : rows + 2]):
        return None
    spatial = {i.var for i in stage.block.iters if i.kind == "S"}
    down, across = (free_vars(e) & spatial for e in x.indices[rows : rows + 2])
    target = stage.target.indices
    pairs = enumerate(pairwise(target))
    dims = [k for k, (row, column) in pairs if row in down - across and column in across - down]
    return dims[0] if len(dims) == 1 else None


def keeps_pixels(stages: list[Stage], rows: Rows, inputs: Rows) -> bool:
    """True if every buffer has pixels, and local ones are read at the pixel that an instance writes, so a program runs pixel by pixel."""
    for stage in stages:
        if stage.target.buffer not in rows:
            return False
        pixel = stage.pixel(rows)
        for x in stage.loads:
            r = rows.get(x.buffer)
            if r is not None and x.buffer not in inputs and x.indices[r : r + 2] != pixel:
                return False
    return True
