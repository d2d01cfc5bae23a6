"""Tensor instructions with a C form: what the compiler of the C code is asked for, where that has it.

    #if defined(__SSE2__)
      _mm_storeu_si128((__m128i *)(c + i), …);
    #else
      for (int32_t j = 0; j < 4; ++j) { … }
    #endif

Which machine C code is compiled for is known only then, by macros; so the loop is there, too.
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
    """The instruction that a loop is marked as, and its operands; None where it has no C form, or an operand no address."""
    name = loop.annotations.get(INSTRUCTION)
    instruction = find_instruction(name) if isinstance(name, str) else None
    if instruction is None or not instruction.c:
        return None
    places = places_of(loop, instruction, expanded=False)
    if places is None or any(p.buffer.scope == "register" for p in places):
        return None
    return instruction, places


def c_operands(instruction: Instruction, places: list[Place], pointer: Callable[[Buffer, Expr, bool], str]) -> str:
    """The form with the operands' addresses in their places, as a line; `pointer` writes an address."""
    pointers = {p.parameter.name: pointer(p.buffer, to_expr(p.start, i64), not p.written) for p in places}
    return re.sub(r"\{(\w+)\}", lambda m: pointers[m[1]], instruction.c) + ";"


def c_headers(instructions: list[Instruction]) -> list[str]:
    """The lines that include what forms need, where their instructions are there."""
    lines: list[str] = []
    for condition, header in dict.fromkeys((i.c_if, h) for i in instructions for h in i.headers):
        include = f"#include <{header}>"
        lines.append(f"#if {condition}\n{include}\n#endif" if condition else include)
    return lines
