"""The lowering passes that only renderers of source text (C) run, after those of `lowering.py`.

LLVM does not need them: it has SSA values instead of names, removes dead code and decided comparisons itself, and has vector types. How
it computes with half floats depends on the machine.
"""

from __future__ import annotations

from .lowering import LoopPass
from .passes.decide_conditions import decide_conditions
from .passes.name_shared import name_shared
from .passes.plain_reductions import plain_reductions
from .passes.remove_unused import remove_unused
from .passes.serial_loops import serial_loops
from .passes.split_registers import split_registers
from .passes.widen_halves import widen_halves

SOURCE_PASSES: tuple[LoopPass, ...] = (
    LoopPass("serial_loops", "every loop runs serially, or a tensor instruction performs it", lambda f, m: serial_loops(f)),
    LoopPass("plain_reductions", "reductions are loads, operations and stores", lambda f, m: plain_reductions(f)),
    LoopPass("widen_halves", "f16 and bf16 are cast and moved, never computed with", lambda f, m: widen_halves(f)),
    LoopPass("decide_conditions", "no comparison of integers is left that ranges decide", lambda f, m: decide_conditions(f)),
    LoopPass("split_registers", "a register buffer that constants index is a variable for each element", lambda f, m: split_registers(f)),
    LoopPass("remove_unused", "every name is read", lambda f, m: remove_unused(f)),
    LoopPass("name_shared", "an expression is a tree: what a statement uses twice has a name", lambda f, m: name_shared(f)),
)
