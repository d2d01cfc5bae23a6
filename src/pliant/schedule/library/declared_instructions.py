"""Default rule for tensor instructions that users declared: a block that such an instruction can do is tensorized.

    copy the operands as the instruction wants them                # by later rules; weights are packed before the program runs
    for tiles of the result (parallel):
        some tiles in registers = 0
        for the steps of the sum: for each of the tiles: instruction
        write the tiles

`auto_tensorize` does the work, so the rule takes matrix products, batched products and convolutions of any shape. The rule comes before all
others, because a user who declares an instruction wants it used. Built-in instructions have a rule that knows more about them
(`dot_products.py`).
"""

from __future__ import annotations

from functools import partial
from math import prod

from ...loop.analysis.nest_shape import plain_loops
from ...loop.analysis.nests import accesses, blocks, plain_iters
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Block, Func, Reduce
from ...support.choices import heuristic, worth
from ...support.refusal import Refusal
from ...sym.expr import Const, Expr, Var
from ...sym.index_map import IndexMap
from ...target import Target
from ...target.instructions import declared_for
from ..auto_tensorize import Mapping, auto_tensorize, mapping, tiles_of
from ..decisions import Decide
from ..primitives.tensorize import Tile, tile_of_instruction
from ..schedule import Schedule
from .record import Packing, Rule, tried

MOST_TILES = 8  # most result tiles in registers: more accumulators than this hide the latency of any instruction


def instruction_of(func: Func, block: Block, target: Target) -> Mapping | Refusal:
    """Return the declared instruction that does the largest part of a block, the latest declaration among equals; else why none fits."""
    reason = "no instruction is declared for the machine"
    best: Mapping | None = None
    for i in declared_for(target):
        plan = mapping(func, block, i.name)
        if isinstance(plan, Refusal):
            reason = f"`{i.name}` does not compute block `{block.name}`: {plan.reason}"
        elif best is None or worth(_work(plan.instruction) > _work(best.instruction)):
            best = plan
    return Refusal(reason) if best is None else best


@heuristic
def _work(instruction: str) -> int:
    """Return the number of block instances that one execution of the instruction computes: the product of its loop extents."""
    work = 1
    for x in tile_of_instruction(instruction).loops:
        work *= int(x.stop.value) if isinstance(x.stop, Const) else 1
    return work


def schedule_instruction(s: Schedule, roles: Mapping, decide: Decide) -> str:
    """Tensorize a block with accumulators in registers, and parallelize its outermost loop."""
    default = _tiles(tile_of_instruction(roles.instruction), decide.target)
    tiles = decide("tiles", tuple(range(1, MOST_TILES + 1)), default, why="a quarter of the registers for sums, the rest for operands")
    block = auto_tensorize(s, decide.block, roles.instruction, in_registers=tiles)
    for outermost in s.loops(block)[:1]:
        tried(partial(s.parallel, outermost))
    return f"instruction: `{decide.block}` by `{roles.instruction}`"


def _tiles(tile: Tile, target: Target) -> int:
    """Return how many result tiles fit a quarter of the registers, from 1 to MOST_TILES."""
    written = tile.stmt.targets[0].buffer if isinstance(tile.stmt, Reduce) else tile.stmt.buffer
    bits = written.dtype.bits
    for e in written.shape:
        bits *= int(e.value) if isinstance(e, Const) else 1
    registers = -(-bits // target.vector_bits)
    return max(1, min(MOST_TILES, target.n_vector_registers // 4 // registers))


def tiled_operands(func: Func, block: Block, target: Target) -> dict[Buffer, Packing] | None:
    """Return the layouts of the operands that can be stored in the instruction's tiles: parameters whose sizes are multiples of the tile.

    None if no declared instruction does the block; an empty dict if no operand can be tiled.
    """
    plan = instruction_of(func, block, target)
    loops = plain_loops(func, block)
    if isinstance(plan, Refusal) or isinstance(loops, Refusal):
        return None
    extents = {v: x.extent.value for v, x in loops.items() if isinstance(x.extent, Const)}
    packings: dict[Buffer, Packing] = {}
    for described, load in plan.operands.items():
        layout = _tiles_in_memory(plan, described, load, extents) if _may_be_tiled(func, block, load) else None
        if layout is not None and not isinstance(layout.layout(load.buffer.shape), Refusal):
            packings[load.buffer] = Packing({_work(plan.instruction): layout}, _work(plan.instruction))
    return packings


def _may_be_tiled(func: Func, block: Block, load: Load) -> bool:
    """True if the buffer of a load is an input parameter of constant shape that only this block reads, at plain iterators."""
    b = load.buffer
    if b not in func.buffers or func.role(b) != "in" or b.strides is not None or not all(isinstance(e, Const) for e in b.shape):
        return False
    shared = any(a.buffer is b for x in blocks(func.body) if x is not block for a in accesses(x))
    return not shared and plain_iters(load.indices, block) is not None


def _tiles_in_memory(plan: Mapping, described: Buffer, load: Load, extents: dict[Var, int]) -> IndexMap | None:
    """Return the tiled layout of an operand; None if a size is dynamic or no multiple of the instruction's."""
    tile = tile_of_instruction(plan.instruction)
    inputs = tuple(Var(f"d{n}") for n in range(load.buffer.ndim))
    at = {v: d for v, d in zip(load.indices, inputs, strict=True) if isinstance(v, Var)}
    inside: dict[int, Expr] = {}
    for n, (loop, fused) in enumerate(zip(tile.loops, plan.fused, strict=True)):
        if fused[0] not in at:
            continue
        place: Expr = at[fused[0]]
        for v in fused[1:]:
            place = place * extents.get(v, 0) + at[v]
        whole = prod(extents.get(v, 0) for v in fused)
        if not isinstance(loop.stop, Const) or not whole or whole % int(loop.stop.value):
            return None
        inside[n] = place
    return IndexMap(inputs, tuple(tiles_of(tile, described, [at[v] for v in plan.outside if v in at], inside)))


INSTRUCTIONS = Rule("instruction", "instructions", instruction_of, schedule_instruction, layouts=tiled_operands)
