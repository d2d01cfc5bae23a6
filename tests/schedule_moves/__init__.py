"""Moves of random schedules, and what each primitive refuses: one file for each family of `src/pliant/schedule/primitives`.

A family has a class with its moves, how often each is made (MOVES), the moves that need no loop (WITHOUT_LOOPS), the blocks that a move is
for (AIMS), and calls that are refused (REFUSALS). A class extends that of the family before it, so that moves can go on with others.
"""

from __future__ import annotations

from . import blocks, choices, loops, memory, reductions
from .base import Aim, Move, Refused

FAMILIES = (loops, memory, blocks, reductions, choices)
MOVES: list[Move] = [move for family in FAMILIES for move in family.MOVES]
WITHOUT_LOOPS: set[Move] = {move for family in FAMILIES for move in getattr(family, "WITHOUT_LOOPS", ())}
AIMS: dict[Move, Aim] = {move: aim for family in FAMILIES for move, aim in getattr(family, "AIMS", {}).items()}
REFUSALS: list[Refused] = [refused for family in FAMILIES for refused in getattr(family, "REFUSALS", ())]
