"""Default rule for convolutions to one channel of images in channel blocks (NCHWc): the lanes of vectors are the channels that are summed.

    y[n, p, q] += x[n, c, p + a, q + b, l] * w[c, a, b, l]

    for n, row p (parallel):
        for tile of R neighbors q, then a smaller tile:
            tile of sums by lanes in registers = 0
            for c, a, b: for q unrolled: for l as a vector: tile[q, l] = fma(x[c, p + a, q + b, l], w[c, a, b, l], tile[q, l])
            for l unrolled: for q as a vector: total[q] += tile[q, l]          # the registers are transposed for that
            y = epilogue(total)

A single output channel leaves no channel for the lanes of a result, and neighbors along a row are as far apart as a block is wide. The sum
of a lane runs in the program's order, long ones in parts; then the lanes are added in order. So the order depends on the blocks of
channels, and neither on the tile, nor on the sizes of images, nor on the batch.
"""

from __future__ import annotations

from ...loop.analysis.block_kind import along
from ...loop.analysis.nest_shape import plain_loops
from ...loop.analysis.nests import constant_extent, find_block, plain_iters
from ...loop.buffer import Load
from ...loop.stmt import Block, Func, Reduce
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.expr import Mul, Var, free_vars
from ...target import Target
from ..decisions import Decide
from ..schedule import BlockHandle, LoopHandle, Schedule
from .accumulate import decide_summing, sum_tile
from .convolution_roles import LEAST_LANES, in_blocks, known_sums, over_blocks
from .epilogue import join_elementwise, with_epilogue
from .parallelize import share
from .record import Rule

DEFAULT_ROWS = 8  # default neighbors of `tile`: as many sums hide the latency of two FMA units, and vectors of 8 lanes are a square
MOST_ROWS = 12  # most neighbors of any `tile`: with a vector of weights and one of the image they fit 16 registers
SQUARES = (4, 8, 16)  # neighbors whose registers can be transposed


@dataclass(frozen=True, slots=True)
class ChannelSum:
    """A record of the iterators of a sum over channel blocks, by role, and the weights."""

    outer: tuple[str, ...]  # the other indices of the result
    row: str  # the last index of the result
    reduced: tuple[str, ...]  # what is summed, without the lane
    lane: str  # the channel inside a block
    size: int  # channels of a block
    weight: Load


def channel_sum_of(func: Func, block: Block, target: Target) -> ChannelSum | Refusal:
    """Match a convolution of an image in channel blocks to one channel; return its iterator roles, or why the block is none."""
    s = block.body
    if not isinstance(s, Reduce) or s.combiner.name != "add" or len(s.targets) != 1 or block.init is None or in_blocks(func, block):
        return Refusal(f"block `{block.name}` is no sum with an init to a result that is not in channel blocks")
    out, loops = plain_iters(s.targets[0].indices, block), plain_loops(func, block)
    spatial = {i.var for i in block.iters if i.kind == "S"}
    if not out or set(out) != spatial or any(i.kind == "O" for i in block.iters) or isinstance(loops, Refusal):
        return Refusal(f"the result of block `{block.name}` is not indexed by its S iterators, each once")
    if not isinstance(s.values[0], Mul) or not all(isinstance(e, Load) for e in s.values[0].args):
        return Refusal(f"block `{block.name}` does not sum products of two elements")
    reduced = [i.var for i in block.iters if i.kind == "R"]
    for image, weight in (s.values[0].args, s.values[0].args[::-1]):
        assert isinstance(image, Load) and isinstance(weight, Load)
        lane = _lane(func, image, reduced)
        if lane is None or out[-1] not in free_vars(image) or not spatial.isdisjoint(free_vars(weight)) or lane not in free_vars(weight):
            continue
        size = constant_extent(func, loops[lane]) or 0
        if lanes_of(size, target) >= LEAST_LANES and len(reduced) > 1:
            outer, others = tuple(v.name for v in out[:-1]), tuple(v.name for v in reduced if v is not lane)
            return ChannelSum(outer, out[-1].name, others, lane.name, size, weight)
    return Refusal(f"block `{block.name}` does not sum over the channels of blocks alone")


