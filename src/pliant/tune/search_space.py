"""What a search sees of a space: its decisions around one vector, its neighbors, and the program of a vector.

Two kinds of spaces have it: what the rules decide for a kernel (`rule_space.py`), and what modules make of it (`module_space.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, Self

from ..loop.analysis.nests import blocks
from ..schedule.decisions import Decision, Decisions
from ..schedule.domains import Value
from ..support.random import Stream

if TYPE_CHECKING:
    from ..loop.stmt import Func

Vector = Mapping[str, Value]  # decisions by `<number of the block>.<what>`


class SearchSpace(Protocol):
    """The interface of the space of one kernel, around one vector."""

    @property
    def decisions(self) -> Mapping[str, Decision]:
        """The decisions that a search may change, by name; none if there is nothing to search."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the modules that make the schedules; none where the rules do."""

    def around(self, vector: Vector) -> Self:
        """Returns the space around another vector; raises a ScheduleError if the vector is not legal."""

    def neighbors(self, stream: Stream) -> Iterator[dict[str, Value]]:
        """Yields vectors that differ from this one in one decision, and in those that follow from it."""

    def drawn(self, stream: Stream) -> dict[str, Value]:
        """Returns a random vector."""

    def candidate(self, vector: Vector) -> tuple[Func, Decisions]:
        """Returns what is compiled for a vector: a program, and the decisions of its rules. Raises a ScheduleError if it is not legal."""


def named(vector: Vector, func: Func) -> dict[str, Value]:
    """Returns the vector under the names of the blocks of a program, as `pliant.compile` takes it."""
    names = {str(n): b.name for n, b in enumerate(blocks(func.body))}
    parts = ((name.partition("."), v) for name, v in vector.items())
    return {f"{names[number]}.{what}": v for (number, _, what), v in parts if number in names}
