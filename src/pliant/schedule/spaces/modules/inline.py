"""Inlining: an elementwise block is computed where it is read, or kept in memory.

t[i] = x[i] * 2; y[i] = t[i] + 1        ->        y[i] = x[i] * 2 + 1
"""

from __future__ import annotations

from ....loop.analysis.block_kind import elementwise
from ...schedule import BlockHandle, Schedule
from ..module import Module, Ways


def _inlined(s: Schedule, block: BlockHandle) -> Ways:
    if elementwise(block.block) is None:
        return
    kept = s.copy()
    s.compute_inline(block)
    yield s
    yield kept


inline = Module("inline", _inlined)
