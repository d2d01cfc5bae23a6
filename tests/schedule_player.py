"""Random schedules: every primitive of `Schedule` (schedule_moves/), with arguments that are often legal and sometimes nonsense.

player = Player(func, seed); player.play(5); player.s.trace
"""

from __future__ import annotations

import os

from pliant.loop.stmt import Block, Func, walk_stmts
from pliant.support.errors import ScheduleError
from schedule_moves import AIMS, MOVES, WITHOUT_LOOPS
from schedule_moves.base import Move
from schedule_moves.choices import ChoiceMoves


class Player(ChoiceMoves):
    """Calls random methods of a schedule."""

    def __init__(self, func: Func, seed: int) -> None:
        super().__init__(func, seed)
        self.tried: list[str] = []  # the moves, for the message of a failure
        self.refused = 0

    def play(self, steps: int) -> None:
        """Make moves; what is refused has to be refused in words."""
        for _ in range(steps):
            names = self.names()
            if not names:
                return
            move = self.pick(FOCUS) if FOCUS and self.chance(0.4) else self.pick(MOVES)
            name = self.aimed(move, names)
            loops = list(self.s.loops(name))
            self.pool += loops
            if loops and self.chance(0.04):
                loops = [*loops, self.pick(self.pool)]
            if not loops and move not in WITHOUT_LOOPS:
                continue
            self.tried.append(f"{move.__name__} {name}")
            try:
                move(self, name, loops)
            except ScheduleError as error:
                self.tried[-1] += " (refused)"
                self.refused += 1
                assert error.what and "Traceback" not in str(error)

    def aimed(self, move: Move, names: list[str]) -> str:
        """A block for a move: most often one that it may be for, and that moves before were about."""
        fits = AIMS.get(move)
        if fits is not None and self.chance(0.85):
            names = [b.name for b in walk_stmts(self.s.program.body) if isinstance(b, Block) and fits(b)] or names
        return str(self.pick(names))


# Moves to make more often, by name: what `tools/mutants.py` asks for when it changed a primitive.
FOCUS = [getattr(Player, name) for name in os.environ.get("PLIANT_FOCUS", "").split()]
