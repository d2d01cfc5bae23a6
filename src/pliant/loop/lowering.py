"""Lowering of scheduled loop programs for renderers: the list of passes in order, each with the invariant that holds after it.

Every kernel and every host function goes through this list just before code is emitted, for all targets. `pipeline.py` names the passes
among its steps: `PLIANT_SHOW=expand_math` prints the programs that a pass changed, `PLIANT_VERIFY=1` verifies each of them. Renderers of
source text (C) run the passes of a second list as well (`source_lowering.py`). After each pass the result is still a loop program, so it
can be printed, verified and interpreted at any point.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from ..support.record import dataclass
from .passes.choose_grain import choose_grain
from .passes.decode_storage import decode_storage
from .passes.expand_math import expand_math
from .passes.lower_blocks import lower_blocks
from .passes.narrow_register_tiles import narrow_register_tiles
from .passes.outline_parallel import outline_parallel
from .passes.settle_lanes import settle_lanes
from .passes.settle_unit_loops import settle_unit_loops
from .passes.simplify_indices import simplify_indices
from .passes.unroll import unroll
from .stmt import Func


class Machine(NamedTuple):
    """A record of the properties of a target that loop passes depend on."""

    lanes: int = 8  # floats in a vector register
    registers: int = 0  # vector registers; 0 if that is not known


@dataclass(frozen=True, slots=True)
class Named:
    """A named change of a loop program that can be shown, with the invariant that holds after it."""

    name: str
    holds: str


@dataclass(frozen=True, slots=True)
class LoopPass(Named):
    """A pass over one loop program: its name, its invariant, and its function."""

    run: Callable[[Func, Machine], Func]


LOOP_PASSES: tuple[LoopPass, ...] = (
    LoopPass("lower_blocks", "no block is left: loops, conditions and stores over loop variables", lambda f, m: lower_blocks(f)),
    LoopPass("settle_unit_loops", "the variable of a loop that runs once is its start", lambda f, m: settle_unit_loops(f)),
    LoopPass("narrow_register_tiles", "register tiles fit the register file", lambda f, m: narrow_register_tiles(f, m.lanes, m.registers)),
    LoopPass("simplify_indices", "indices have no quotient that the loops around them decide", lambda f, m: simplify_indices(f)),
    LoopPass("choose_grain", "every parallel loop says how many iterations are a chunk", lambda f, m: choose_grain(f, m.lanes)),
    LoopPass("decode_storage", "memory holds no storage types but the unsigned integers u4 and u2", lambda f, m: decode_storage(f)),
    LoopPass("unroll", "no loop of kind unroll is left", lambda f, m: unroll(f)),
    LoopPass("expand_math", "only primitive math functions are left", lambda f, m: expand_math(f)),
    LoopPass("settle_lanes", "every vector loop can be done by lanes", lambda f, m: settle_lanes(f)),
    LoopPass("outline_parallel", "the body of a parallel loop is one call, for chunks of iterations", lambda f, m: outline_parallel(f)),
)

Watch = Callable[[Named, Func, Func], None]  # called after each pass, with the program before and after it


def lower_func(func: Func, machine: Machine, watch: Watch | None = None, without: Collection[str] = (), source: bool = False) -> Func:
    """The program after all passes in order, except those named in `without`, and including those for `source` text if set.

    `watch` is called after each pass. Callees are lowered separately.
    """
    passes = [step for step in (all_passes() if source else LOOP_PASSES) if step.name not in without]
    if watch is None:
        for step in passes:
            func = step.run(func, machine)
        return func
    for step in passes:
        after = step.run(func, machine)
        watch(step, func, after)
        func = after
    return func


def all_passes() -> tuple[LoopPass, ...]:
    """Returns the loop passes of all renderers in order; those for source text such as C come last."""
    from .source_lowering import SOURCE_PASSES  # imported here: compiling to machine code does not need these seven modules

    return (*LOOP_PASSES, *SOURCE_PASSES)
