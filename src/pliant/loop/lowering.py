"""From a scheduled loop program to one that a renderer writes down: the passes in order, each with what holds after it.

Every kernel and every host function goes through this list just before its code is written, whatever the target. `pipeline.py` names the
passes among its steps: `PLIANT_SHOW=expand_math` prints the programs that a pass changed, `PLIANT_VERIFY=1` verifies each of them.
Renderers of source text (C) take the passes of a second list as well. What the passes make is a loop program like any other, so it can be
printed, verified and interpreted between any two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from ..support.record import dataclass
from .passes.choose_grain import choose_grain
from .passes.decide_conditions import decide_conditions
from .passes.decode_storage import decode_storage
from .passes.expand_math import expand_math
from .passes.lower_blocks import lower_blocks
from .passes.name_shared import name_shared
from .passes.outline_parallel import outline_parallel
from .passes.plain_reductions import plain_reductions
from .passes.remove_unused import remove_unused
from .passes.serial_loops import serial_loops
from .passes.settle_lanes import settle_lanes
from .passes.settle_unit_loops import settle_unit_loops
from .passes.simplify_indices import simplify_indices
from .passes.split_registers import split_registers
from .passes.unroll import unroll
from .passes.widen_halves import widen_halves
from .stmt import Func


class Machine(NamedTuple):
    """What lowering asks of a target."""

    lanes: int = 8  # floats in a vector register


@dataclass(frozen=True, slots=True)
class Named:
    """A change of a loop program that can be shown: its name, and what holds afterwards."""

    name: str
    holds: str


@dataclass(frozen=True, slots=True)
class LoopPass(Named):
    """A pass over one loop program, and what it does."""

    run: Callable[[Func, Machine], Func]


LOOP_PASSES: tuple[LoopPass, ...] = (
    LoopPass("lower_blocks", "no block is left: loops, conditions and stores over loop variables", lambda f, m: lower_blocks(f)),
    LoopPass("settle_unit_loops", "the variable of a loop that runs once is its start", lambda f, m: settle_unit_loops(f)),
    LoopPass("simplify_indices", "indices have no quotient that the loops around them decide", lambda f, m: simplify_indices(f)),
    LoopPass("choose_grain", "every parallel loop says how many iterations are a chunk", lambda f, m: choose_grain(f, m.lanes)),
    LoopPass("decode_storage", "memory holds no storage types but the unsigned integers u4 and u2", lambda f, m: decode_storage(f)),
    LoopPass("unroll", "no loop of kind unroll is left", lambda f, m: unroll(f)),
    LoopPass("expand_math", "only primitive math functions are left", lambda f, m: expand_math(f)),
    LoopPass("settle_lanes", "every vector loop can be done by lanes", lambda f, m: settle_lanes(f)),
    LoopPass("outline_parallel", "the body of a parallel loop is one call, for chunks of iterations", lambda f, m: outline_parallel(f)),
)

# Passes for renderers of source text, after those that they take of the ones above. LLVM has values instead of names, finds unused code
# and decided comparisons itself, and makes lanes of vector loops; what it makes of half floats depends on the machine.
SOURCE_PASSES: tuple[LoopPass, ...] = (
    LoopPass("serial_loops", "every loop runs serially, or a tensor instruction performs it", lambda f, m: serial_loops(f)),
    LoopPass("plain_reductions", "reductions are loads, operations and stores", lambda f, m: plain_reductions(f)),
    LoopPass("widen_halves", "f16 and bf16 are cast and moved, never computed with", lambda f, m: widen_halves(f)),
    LoopPass("decide_conditions", "no comparison of integers is left that ranges decide", lambda f, m: decide_conditions(f)),
    LoopPass("split_registers", "a register buffer that constants index is a variable for each element", lambda f, m: split_registers(f)),
    LoopPass("remove_unused", "every name is read", lambda f, m: remove_unused(f)),
    LoopPass("name_shared", "an expression is a tree: what a statement uses twice has a name", lambda f, m: name_shared(f)),
)

Watch = Callable[[Named, Func, Func], None]  # told of each pass: the program before and after


def lower_func(func: Func, machine: Machine, watch: Watch | None = None, without: Collection[str] = (), source: bool = False) -> Func:
    """The program after all passes but those that a renderer does `without`, and those of `source` text if it writes that.

    Programs that it calls are lowered on their own.
    """
    passes = [step for step in (*LOOP_PASSES, *(SOURCE_PASSES if source else ())) if step.name not in without]
    if watch is None:
        for step in passes:
            func = step.run(func, machine)
        return func
    for step in passes:
        after = step.run(func, machine)
        watch(step, func, after)
        func = after
    return func
