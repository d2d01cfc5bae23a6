"""The sampled choices of one schedule: where their values come from, what was chosen, and which of them change the order of a sum.

A choice takes the value asked for by name (`Schedule(func, decisions={"c.tile_j": (5, 8)})`), else the one asked for by position
(`decisions=[(5, 8)]`, repaired if it does not fit), else one drawn from the seed's stream. The value is an int (or a str) that knows its
origin, so that the trace of a later call refers to the choice and not to its value. Arithmetic on it gives plain numbers.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..loop.analysis.nests import blocks
from ..loop.stmt import Block, For
from ..support.errors import ScheduleError
from ..support.random import Stream
from ..sym.expr import free_vars
from .cursor import fresh_name
from .decisions import Decision, Decisions, OfKernel
from .domains import Domain, V
from .trace import Position, ValueId


class SampledInt(int):
    """A sampled number with its origin in a schedule; any other schedule treats it as a plain number."""

    origin: ValueId | None

    def __new__(cls, value: int, origin: ValueId | None = None) -> SampledInt:
        sampled = super().__new__(cls, value)
        sampled.origin = origin
        return sampled


class SampledText(str):
    """A sampled text with its origin in a schedule; any other schedule treats it as a plain text."""

    __slots__ = ("origin",)
    origin: ValueId | None

    def __new__(cls, value: str, origin: ValueId | None = None) -> SampledText:
        sampled = super().__new__(cls, value)
        sampled.origin = origin
        return sampled


def plain(value: Any) -> Any:
    """Return a sampled value as a plain Python number or text, also inside tuples; numpy scalars become Python numbers."""
    if isinstance(value, SampledInt):
        return int(value)
    if isinstance(value, SampledText):
        return str(value)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    return tuple(plain(v) for v in value) if type(value) is tuple else value


def as_position(value: Any) -> Position:
    """Return a positional decision as a whole number or a tuple of them; raise if it is neither."""
    try:
        if isinstance(value, (list, tuple)):
            return tuple(map(_whole, value))
        return _whole(value)
    except TypeError:
        raise ScheduleError(f"{value!r} is no decision", help="a decision is a whole number, or a tuple of them") from None


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


class ChoiceLog:
    """The choices of a schedule so far, and the source of the next ones.

    A choice takes the value asked for by name, else the one asked for by position, else one drawn from the seed's stream.
    """

    __slots__ = ("answers", "asked", "given", "of_sums", "positions", "records", "seed", "taken", "values")

    def __init__(self, kernel: str, decisions: Mapping[str, Any] | Sequence[Position] | OfKernel, seed: int) -> None:
        self.asked = None if isinstance(decisions, OfKernel) else Decisions(decisions if isinstance(decisions, Mapping) else None)
        self.answers = decisions if isinstance(decisions, OfKernel) else self.asked.of_kernel(kernel)  # type: ignore[union-attr]
        self.given: Sequence[Position] = ()  # values by position; each is checked when it is used
        if not isinstance(decisions, (Mapping, OfKernel)):
            self.given = decisions if isinstance(decisions, (tuple, list)) else tuple(decisions)
        self.seed = seed
        self.records: list[Decision] = []
        self.positions: list[Position] = []
        self.values: list[tuple[ValueId, int]] = []  # every sampled value, and the number of the choice that gave it
        self.taken: set[str] = set()  # names of choices in use
        self.of_sums: set[int] = set()  # the choices that split a reduction loop

    def copy(self) -> ChoiceLog:
        """Return a copy for a copy of the schedule; choices of a rule keep going to its kernel."""
        answers: Any = self.answers if self.asked is None else self.asked.values
        other = ChoiceLog(self.answers.kernel, answers, self.seed)
        other.given = self.given
        other.restore(self.state())
        if self.asked is not None:
            other.answers.made = dict(self.answers.made)
        return other

    def state(self) -> tuple[Any, ...]:
        """Return a snapshot of all choices made so far; `restore` takes it."""
        return list(self.records), list(self.positions), list(self.values), set(self.taken), set(self.of_sums)

    def restore(self, state: tuple[Any, ...]) -> None:
        """Go back to a snapshot of `state`: forget the choices made since."""
        names = {d.name for d in state[0]}
        for d in self.records:
            if d.name not in names:
                self.answers.made.pop(d.name, None)
        self.records, self.positions, self.values, self.taken, self.of_sums = state

    def decide(self, name: str, domain: Domain[V], loop: For | None = None, reorders: bool = False) -> V:
        """Make the next sampled choice from a domain, record it, and return its value; `loop` is the loop that the value will split.

        `reorders` says that another value changes the order of a sum.
        """
        number = len(self.records)
        own = fresh_name(name, set(self.taken))
        if number < len(self.given):
            default = domain.decode(as_position(self.given[number]))
        else:
            default = domain.draw(Stream(self.seed).fork(str(number)))
        value = self.answers.decide(own, domain, default, reorders, "schedule", "")
        self.records.append(Decision(own, value, domain, default, reorders, asked_as=self.answers.names.get(own, "")))
        self.positions.append(domain.encode(value))
        self.taken.add(own)
        if loop is not None and _reduces(loop):
            self.of_sums.add(number)
        return value

    def note(self, arguments: Iterable[Any], statements: Iterable[Any], reorders: bool) -> None:
        """Follow sampled values into the edit that uses them, and mark their choices if the edit `reorders` a sum.

        An edit reorders through the values it takes, and through earlier splits of reduction loops, whose parts it may move. With several
        reductions in a program this may mark too many choices, but never too few.
        """
        if not self.records:
            return
        sampled = list(_flat(arguments))
        used = {choice for value, choice in self.values if any(a is value for a in sampled)}
        loops = [x for x in _flat(statements) if isinstance(x, For)]
        if any(map(_reduces, loops)):
            self.of_sums |= used
        for n in (used | self.of_sums if loops else used) if reorders else ():
            self.records[n] = replace(self.records[n], reorders=True)
            made = self.answers.made
            name = self.records[n].name
            if name in made:  # the choices of a copy may be forgotten by another copy
                made[name] = replace(made[name], reorders=True)

    def check_used(self) -> None:
        """Raise if the caller gave a decision under a name that no choice of this schedule has."""
        if self.asked is not None and self.asked.values:
            self.asked.check_used("choice of this schedule", "s.decisions lists those that it has made")


def choice_name(wanted: str | None, default: str) -> str:
    """Return the name of a choice, `<block>.<what>`: `wanted`, or `default` if that is None; raise if `wanted` has another form."""
    if wanted is None:
        block, _, what = default.rpartition(".")
        return ".".join((re.sub(r"[.@\s]", "_", block), what))
    if not isinstance(wanted, str) or not re.fullmatch(r"[^.@\s]+\.[^.@\s]+", wanted):
        raise ScheduleError(f"{wanted!r} is no name of a decision", help='a name is "<block>.<what>"')
    return str(wanted)


def about_loop(loop: For, kernel: str) -> str:
    """Return the name of the first block in a loop, else of the kernel; choices about the loop are named after it."""
    inside = blocks(loop)
    return inside[0].name if inside else kernel


def _reduces(loop: For) -> bool:
    """True if a loop runs over terms of a reduction."""
    return any(i.kind == "R" and loop.var in free_vars(i.value) for b in blocks(loop) for i in b.iters)


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for v in values:
        yield from _flat(v) if isinstance(v, tuple) and not isinstance(v, (Block, For)) else (v,)
