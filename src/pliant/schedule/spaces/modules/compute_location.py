"""Compute location: a producer moves into a loop of its first reader, which computes what it needs when it needs it.

t[i, j] = …;  for i: for j: y[i, j] = f(t[i, j])        ->        for i: t_row = …; for j: y[i, j] = f(t_row[j])
"""

from __future__ import annotations

from functools import partial

from ...library import tried
from ...schedule import BlockHandle, Schedule
from ..module import Module, Ways

STAYS = 0.7  # how likely a drawn producer is not moved: a moved one and its reader share loops, and are not tiled


def _located(s: Schedule, block: BlockHandle) -> Ways:
    readers = s.copy().consumers(block)
    around = s.loops(readers[0].block.name) if readers else ()
    legal = [h for h in around if tried(partial(s.copy().compute_at, block, h))]
    if not legal:
        return
    weights = [STAYS, *[(1 - STAYS) / len(legal)] * len(legal)]
    place = s.sample_categorical(tuple(range(len(legal) + 1)), weights, name=f"{block.block.name}.location")  # 0: it stays
    if place:
        s.compute_at(block, legal[place - 1])
    yield s


compute_location = Module("compute_location", _located)
