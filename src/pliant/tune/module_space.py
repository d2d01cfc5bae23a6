"""The space that modules make of one kernel, as a search sees it: the choices of one schedule, other schedules, and their programs.

    space = ModuleSpace.of(func, target, Space([inline, tiling("SSRS"), threads_and_vectors]))
    vector = space.drawn(stream)                      # {"0.lane": 1, "0.vectors": 2, "0_tail5.unroll": 2, …}
    next(space.around(vector).neighbors(stream))      # one choice changed (`mutators.py`), the others as they are, as far as they are legal
    space.candidate(vector)                           # the scheduled program

A vector holds all choices of a schedule; the empty one is the schedule of the rules, to which all others are compared. Names are those of
`schedule/spaces/replay.py`: numbers stand for the blocks of the program, so that a vector fits every program of the same form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..schedule.decisions import Decision, Decisions
from ..schedule.domains import Value
from ..schedule.spaces.replay import named, numbered, replayed
from ..schedule.spaces.space import Point, Space
from ..support.random import Stream
from .mutators import mutated
from .search_space import Vector

if TYPE_CHECKING:
    from ..loop.stmt import Func
    from ..schedule.schedule import Schedule
    from ..target import Target


@dataclass(frozen=True, slots=True)
class ModuleSpace:
    """The space of modules for a kernel, around one vector; `decisions` are those of its schedule."""

    func: Func
    target: Target
    space: Space
    vector: Vector = field(default_factory=dict)
    decisions: Mapping[str, Decision] = field(default_factory=dict)  # by `<number of the block>.<what>`

    @staticmethod
    def of(func: Func, target: Target, space: Space) -> ModuleSpace:
        """Returns the space of a kernel, around the schedule of seed 0."""
        return ModuleSpace(func, target, space)._at(Point(func.name, {}))

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules, as records name them."""
        return self.space.names()

    def schedule(self, vector: Vector) -> Schedule:
        """Returns the schedule of a vector; raises a ScheduleError for one that is not legal."""
        return replayed(self.space, self.func, self.target, vector)

    def around(self, vector: Vector) -> ModuleSpace:
        """Returns the space around another vector."""
        return self._at(Point(self.func.name, named(vector, self.func), whole=True)) if vector else self

    def neighbors(self, stream: Stream) -> Iterator[dict[str, Value]]:
        """Yields vectors of which one choice was changed by a mutator; choices that this makes illegal become the nearest legal ones."""
        for name in stream_order(list(self.decisions), stream):
            d = self.decisions[name]
            value = mutated(d, stream)
            if value != d.value:
                wanted = named({**self.vector, name: value}, self.func)
                yield dict(self._at(Point(self.func.name, wanted, repairs=True)).vector)

    def drawn(self, stream: Stream) -> dict[str, Value]:
        """Returns the vector of a random schedule."""
        return dict(self._at(Point(self.func.name, {}, stream.word())).vector)

    def candidate(self, vector: Vector) -> tuple[Func, Decisions]:
        """Returns the scheduled program; that of the rules for the empty vector."""
        return (self.schedule(vector).func if vector else self.func), Decisions()

    def _at(self, point: Point) -> ModuleSpace:
        """Returns the space around a point."""
        s = self.space.at(self.func, self.target, point)
        vector = {numbered(name, self.func): value for name, value in point.values_made.items()}
        searched = {numbered(d.name, self.func): d for d in s.decisions if d.domain.size > 1}
        return ModuleSpace(self.func, self.target, self.space, vector, searched)


def stream_order(names: list[str], stream: Stream) -> Iterator[str]:
    """Yields the names in a random order."""
    left = list(names)
    while left:
        yield left.pop(stream.below(len(left)))
