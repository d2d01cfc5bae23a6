"""Tiling with tensor instructions: a block becomes an instruction of the machine, in tiles of loops around it, or stays as it is.

    for i_0, j_0:  tiles of the result in registers;  for k_0:  dot_u8s8(tile, a[…], b[…]);  tiles to memory

Which instructions can do a block, and how its operands are laid out for one, is found by `auto_tensorize`: each is one way to go on.
"""

from __future__ import annotations

from functools import partial

from ....loop.analysis.nests import constant_extent, fed_by
from ....target import Target
from ...auto_tensorize import auto_tensorize, matches
from ...library import tried
from ...schedule import BlockHandle, LoopHandle, Schedule
from ..module import Module, Ways

IN_REGISTERS = (0, 1, 2, 4, 8)  # tiles of the result side by side; 0: in memory


def _tensorized(s: Schedule, block: BlockHandle, target: Target) -> Ways:
    name = block.block.name
    found = matches(s.program, block.block, target)
    for n, m in enumerate(found):
        way = s.copy()
        tiles = way.sample_categorical(IN_REGISTERS, name=f"{name}.tiles")
        if tried(partial(_apply, way, name, m.instruction, tiles, f"{name}.tile{n}_")):
            yield way
    if found:
        yield s  # as it is


def _apply(s: Schedule, name: str, instruction: str, tiles: int, choices: str) -> None:
    """Make a block an instruction, and puts the outer loops around it into two levels, by sampled factors where extents are constant."""
    done = auto_tensorize(s, name, instruction, tiles)
    outer: list[LoopHandle] = []
    for h in s.loops(done):
        if h.loop.kind != "serial" or fed_by(done.block, h.loop) != {"S"}:
            break
        outer.append(h)
    levels = [[h] for h in outer]
    for n, h in enumerate(outer if len(outer) > 1 else []):
        if (constant_extent(s.program, h.loop) or 0) > 1:
            levels[n] = list(s.split(h, *s.sample_perfect_tile(h, 2, name=f"{choices}{n}")))
    if len(outer) > 1:
        s.reorder(*(level[0] for level in levels), *(level[1] for level in levels if len(level) > 1))


tensor_tiling = Module("tensor_tiling", _tensorized, takes_target=True)
