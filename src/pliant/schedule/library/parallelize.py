"""Loops that threads share: one parallel loop of as many of them as can be proven to be one.

share(s, [n, c, h])      # parallel(n * c * h); where that is not proven to be all of them, each once: parallel(n * c): for h
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..schedule import LoopHandle, Schedule
from .record import tried


def share(s: Schedule, loops: Sequence[LoopHandle], inner: bool = False) -> LoopHandle | None:
    """Make one parallel loop of as many neighbors of some nested loops as can be, the outer ones first; that loop, None where none are.

    With `inner`, the inner ones first: where the outer ones may be few.
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
    """Fuse loops and put the one that they become into a list, so that `tried` can tell whether there is one."""
    into.append(s.fuse(*loops))
