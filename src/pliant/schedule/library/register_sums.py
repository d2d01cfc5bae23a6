"""The sums of one tile, in registers; long sums of floats in parts, whose sums wait on the stack until they are added.

    for k in range(1024): tile[…] = fma(a[k], b[k], tile[…])

->  for part in range(8):
        own[…] = 0
        for k in range(128): own[…] = fma(a[part * 128 + k], b[part * 128 + k], own[…])
        sums[part, …] = own[…]
    for part in range(8): tile[…] += sums[part, …]

The rounding error of a sum grows with the number of terms that are added one after the other, fastest where terms are alike: 1024 equal
products are off by 5e-6 in one piece, and by 5e-7 in parts. Parts depend on the number of terms alone: a row equals the row in a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, prod

from ...loop.stmt import Block, Reduce
from ..nest import constant_extent, fed_by
from ..schedule import BlockHandle, LoopHandle, Schedule
from .match import alone, find_block

LONG = 1024  # so many terms are summed in parts
PART = 128  # of about so many terms each
MOST_PARTS = 16  # so that their sums stay in the first cache


def sum_tile(
    s: Schedule, name: str, at: LoopHandle | None, written: BlockHandle, reduced: Sequence[LoopHandle], inner: Sequence[LoopHandle]
) -> str:
    """Sum in the registers of a tile: `reduced` are the loops of the sum, outermost first, `inner` those over the tile in them.

    The tile is what one iteration of `at` touches, and `written` copies it to the result. The answer says how, in words.
    """
    sums, copies = _in_parts(s, name, at, reduced)
    over_tile(s, inner)
    for block in (written, *copies):
        over_tile(s, [h for h in s.loops(block) if h.loop in alone(s.program, block.block) and fed_by(block.block, h.loop) <= {"S"}])
    for block_name, loop in sums:
        s.decompose_reduction(block_name, loop)
    return "in registers, long sums in parts" if copies else "in registers"


def over_tile(s: Schedule, loops: Sequence[LoopHandle]) -> None:
    """Loops over a tile: the last is one over the lanes of vectors, except where there is one column only; the others are unrolled."""
    *outer, lane = loops
    for h in outer:
        s.unroll(h)
    lanes(s, lane)


def lanes(s: Schedule, loop: LoopHandle) -> None:
    """A loop over the columns of a vector; one column alone is none."""
    (s.unroll if constant_extent(s.program, loop.loop) == 1 else s.vectorize)(loop)


def part_of(steps: int, terms: int) -> int | None:
    """How many of the outermost loop's `steps` are a part of a sum of so many terms; None where it is summed in one piece."""
    sizes = [n for n in range(1, steps) if steps % n == 0 and steps // n <= MOST_PARTS]
    return min(sizes, key=lambda n: abs(log(terms // steps * n / PART)), default=None) if terms >= LONG else None


def _in_parts(
    s: Schedule, name: str, at: LoopHandle | None, reduced: Sequence[LoopHandle]
) -> tuple[list[tuple[str, LoopHandle]], list[BlockHandle]]:
    """Sum in parts where that is better: the blocks that sum, with their loops, and those besides that go over the tile."""
    extents = [constant_extent(s.program, h.loop) for h in reduced]
    size = None if None in extents else part_of(extents[0] or 0, prod(n or 0 for n in extents))
    if size is None or not _sums_floats(find_block(s.program, name)):
        return [(name, reduced[0])], []
    part, steps = s.split(reduced[0], None, size)
    total = s.rfactor(name, part, at, scope="stack")
    _parts_first(s, name)
    *places, adding = [h for h in s.loops(total) if h.loop in alone(s.program, total.block)]
    s.reorder(adding, *places)
    own = s.cache_write(name, part, scope="register")
    return [(name, steps), (total.block.name, adding)], [own, total]


def _parts_first(s: Schedule, name: str) -> None:
    """Let the sums of one part lie together, as the tile does."""
    body = find_block(s.program, name).body
    assert isinstance(body, Reduce)
    buffer = body.targets[0].buffer
    *dims, part = (f"d{n}" for n in range(len(buffer.shape)))
    s.transform_layout(buffer.name, f"lambda {', '.join([*dims, part])}: ({', '.join([part, *dims])})", block=name)


def _sums_floats(block: Block) -> bool:
    body = block.body
    return isinstance(body, Reduce) and body.combiner.name in ("add", "fma") and body.targets[0].dtype.is_float
