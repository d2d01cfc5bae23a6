"""Tensor instructions in C: intrinsics under `#if`, with the plain loop as the fallback.

    #if defined(__SSE2__)
      _mm_storeu_si128((__m128i *)(c + i), …);
    #else
      for (int32_t j = 0; j < 4; ++j) { … }
    #endif

The machine is known only when the C code is compiled, through macros, so both versions are in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..dtype import i64
from ..loop.buffer import Buffer
from ..loop.stmt import INSTRUCTION, For
from ..sym.expr import Expr
from ..sym.poly import to_expr
from ..target.instructions import Instruction, find_instruction
from .instruction_sites import Place, places_of


def c_places(loop: For) -> tuple[Instruction, list[Place]] | None:
    """Return the instruction that a loop is marked with, and its operands; None if it has no C form or an operand has no address."""
    name = loop.annotations.get(INSTRUCTION)
    instruction = find_instruction(name) if isinstance(name, str) else None
    if instruction is None or not instruction.c:
        return None
    places = places_of(loop, instruction, expanded=False)
    if places is None or any(p.buffer.scope == "register" for p in places):
        return None
    return instruction, places


def c_operands(instruction: Instruction, places: list[Place], pointer: Callable[[Buffer, Expr, bool], str]) -> str:
    """Return the statement of the C form with the operands' addresses filled in; `pointer` writes an address."""
    pointers = {p.parameter.name: pointer(p.buffer, to_expr(p.start, i64), not p.written) for p in places}
    return re.sub(r"\{(\w+)\}", lambda m: pointers[m[1]], instruction.c) + ";"


def c_headers(instructions: list[Instruction]) -> list[str]:
    """Return the `#include` lines that the C forms need, under the conditions of their instructions."""
    lines: list[str] = []
    for condition, header in dict.fromkeys((i.c_if, h) for i in instructions for h in i.headers):
        include = f"#include <{header}>"
        lines.append(f"#if {condition}\n{include}\n#endif" if condition else include)
    return lines
