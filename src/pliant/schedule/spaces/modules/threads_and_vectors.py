"""Parallelize, vectorize, unroll: what is left serial gets threads outside, a vector inside, and short loops around the vector unrolled.

for i, j in grid(n, 64): y[i, j] = …        ->        for i in parallel(n): for j in vector(64): y[i, j] = …
"""

from __future__ import annotations

from functools import partial

from ....loop.analysis.nest_shape import alone
from ....loop.analysis.nests import accesses, constant_extent, fed_by
from ....loop.stmt import Block
from ....sym.expr import free_vars
from ....target import Target
from ...library import finish_sum, share, tried
from ...schedule import BlockHandle, LoopHandle, Schedule
from ..module import Module, Ways
from .nest import LANE

MOST_UNROLLED = 16  # iterations


def _finished(s: Schedule, block: BlockHandle, target: Target) -> Ways:
    name = block.block.name
    if any(i.kind == "R" for i in block.block.iters):
        finish_sum(s, name, target)  # a sum that no module has tiled stays in its loops
    elif all(h.loop.kind in ("serial", "parallel") for h in s.loops(block)):
        _vectorize(s, name, block)
    around = s.loops(block)
    if all(h.loop.kind != "parallel" for h in around):
        outer: list[LoopHandle] = []
        for h in around:
            if h.loop.kind != "serial" or fed_by(block.block, h.loop) - {"S"}:
                break
            outer.append(h)
        tried(partial(share, s, outer))
    yield s


def _vectorize(s: Schedule, name: str, block: BlockHandle) -> None:
    """Sample along which loop the lanes are, moves that loop inside, and samples whether the one around it is unrolled."""
    inside = alone(s.program, block.block)
    loops = [h for h in s.loops(block) if h.loop.kind == "serial" and h.loop in inside]
    lanes = [h for h in loops if fed_by(block.block, h.loop) == {"S"}]
    if not lanes:
        return
    usual = max(range(len(lanes)), key=lambda n: (_contiguous(block.block, lanes[n]), n))
    weights = [LANE if n == usual else (1 - LANE) / len(lanes) for n in range(len(lanes))]
    lane = lanes[s.sample_categorical(tuple(range(len(lanes))), weights, name=f"{name}.lane")] if len(lanes) > 1 else lanes[0]
    rest = [h for h in loops if h is not lane]
    if rest:
        s.reorder(*rest, lane)
    s.vectorize(lane)
    extent = constant_extent(s.program, rest[-1].loop) if len(rest) > 1 else None  # the only other loop is for threads
    if extent is not None and 1 < extent <= MOST_UNROLLED and s.sample_categorical((0, 1), name=f"{name}.unroll"):
        s.unroll(rest[-1])


def _contiguous(block: Block, loop: LoopHandle) -> bool:
    """True if a block writes contiguous elements along a loop."""
    return any(a.write and a.over_loops() and loop.loop.var in free_vars(a.over_loops()[-1]) for a in accesses(block))


threads_and_vectors = Module("threads_and_vectors", _finished, takes_target=True)
