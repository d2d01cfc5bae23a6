"""Loops that threads share: one parallel loop of as many of them as can be proven to be one.

share(s, [n, c, h])      # parallel(n * c * h); where that is not proven to be all of them, each once: for n: parallel(c * h)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..schedule import LoopHandle, Schedule
from .match import tried


def share(s: Schedule, loops: Sequence[LoopHandle]) -> LoopHandle | None:
    """Make one parallel loop of the last of some nested loops, as many as can be; that loop, None where there are none."""
    for first in range(len(loops)):
        joined: list[LoopHandle] = [loops[-1]] if first == len(loops) - 1 else []
        if joined or tried(partial(_fuse, s, loops[first:], joined)):
            s.parallel(joined[0])
            return joined[0]
    return None


def _fuse(s: Schedule, loops: Sequence[LoopHandle], into: list[LoopHandle]) -> None:
    into.append(s.fuse(*loops))
