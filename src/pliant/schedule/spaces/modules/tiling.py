"""Multi-level tiling of a reduction by a structure: each S is a level of loops over the result, each R one over the terms of the sum.

    tiling("SSRS"):   for i_0, j_0:  for i_1, j_1:  c_tile = …;  for k:  for i_2, j_2:  c_tile[…] += …
                                                    for i_2, j_2:  c[…] = relu(c_tile[…])

The levels after the last R are a tile: in registers, unrolled and a vector, if nothing but the sum is around it, else in memory of its own
(the write cache). Blocks of the remaining rows are tiled alike; what is elementwise and follows goes into the write-back. Operands may be
copied to memory of their own when a tile begins (read caches). A sum keeps its order: only its innermost loop has several levels.
"""

from __future__ import annotations

from functools import partial

from ....loop.analysis.nests import constant_extent
from ....loop.buffer import Scope
from ....support.errors import ScheduleError
from ....support.source import caller_span
from ....target import Target
from ...library import cut_sum, end_sum
from ...schedule import BlockHandle, Schedule
from ..module import Module, Ways
from . import nest as loops_of
from .nest import Nest, Tile


def tiling(structure: str = "SSRS") -> Module:
    """Return the module of a structure: S and R, of each at least one, an S last. Raises a ScheduleError for another text."""
    if set(structure) != {"S", "R"} or not structure.endswith("S"):
        help = "as in SSRS: a level of loops over the result for each S, over the terms for each R"
        raise ScheduleError(f"{structure!r} is no structure of tiles", where=caller_span(), help=help)
    return Module(f"tiling_{structure}", partial(_tiled, structure), takes_target=True)


def _tiled(structure: str, s: Schedule, block: BlockHandle, target: Target) -> Ways:
    nest = loops_of.nest_of(s.program, block.block)
    if nest is None:
        return
    tile = loops_of.sample_tile(s, nest, target)
    names = [nest.name]
    for iterator in loops_of.with_tails_outside(s, nest, tile):
        lane = iterator == tile.lane
        inner = (tile.vectors, tile.lanes) if lane else (tile.rows[iterator],)
        for name in list(names):  # a block of remaining rows has the other loops whole
            names += s.split(s.loop(name, iterator), None, *inner, tail="guard" if lane else "balance").tails
    levels = structure.count("S") - 1
    for n, iterator in enumerate(nest.spatial):
        outer = s.loops(nest.name, iterator)[0]
        if levels > 1 and (constant_extent(s.program, outer.loop) or 0) > 1:
            s.split(outer, *s.sample_perfect_tile(outer, levels, name=f"{nest.name}.outer{n}"))
    for name in names:
        _sum(s, name, nest, tile, structure, target)
    for name in names:
        loops_of.join_consumers(s, f"{name}_write")
    yield s


def _sum(s: Schedule, name: str, nest: Nest, tile: Tile, structure: str, target: Target) -> None:
    """Order the loops of a block as the structure says, and sums in a tile of its own."""
    own, first = name == nest.name, structure.index("R")
    over = loops_of.levels_of_result(s, name, nest, tile, structure.count("S"))
    loops = cut_sum(s, name, [s.loop(name, r) for r in nest.reduced], target)
    loops, terms = loops_of.levels_of_sum(s, name, loops, structure.count("R"), own)
    levels = {"S": iter(over), "R": iter(terms)}
    order = [next(levels[kind]) for kind in structure]
    s.reorder(*(h for level in order for h in level))
    outside = [h for level in order[:first] for h in level]
    if own and outside:
        loops_of.sample_reads(s, nest, s.block(name).block, outside[-1])
    scope: Scope = "register" if set(structure[first:-1]) == {"R"} else "stack"
    written = s.cache_write(name, outside[-1] if outside else None, scope=scope)
    unrolled = loops_of.sample_unroll(s, name, loops.loops) if own else 1
    end_sum(s, name, loops, written, order[-1], target, scope)
    if unrolled > 1:
        s.unroll(s.split(s.loops(name)[-1 - len(order[-1])], None, unrolled)[1])
