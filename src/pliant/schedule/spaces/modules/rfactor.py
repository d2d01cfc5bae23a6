"""Factoring of long reductions: lanes along the sum have partial sums of their own, which are added at the end.

    for k: w[i] += a[i, k]        ->        for k_0: for l in vector(32): lanes[l] += a[i, k_0 * 32 + l];  for l: w[i] += lanes[l]

It changes the order of a float sum, so only a space with `bits="any"` takes it there; sums of integers, minima and maxima keep their bits.
"""

from __future__ import annotations

from ....loop.analysis.nests import constant_extent, loops_above
from ....target import Target
from ...schedule import BlockHandle, Schedule
from ..module import Module, Ways
from .nest import nest_of

LEAST = 4  # steps of a lane


def _factored(s: Schedule, block: BlockHandle, target: Target) -> Ways:
    nest = nest_of(s.program, block.block, whole=True)
    lanes = 1 if nest is None else max(1, target.vector_bits // max(nest.bits, 8))
    if nest is None or not nest.reduced or lanes == 1:
        return
    terms = [s.loop(block, r) for r in nest.reduced]
    extent = constant_extent(s.program, terms[-1].loop)
    if extent is not None and extent < LEAST * lanes:
        return
    kept = s.copy()
    counts = tuple(n for n in (1, 2, 4, 8) if extent is None or n * lanes <= extent)
    vectors = s.sample_categorical(counts, name=f"{nest.name}.lanes")
    s.reorder(*(s.loop(block, i) for i in (*nest.fixed, *nest.spatial)), *terms)
    _, lane = s.split(terms[-1], None, lanes * vectors, tail="guard")
    outside = [h for h in s.loops(block) if h.loop in loops_above(s.program, terms[0].loop)] if nest.spatial or nest.fixed else []
    s.rfactor(block, lane, outside[-1] if outside else None)
    s.vectorize(lane)
    yield s
    yield kept


rfactor = Module("rfactor", _factored, takes_target=True)
