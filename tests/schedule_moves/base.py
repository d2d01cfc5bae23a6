"""What moves have in common: a schedule, a stream of random numbers, and choices that are often legal and sometimes nonsense."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from pliant.loop.analysis.nests import accesses, fed_by
from pliant.loop.buffer import Buffer
from pliant.loop.stmt import Block, Func, Reduce, Store, walk_stmts
from pliant.schedule import Schedule
from pliant.sym.expr import TRUE, Mul

Move = Callable[..., None]  # (player, name of a block, loops around it)
Aim = Callable[[Block], bool]  # the blocks that a move is for
# kernel, what to do before, the call that is refused, part of the message, part of an underlined line
Refused = tuple[str, str, str, str, str]
NONSENSE: list[Any] = [0, -1, True, 2.5, "shared", "", None, (), (1, 2), 10**9, object()]


class Moves:
    """A schedule under random moves."""

    def __init__(self, func: Func, seed: int) -> None:
        self.random = random.Random(f"schedule {seed}")
        self.s = Schedule(func, seed=seed)
        self.pool: list[Any] = []  # every handle that was ever made

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, choices: Any) -> Any:
        return self.random.choice(list(choices))

    def names(self) -> list[str]:
        return [b.name for b in walk_stmts(self.s.program.body) if isinstance(b, Block)]

    def feeding(self, name: str, loops: list[Any], kind: str) -> list[Any]:
        """The loops that feed iterators of a kind alone, most often; all loops where there are none."""
        block = self.block(name)
        found = [x for x in loops if x.alive and fed_by(block, x.loop) == {kind}] if block is not None and self.chance(0.85) else []
        return found or loops

    def block(self, name: str) -> Block | None:
        """The block of that name, without a line in the trace."""
        return next((b for b in walk_stmts(self.s.program.body) if isinstance(b, Block) and b.name == name), None)

    def odd(self, usual: Any) -> Any:
        """The usual argument, or nonsense now and then."""
        return self.pick(NONSENSE) if self.chance(0.02) else usual

    def at(self, loops: list[Any]) -> Any:
        """None, or one of the loops."""
        return self.pick([None, *loops])

    def buffers(self, name: str) -> list[Buffer]:
        return [a.buffer for a in accesses(self.s.block(name).block)]


def is_sum(b: Block) -> bool:
    """A reduction with an init."""
    return b.init is not None and isinstance(b.body, Reduce)


def is_product(b: Block) -> bool:
    """A sum of products, or what is cut out of a padded one."""
    return isinstance(b.body, Reduce) and isinstance(b.body.values[0], Mul)


def is_store(b: Block) -> bool:
    """One store."""
    return isinstance(b.body, Store)


def has_predicate(b: Block) -> bool:
    """Guarded."""
    return b.predicate is not TRUE
