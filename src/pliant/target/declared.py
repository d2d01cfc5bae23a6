"""The registry of tensor instructions that users declare (`pliant.instruction`).

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
    """Adds a user's tensor instruction, or replaces the declared one of the same name."""
    DECLARED.pop(instruction.name, None)  # removed first, so that the latest declaration is last in order and tried first
    DECLARED[instruction.name] = instruction


def withdraw(name: str) -> None:
    """Removes a user's tensor instruction, if it is declared."""
    DECLARED.pop(name, None)


def declared_text(target: Target) -> str:
    """The text of the declared instructions that a machine has, for cache keys; "" if there are none."""
    return "".join(f"\n{i!r}" for i in DECLARED.values() if i.is_on(target))
