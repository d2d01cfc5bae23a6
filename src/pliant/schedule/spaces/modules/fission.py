"""Fission: a block gets loops of its own, behind which the rest of the body has its own, so that each can be tiled.

for i, k: y[i] += a[i, k]; z[i] += b[i, k]        ->        for i, k: y[i] += a[i, k];  for i, k: z[i] += b[i, k]
"""

from __future__ import annotations

from functools import partial

from ...library import tried
from ...schedule import BlockHandle, Schedule
from ..module import Module, Ways


def _cut(s: Schedule, block: BlockHandle) -> Ways:
    kept = s.copy()
    cuts = [tried(partial(s.fission, h, block)) for h in reversed(s.loops(block))]
    if any(cuts):
        yield s
        yield kept


fission = Module("fission", _cut)
