"""Default rule for sums, maxima and minima over images in channel blocks (NCHWc) into a result without blocks: lanes are channels.

    y[b * 16 + l] += x[b, p, q, l]        # the mean of each channel, as before a classifier

    for block b (parallel):
        lanes in registers = 0
        for p, q: for l as a vector: lanes[l] += x[b, p, q, l]
        for l as a vector: y[b * 16 + l] = lanes[l]

The result is stored at a sum of iterators, not at one iterator for each dim, so rules that ask for that refuse the block. Terms are added
in the program's order, long sums in parts.
"""

from __future__ import annotations

from ...loop.analysis.block_kind import along
from ...loop.analysis.nest_shape import plain_loops
from ...loop.analysis.nests import constant_extent, find_block, plain_iters
from ...loop.buffer import Load
from ...loop.stmt import Block, Func, Reduce
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.expr import Var, free_vars, substitute
from ...sym.simplify import simplify
from ...sym.walk import walk
from ...target import Target
from ..decisions import Decide
from ..schedule import Schedule
from .accumulate import decide_summing, sum_tile
from .convolution_roles import LEAST_LANES
from .parallelize import share
from .record import Rule


@dataclass(frozen=True, slots=True)
class LaneSum:
    """A record of the iterators of a sum by role: the outer indices of the result, what is summed, and the lane."""

    outer: tuple[str, ...]
    reduced: tuple[str, ...]
    lane: str


def lane_sum_of(func: Func, block: Block, target: Target) -> LaneSum | Refusal:
    """Match a reduction whose operands and result are contiguous along one iterator of constant extent; return its iterator roles.

    Return why the block is none, also for a result that is indexed by iterators alone: other rules take that.
    """
    s, loops = block.body, plain_loops(func, block)
    if not isinstance(s, Reduce) or len(s.targets) != 1 or block.init is None or isinstance(loops, Refusal):
        return Refusal(f"block `{block.name}` is no reduction with an init over plain loops")
    if any(i.kind == "O" for i in block.iters) or plain_iters(s.targets[0].indices, block) is not None:
        return Refusal(f"block `{block.name}` has an ordered iterator, or its result is indexed by iterators alone")
    spatial = [i.var for i in block.iters if i.kind == "S"]
    lane = next((v for v in spatial if (constant_extent(func, loops[v]) or 0) >= LEAST_LANES and _contiguous(s, v)), None)
    reduced = tuple(i.var.name for i in block.iters if i.kind == "R")
    if lane is None or not reduced:
        return Refusal(f"no iterator of block `{block.name}` goes along its operands and its result")
    return LaneSum(tuple(v.name for v in spatial if v is not lane), reduced, lane.name)


def _contiguous(s: Reduce, lane: Var) -> bool:
    """Return True if a step of the iterator is a step in memory of the result and of an operand, and no other operand depends on it."""
    *front, last = s.targets[0].indices
    if s.targets[0].buffer.strides is not None or any(lane in free_vars(e) for e in front):
        return False
    if simplify(substitute(last, {lane: lane + 1}) - last) is not simplify(lane - lane + 1):
        return False
    loads = [e for value in s.values for e in walk(value) if isinstance(e, Load) and lane in free_vars(e)]
    return bool(loads) and all(along(e, lane) for e in loads)


def schedule_lane_sum(s: Schedule, roles: LaneSum, decide: Decide) -> str:
    """Sum in one vector of lanes in registers; threads share the outer indices of the result. Return text about it."""
    name = decide.block
    outer, lane = [s.loop(name, v) for v in roles.outer], s.loop(name, roles.lane)
    reduced = [s.loop(name, v) for v in roles.reduced]
    summing = decide_summing(s.program, find_block(s.program, name), [h.loop for h in reduced], decide)
    s.reorder(*outer, *reduced, lane)
    share(s, outer)
    chain = s.loops(name)
    at = chain[chain.index(reduced[0]) - 1] if reduced[0] is not chain[0] else None
    written = s.cache_write(name, at, scope="register")
    sums = sum_tile(s, name, at, written, reduced, [lane], summing)
    return f"lane sums: `{name}` with vectors along `{roles.lane}`, {sums}"


LANE_SUMS = Rule("lane sums", "products", lane_sum_of, schedule_lane_sum)
