"""Parallelizes nested loops: one parallel loop, fused from as many of them as provably fuse.

share(s, [n, c, h])      # parallel(n * c * h); where that is not proven to be all of them, each once: parallel(n * c): for h
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..schedule import LoopHandle, Schedule
from .record import tried


def share(s: Schedule, loops: Sequence[LoopHandle], inner: bool = False) -> LoopHandle | None:
    """Fuse as many neighbors of some nested loops as possible, outer ones first, and parallelize the result; return it, None for no loops.

    If no two of them fuse, the innermost one is parallel. With `inner`, inner neighbors come first: the outer ones may have few iterations.
    """
    for count in range(len(loops), 1, -1):
        for first in sorted(range(len(loops) - count + 1), reverse=inner):
            joined: list[LoopHandle] = []
            if tried(partial(fuse_into, s, loops[first : first + count], joined)):
                s.parallel(joined[0])
                return joined[0]
    for alone in loops[-1:]:
        s.parallel(alone)
        return alone
    return None


def fuse_into(s: Schedule, loops: Sequence[LoopHandle], into: list[LoopHandle]) -> None:
    """Fuse loops and append the result to a list, so that `tried` can report success."""
    into.append(s.fuse(*loops))
