"""The tensor instructions that users have declared (`pliant.instruction`), as the compiler looks them up.

Code depends on them, so their text is part of the key of every cache of compiled code. This module is small because programs that only
load code from a cache import it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .instructions import Instruction
    from .machine import Target

DECLARED: dict[str, Instruction] = {}  # by name, in the order of declaration


def declare(instruction: Instruction) -> None:
    """Add an instruction, or replace the declared one of the same name."""
    DECLARED.pop(instruction.name, None)  # the latest declaration is tried first
    DECLARED[instruction.name] = instruction


def withdraw(name: str) -> None:
    """Forget a declared instruction."""
    DECLARED.pop(name, None)


def declared_text(target: Target) -> str:
    """All that code for a machine can depend on of the declared instructions; "" where it has none of them."""
    return "".join(f"\n{i!r}" for i in DECLARED.values() if i.is_on(target))
