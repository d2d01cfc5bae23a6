"""The default rule of tensor instructions that users have declared: a block that one of them does becomes it.

    copy the operands as the instruction wants them                        # by later rules
    for tiles of the result (parallel):
        some tiles in registers = 0
        for the steps of the sum: for each of the tiles: instruction
        write the tiles

Everything is done by `auto_tensorize`, so that matrix products, batched ones and convolutions of any shape are taken. The rule comes
before all others: who declares an instruction wants it used. Built-in instructions have a rule that knows more about them
(`dot_products.py`).
"""

from __future__ import annotations

from functools import partial

from ...loop.stmt import Block, Func, Reduce
from ...support.refusal import Refusal
from ...sym.expr import Const
from ...target import Target
from ...target.instructions import declared_for
from ..auto_tensorize import Mapping, auto_tensorize, mapping
from ..decisions import Decide
from ..primitives.tensorize import Tile, tile_of_instruction
from ..schedule import Schedule
from .record import Rule, tried

MOST_TILES = 8  # of the result in registers: more accumulators than hide the latency of any instruction


def instruction_of(func: Func, block: Block, target: Target) -> Mapping | Refusal:
    """The declared instruction that does most of a block at once, the latest declaration where several do as much; else why none does."""
    reason = "no instruction is declared for the machine"
    best: Mapping | None = None
    for i in declared_for(target):
        plan = mapping(func, block, i.name)
        if isinstance(plan, Refusal):
            reason = f"`{i.name}` does not do what block `{block.name}` does: {plan.reason}"
        elif best is None or _work(plan.instruction) > _work(best.instruction):
            best = plan
    return Refusal(reason) if best is None else best


def _work(instruction: str) -> int:
    """How many points of a block an instruction does."""
    work = 1
    for x in tile_of_instruction(instruction).loops:
        work *= int(x.stop.value) if isinstance(x.stop, Const) else 1
    return work


def schedule_instruction(s: Schedule, roles: Mapping, decide: Decide) -> str:
    """Make a block the instruction, with sums in registers, and tiles shared by threads."""
    default = _tiles(tile_of_instruction(roles.instruction), decide.target)
    tiles = decide("tiles", tuple(range(1, MOST_TILES + 1)), default, why="a quarter of the registers for sums, the rest for operands")
    block = auto_tensorize(s, decide.block, roles.instruction, in_registers=tiles)
    for outermost in s.loops(block)[:1]:
        tried(partial(s.parallel, outermost))
    return f"instruction: `{decide.block}` by `{roles.instruction}`"


def _tiles(tile: Tile, target: Target) -> int:
    """How many tiles of the result fit a quarter of the registers."""
    written = tile.stmt.targets[0].buffer if isinstance(tile.stmt, Reduce) else tile.stmt.buffer
    bits = written.dtype.bits
    for e in written.shape:
        bits *= int(e.value) if isinstance(e, Const) else 1
    registers = -(-bits // target.vector_bits)
    return max(1, min(MOST_TILES, target.n_vector_registers // 4 // registers))


INSTRUCTIONS = Rule("instruction", "instructions", instruction_of, schedule_instruction)
