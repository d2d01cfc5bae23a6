"""Parallelizes nested loops: one parallel loop, fused from as many of them as provably fuse.

share(s, [n, c, h])      # parallel(n * c * h); where that is not proven to be all of them, each once: parallel(n * c): for h
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...loop.analysis.nests import constant_extent
from ..schedule import LoopHandle, Schedule
from .record import tried

ENOUGH = 16  # iterations that keep several threads busy if one loop alone is shared: two each for eight of them


def share(s: Schedule, loops: Sequence[LoopHandle], inner: bool = False) -> LoopHandle | None:
    """Fuse as many neighbors of some nested loops as possible, outer ones first, and parallelize the result; return it, None for no loops.

    With `inner`, inner neighbors come first: the outer ones may have few iterations. If no two of them fuse, one alone is parallel, because
    loops around a parallel one hand out work again in each iteration: the first of `_in_order` that can be, else the innermost, for which a
    ScheduleError goes to the caller.
    """
    for count in range(len(loops), 1, -1):
        for first in sorted(range(len(loops) - count + 1), reverse=inner):
            joined: list[LoopHandle] = []
            if tried(partial(fuse_into, s, loops[first : first + count], joined)):
                s.parallel(joined[0])
                return joined[0]
    for alone in _in_order(s, loops, inner):
        if tried(partial(s.parallel, alone)):
            return alone
    for alone in loops[-1:]:
        s.parallel(alone)
        return alone
    return None


def _in_order(s: Schedule, loops: Sequence[LoopHandle], inner: bool) -> list[LoopHandle]:
    """Return the loops that may be worth a thread each, best first.

    These are the loops of constant and enough iterations, outer ones first (with `inner`, inner ones), then dynamic ones from inside out:
    an outer dynamic loop is often a batch, which may be 1.
    """
    extents = [(x, constant_extent(s.program, x.loop)) for x in loops]
    enough = [x for x, n in extents if n is not None and n >= ENOUGH]
    return [*(reversed(enough) if inner else enough), *(x for x, n in reversed(extents) if n is None)]


def fuse_into(s: Schedule, loops: Sequence[LoopHandle], into: list[LoopHandle]) -> None:
    """Fuse loops and append the result to a list, so that `tried` can report success."""
    into.append(s.fuse(*loops))