def _lane(func: Func, image: Load, reduced: list[Var]) -> Var | None:
    """Return the reduction iterator over the channels inside of a block, all of which a load reads; None if there is none."""
    if not over_blocks(func, image.buffer):
        return None
    return next((v for v in reduced if along(image, v)), None)


def lanes_of(size: int, target: Target) -> int:
    """Return the lanes of vectors over a block of channels: the largest power of two that divides it and fits a register."""
    return min(size & -size, target.vector_bits // 32)


def schedule_channel_sum(s: Schedule, roles: ChannelSum, decide: Decide) -> str:
    """Tile a sum over channel blocks for registers, threads and vectors, with its elementwise consumers in the write-back (epilogue).

    Return a text about what was done.
    """
    block = find_block(s.program, decide.block)
    known_sums(s.program, block, any_size=True)
    join_elementwise(s, block)
    rule = _Rule(s, roles, decide)
    return with_epilogue(s, find_block(s.program, decide.block), rule.apply)


class _Rule:
    """Schedules one sum over channel blocks: the constructor decides tile and parts of the sum, `apply` edits the schedule."""

    sums = "in registers"

    def __init__(self, s: Schedule, roles: ChannelSum, decide: Decide) -> None:
        self.s, self.roles, self.name, self.target = s, roles, decide.block, decide.target
        block = find_block(s.program, self.name)
        self.width = constant_extent(s.program, s.loop(self.name, roles.row).loop)
        self.lanes = lanes_of(roles.size, decide.target)
        most = MOST_ROWS if self.width is None else max(min(MOST_ROWS, self.width), 1)
        why = "as many sums as hide the latency of FMAs, in a square of registers that can be transposed"
        self.rows: int = decide("tile", range(1, most + 1), min(DEFAULT_ROWS, most), why=why)
        loops = [s.loop(self.name, v).loop for v in roles.reduced]
        self.summing = decide_summing(s.program, block, loops, decide)

    def apply(self) -> str:
        """Schedule the block; return text about what was done."""
        s, r = self.s, self.roles
        outer, row, lane = [s.loop(self.name, v) for v in r.outer], s.loop(self.name, r.row), s.loop(self.name, r.lane)
        s.reorder(*outer, row, *(s.loop(self.name, v) for v in r.reduced), lane)
        if self.target.has_fma:
            s.contract(self.name)
        share(s, outer)
        if self.width is not None and self.width <= self.rows:
            self._tile(self.name, row)
        else:
            tails = s.split(row, None, self.rows, tail="balance").tails
            for name in (self.name, *tails):
                *_, within = s.loops(name, r.row)
                self._tile(name, within)
        return f"channel sums: `{self.name}` in tiles of {self.rows}x{self.lanes} {self.sums}, lanes are summed channels"

    def _tile(self, name: str, row: LoopHandle) -> None:
        """Sum one tile by lanes in registers, then add the lanes of each neighbor."""
        s, r = self.s, self.roles
        chain = s.loops(name)
        at = chain[chain.index(row) - 1] if row is not chain[0] else None
        lane = s.loop(name, r.lane)
        reduced = [s.loop(name, v) for v in r.reduced]
        if self.lanes < r.size:
            over, lane = s.split(lane, None, self.lanes)
            reduced.append(over)
        s.reorder(*reduced, row, lane)
        total = s.rfactor(name, lane, at, scope="register")
        written = s.cache_write(total, at, scope="register")
        self._add_lanes(total)
        self.sums = sum_tile(s, name, at, written, reduced, [row, lane], self.summing)

    def _add_lanes(self, total: BlockHandle) -> None:
        """Add the lanes of each neighbor in order: all neighbors at once if their registers can be transposed, else one after the other."""
        s = self.s
        row, lane = s.loops(total)[-2:]
        rows = constant_extent(s.program, row.loop)
        s.reorder(lane, row)
        if rows in SQUARES and self.lanes % (rows or 1) == 0:
            s.vectorize(row)
        else:
            s.unroll(row)
        s.unroll(lane)
        s.decompose_reduction(total, lane)


CHANNEL_SUMS = Rule("channel sums", "convolutions", channel_sum_of, schedule_channel_sum)
