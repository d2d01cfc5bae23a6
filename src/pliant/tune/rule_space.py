"""The space of a kernel: the decisions that its default rules make, each with its domain; the model's choices are the first point.

    space = RuleSpace.of(func, target, {})                  # the decisions around the defaults
    space.decisions["0.tile"].domain.size               # 35
    space.around({"0.tile": (4, 2)}).neighbors(...)     # domains may depend on other decisions

A vector holds the values that differ from the defaults, by the number of the block in the program, so that it fits every program of the
same form. The unit of replay is the rules with a vector, not a trace: a trace names blocks that depend on tiles and sizes.

Not in the space are decisions that reorder a sum, since results must keep their bits, those about layouts, which several kernels share,
and those about sharing work, which one thread cannot measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ..backend import backend_of
from ..loop.analysis.nests import blocks, constant_extent, fed_by, loops_above
from ..schedule.decisions import Decision, Decisions
from ..schedule.domains import Value
from ..support.random import Stream
from .search_space import Vector, named

if TYPE_CHECKING:
    from ..loop.stmt import Func
    from ..target import Target

LISTED = 96  # values of a domain that are listed; of a larger one some are drawn


@dataclass(frozen=True, slots=True)
class RuleSpace:
    """The decisions of a kernel that a search may change, as they are around one vector."""

    func: Func
    target: Target
    vector: Vector  # the point around which the domains hold
    decisions: Mapping[str, Decision]  # by `<number of the block>.<what>`
    why: str = ""  # which rules took the kernel, as `pliant.explain` tells it
    modules: tuple[str, ...] = ()

    @staticmethod
    def of(func: Func, target: Target, vector: Vector) -> RuleSpace:
        """Returns the space of a kernel around a vector; raises a ScheduleError if the vector is not legal."""
        asked = Decisions(named(vector, func))
        _, why = backend_of(target).schedule(func, target, asked.of_kernel(func.name))
        asked.check_used()
        numbers = {b.name: str(n) for n, b in enumerate(blocks(func.body))}
        made = ((*d.name.partition("."), d) for d in asked.kernels[0].made.values())
        kept = {f"{numbers[block]}.{what}": d for block, _, what, d in made if block in numbers and _searched(d)}
        return RuleSpace(func, target, dict(vector), kept, why)

    def around(self, vector: Vector) -> RuleSpace:
        """Returns the space around another vector."""
        return self if vector == self.vector else RuleSpace.of(self.func, self.target, vector)

    def neighbors(self, stream: Stream) -> Iterator[dict[str, Value]]:
        """Yields the vectors that differ from this one in one decision: all values of a small domain, some of a large one."""
        for name, d in self.decisions.items():
            values = d.domain if d.domain.size <= LISTED else (d.domain.draw(stream) for _ in range(LISTED))
            for value in values:
                if value != d.value:
                    yield self.changed({name: value})

    def changed(self, values: Vector) -> dict[str, Value]:
        """Returns the vector with other values; those that equal the default are left out of it."""
        vector = {**self.vector, **values}
        return {n: v for n, v in vector.items() if n not in self.decisions or v != self.decisions[n].default}

    def drawn(self, stream: Stream) -> dict[str, Value]:
        """Returns a random vector of the space; its values need not fit each other, then the rules refuse it."""
        return self.changed({name: d.domain.draw(stream) for name, d in self.decisions.items()})

    def candidate(self, vector: Vector) -> tuple[Func, Decisions]:
        """Returns the program with the decisions of a vector for its rules."""
        return self.func, Decisions(named(vector, self.func))

    def described(self) -> str:
        """Returns the decisions and the sizes of their domains as text."""
        return ", ".join(f"{name} ({d.domain.size})" for name, d in islice(self.decisions.items(), 12)) or "no decisions"


def sums_by_size(space: RuleSpace) -> bool:
    """True if the rules may add in another order for some sizes: they have several versions of a kernel with a sum of unknown length."""
    func = space.func
    loops = [(b, x) for b in blocks(func.body) for x in loops_above(func, b)]
    return space.why.startswith("if ") and any("R" in fed_by(b, x) and constant_extent(func, x) is None for b, x in loops)


def _searched(d: Decision) -> bool:
    return d.kind == "schedule" and not d.reorders and d.domain.size > 1
