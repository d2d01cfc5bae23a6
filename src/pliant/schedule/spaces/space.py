"""A space of schedules: modules, applied in order to every block of a program. Their choices are the decisions of the space.

    space = Space([inline, tiling("SSRS"), threads_and_vectors])
    s = space.draw(matmul, seed=1)                      # a schedule; all of them are legal
    s.decisions                                         # what was chosen: (…, Decision("c.vectors", 2, …), Decision("c.rows0", 6, …), …)
    space.schedule(matmul, {"c.rows0": 4})              # the schedule with these choices, the others as of seed 0
    print(s.program); print(s.trace)

A module sees the blocks as they are when its turn comes, in program order: a producer before its consumers. Where it yields several
schedules, the decision `<block>.<module>` says which one goes on.

Sums keep the order that the default rules add in: long ones are in parts, products become FMAs (`schedule/library/usual_sums.py`). What
changes it otherwise is not taken, unless the space has `bits="any"`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import uuid4

from ...loop.analysis.nests import blocks, has_block
from ...loop.stmt import Func
from ...support.errors import ScheduleError
from ...support.random import Stream
from ...support.source import caller_span
from ...target import Target
from ...target import target as find_target
from ..decisions import DecisionError, OfKernel, as_domain
from ..domains import Domain, V
from ..library import finish_sums, prepare_sums
from ..schedule import Schedule
from .module import Module

Bits = Literal["same", "any"]


class Point(OfKernel):
    """The choices of one schedule of a space: values by name; each of the others is drawn from a stream of its own, so it stays what it is
    where another one changes.
    """

    __slots__ = ("repairs", "seed", "values_made", "wanted", "whole")

    def __init__(self, kernel: str, wanted: Mapping[str, Any], seed: int | str = 0, repairs: bool = False, whole: bool = False) -> None:
        super().__init__(kernel, {}, {})
        self.wanted, self.seed = wanted, seed
        self.repairs = repairs  # a value that is not legal becomes the nearest one
        self.whole = whole  # a choice that has no value is an error
        self.values_made: dict[str, Any] = {}  # all, also those of ways that were not taken: with them, the schedule is made again

    def decide(self, name: str, domain: Domain[V] | Sequence[V], default: V, reorders: bool, kind: Any, why: Any) -> V:
        """Return the value by name, else a drawn one; raises a DecisionError for one that is not legal."""
        legal = as_domain(domain)
        if name not in self.wanted:
            drawn = self.values_made[name] = legal.draw(Stream(self.seed).fork(name))
            return drawn
        value = legal.nearest(self.wanted[name]) if self.repairs else legal.member(self.wanted[name])
        if value is None:
            raise DecisionError(f"decision `{name}` cannot be {self.wanted[name]!r} in `{self.kernel}`")
        self.values_made[name] = value
        return value


class Space:
    """A space of schedules: modules, in the order in which they are applied."""

    def __init__(self, modules: Sequence[Module], bits: Bits = "same") -> None:
        """Make the space of some modules; with `bits="any"` also schedules that add in another order than the default rules.

        Raises a ScheduleError for something that is no module.
        """
        wrong = next((m for m in modules if not isinstance(m, Module)), None)
        if wrong is not None or bits not in ("same", "any"):
            what = f"a space is made of modules, not of {wrong!r}" if wrong is not None else f'bits are "same" or "any", not {bits!r}'
            raise ScheduleError(what, where=caller_span(), help="@pliant.tune.module makes a module of a function")
        self.modules, self.bits = tuple(modules), bits
        self._own = uuid4().hex  # stands for modules without a version: what was measured of them serves this space alone

    def names(self) -> tuple[str, ...]:
        """Return the names of the modules, as records have them; none if one of them cannot be recorded, or sums may be reordered."""
        names = tuple(m.recorded for m in self.modules)
        return names if all(names) and self.bits == "same" else ()

    def text(self) -> str:
        """Return text that tells spaces apart: their modules with versions, and the bits they keep."""
        return f"{self.bits} {' '.join(m.recorded or f'{m.name}@{self._own}' for m in self.modules)}"

    def draw(self, kernel: Any, seed: int = 0, target: str | Target = "native") -> Schedule:
        """Return a random schedule of a loop program (a kernel or a `Func`); the same one for the same seed."""
        return self.schedule(kernel, {}, target, seed)

    def schedule(self, kernel: Any, decisions: Mapping[str, Any], target: str | Target = "native", seed: int = 0) -> Schedule:
        """Return the schedule with some decisions by name, and the others of the seed.

        Raises a DecisionError for a value that is not legal, and for a name that no module has asked about.
        """
        func = Schedule(kernel).program  # it refuses what is no loop program
        return self.at(func, target if isinstance(target, Target) else find_target(target), Point(func.name, decisions, seed))

    def at(self, func: Func, target: Target, point: Point) -> Schedule:
        """Return the schedule of a loop program at a point of the space."""
        s = Schedule(func, decisions=point)
        prepare_sums(s, target)
        for m in self.modules:
            for b in blocks(s.program.body):
                if has_block(s.program, b.name):
                    s = self._after(m, s, b.name, target)
        finish_sums(s, target, func)
        made = point.values_made
        silent = next((name for name in made if name not in point.wanted), None)
        if point.whole and silent is not None:
            raise DecisionError(f"nothing is said about `{silent}`")
        unknown = next((name for name in point.wanted if name not in made and not point.repairs), None)
        if unknown is not None:
            raise DecisionError(f"no module makes a decision `{unknown}`", facts=[f"there are {', '.join(sorted(made)) or 'none'}"])
        return s

    def _after(self, m: Module, s: Schedule, block: str, target: Target) -> Schedule:
        """Return the schedule after a module had its turn at a block."""
        before = s.copy()
        ways = [w for w in m.ways(before, before.block(block), target) if self.bits == "any" or len(w.rounding) <= len(s.rounding)]
        if len(ways) <= 1:
            return ways[0] if ways else s
        number: int = s.sample_categorical(tuple(range(len(ways))), name=f"{block}.{m.name}")
        ways[number].sample_categorical(tuple(range(len(ways))), name=f"{block}.{m.name}")
        return ways[number]

    def __repr__(self) -> str:
        return f"Space([{', '.join(m.name for m in self.modules)}])"
