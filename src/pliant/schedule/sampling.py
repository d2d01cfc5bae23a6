"""Sampling primitives: choices in a schedule that a search or a user makes, each a decision with a name and a domain.

    a, b = s.sample_perfect_tile(j, 2)                       # 40 = 5 * 8, or any other two factors
    s.split(j, a, b)
    s.decisions                                              # (Decision("c.tile_j", (5, 8), …),)
    s.trace.apply(func, decisions={"c.tile_j": (10, 4)})     # the same schedule with another choice

Decisions by name are strict: an unknown name, or a value outside the domain, is an error. Decisions in a trace are numbers in order
(`trace.decisions`, `((5, 8),)`). If one does not fit because an earlier one changed an extent, it is repaired to the nearest value that
does. A factor of 1 is a loop too: a split gives the same number of loops whatever is chosen, so later entries of a trace still apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..loop.analysis.nests import accesses, constant_extent, loops_above, readers
from ..loop.stmt import Block, For, Func
from ..support.errors import ScheduleError
from ..support.source import caller_span
from .choices import ChoiceLog, SampledInt, SampledText, about_loop, choice_name, plain
from .cursor import Forward, fresh_name
from .decisions import Decision, DecisionError
from .domains import Choices, Domain, FreeTiles, PerfectTiles
from .errors import refuse
from .primitives.inline import compute_inline
from .primitives.move import compute_at
from .trace import Entry, ValueId, traced

MOST_PARTS = 64  # most factors of a tile: more is a mistake, and counting tiles of more factors takes long

Edit = tuple[Func, Forward]


class Sampling:
    """The sampling primitives of `Schedule`.

    Each takes the `name` of its decision, `<block>.<what>`. The default name comes from the block and the loop, with a number appended if
    that name is taken. `reorders=True` says that the choice changes the order of a sum. It is needed only where the schedule cannot see
    that, as in `if choice: s.rfactor(…)`; if a sampled value or a sampled loop goes into such a primitive, the schedule notices by itself.
    """

    program: Func
    _choices: ChoiceLog
    _entries: list[Entry]
    _names: set[str]

    def _resolve(self, value: Any, annotation: str) -> Any:
        raise NotImplementedError

    def _coded(self, value: Any) -> Any:
        raise NotImplementedError

    def _advance(self, func: Func, forward: Forward) -> None:
        raise NotImplementedError

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The choices so far, in order: name, value, domain, and whether another value changes the order of a sum."""
        return tuple(self._choices.records)

    @traced
    def sample_categorical(
        self,
        candidates: Sequence[int | str],
        probabilities: Sequence[float] | None = None,
        *,
        name: str | None = None,
        reorders: bool = False,
    ) -> Any:
        """Sample one of the candidates (integers or texts), with the probabilities if there are any, and return it.

        Record the choice in the trace. Raises a ScheduleError for other candidates. `reorders` says that another value changes the order of
        a sum.
        """
        if not isinstance(candidates, (tuple, list)) or not candidates or not all(isinstance(c, (int, str)) for c in candidates):
            raise ScheduleError("sample_categorical chooses among numbers and texts", where=caller_span())
        check_probabilities(len(candidates), probabilities)
        domain: Domain[Any] = Choices([plain(c) for c in candidates], probabilities)
        value = self._decide(choice_name(name, f"{self.program.name}.choice"), domain, None, reorders)
        kwargs = {} if probabilities is None else {"probabilities": tuple(probabilities)}
        return self._sampled("sample_categorical", (tuple(candidates),), kwargs, (value,))[0]

    @traced
    def sample_perfect_tile(
        self, loop: Any, parts: int, max_innermost: int = 64, *, name: str | None = None, reorders: bool = False
    ) -> tuple[Any, ...]:
        """Sample `parts` factors of the loop's extent for `split`, outermost first; of several, the last one is at most `max_innermost`.

        They are those asked for by name or by position, else drawn from the seed's stream. Illegal ones asked for by position are replaced
        by the nearest legal ones. Raises a ScheduleError for illegal ones asked for by name, and if the extent is no positive constant.
        `reorders` says that another value changes the order of a sum.
        """
        check_parts(parts, max_innermost)
        cut = self._resolve(loop, "For")
        tile = self._tile(name, cut, PerfectTiles(perfect_extent(self.program, cut), parts, max_innermost), reorders)
        return self._sampled("sample_perfect_tile", (loop, parts), {"max_innermost": max_innermost}, tile)

    @traced
    def sample_partitioned_tile(
        self,
        loop: Any,
        parts: int,
        position: int = 1,
        inner_factor: int = 1,
        max_innermost: int = 64,
        *,
        name: str | None = None,
        reorders: bool = False,
    ) -> tuple[Any, ...]:
        """Like `sample_perfect_tile`, but the product of the parts from `position` on is a multiple of `inner_factor`.

        The inner parts are then whole tiles of an instruction of that size. `reorders` says that another value changes the order of a sum.
        """
        check_parts(parts, max_innermost)
        position, inner_factor = plain(position), plain(inner_factor)
        cut = self._resolve(loop, "For")
        extent = check_partition(self.program, cut, parts, position, inner_factor)
        tile = self._tile(name, cut, PerfectTiles(extent, parts, max_innermost, position, inner_factor), reorders)
        return self._sampled("sample_partitioned_tile", (loop, parts, position, inner_factor), {"max_innermost": max_innermost}, tile)

    @traced
    def sample_tile(
        self, loop: Any, parts: int, max_factor: int = 64, *, name: str | None = None, reorders: bool = False
    ) -> tuple[Any, ...]:
        """Sample factors for `split` of any extent: None, then `parts` - 1 numbers up to `max_factor` that need not divide it.

        `reorders` says that another value changes the order of a sum.
        """
        cut = self._resolve(loop, "For")
        check_parts(parts, max_factor)
        tile = self._tile(name, cut, FreeTiles(parts - 1, max_factor), reorders)
        return (None, *self._sampled("sample_tile", (loop, parts), {"max_factor": max_factor}, tile))

    @traced
    def sample_compute_location(self, block: Any, *, name: str | None = None) -> str:
        """Sample where a block is computed, move it there and return the place: `root` (unchanged), `inline`, or a loop of its reader."""
        moved = self._resolve(block, "Block")
        places = locations(self.program, moved)
        coded = self._coded(block)
        word: str = self._decide(choice_name(name, f"{moved.name}.location"), Choices(tuple(places)), None, False)
        edit = places[word]
        if edit is not None:
            self._advance(*edit)
        self._sampled("sample_compute_location", (coded,), {}, ())
        return word

    def _tile(self, name: str | None, loop: For, domain: Domain[tuple[int, ...]], reorders: bool) -> tuple[int, ...]:
        default = f"{about_loop(loop, self.program.name)}.tile_{loop.var.name}"
        tile: tuple[int, ...] = self._decide(choice_name(name, default), domain, loop, reorders)
        return tile

    def _decide(self, name: str, domain: Domain[Any], loop: For | None, reorders: bool) -> Any:
        if not isinstance(reorders, bool):
            raise ScheduleError(f"reorders is True or False, not {reorders!r}")
        try:
            return self._choices.decide(name, domain, loop, reorders)
        except DecisionError as error:
            raise error.at(caller_span()) from None

    def _sampled(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any], values: Sequence[int | str]) -> tuple[Any, ...]:
        """Record the last choice in the trace; return its values as objects that know their origin."""
        log = self._choices
        record = log.records[-1]
        ids = [ValueId(len(log.values) + k, fresh_name("t", self._names)) for k in range(len(values))]
        log.values += [(i, len(log.records) - 1) for i in ids]
        more = {"name": record.name, **({"reorders": True} if record.reorders else {})}
        self._entries.append(Entry(op, tuple(self._coded(a) for a in args), {**kwargs, **more}, tuple(ids)))
        kinds = [SampledText if isinstance(v, str) else SampledInt for v in values]
        return tuple(kind(v, i) for kind, v, i in zip(kinds, values, ids, strict=True))  # type: ignore[arg-type]


def check_probabilities(count: int, weights: Sequence[float] | None) -> None:
    """Raise if the probabilities are not one non-negative number per candidate with a positive sum."""
    if weights is None:
        return
    if not isinstance(weights, (tuple, list)) or not all(isinstance(w, (int, float)) for w in weights):
        raise ScheduleError("probabilities are numbers", facts=[f"these are {weights!r}"])
    if len(weights) != count or min(weights) < 0 or sum(weights) <= 0:
        raise ScheduleError(f"{count} candidates have {len(weights)} probabilities, or these are negative or all 0")


def check_parts(parts: int, most: int) -> None:
    """Raise if the number of parts, or the largest factor, is no positive number in range."""
    if not isinstance(parts, int):
        raise ScheduleError(f"the number of parts is a whole number, not {parts!r}")
    if not 1 <= parts <= MOST_PARTS:
        raise ScheduleError(f"there are no {parts} parts, but 1 to {MOST_PARTS}")
    if not isinstance(most, int) or most < 1:
        raise ScheduleError(f"the largest factor is a positive whole number, not {most!r}")


def check_partition(func: Func, loop: For, parts: int, position: int, factor: int) -> int:
    """Return the extent of a loop; raise if its inner parts, from `position` on, cannot be a multiple of `factor`."""
    if type(position) is not int or not 0 <= position < parts:
        raise ScheduleError(f"there is no part {position!r} of {parts}", help="parts are counted from 0, outermost first")
    if type(factor) is not int or factor < 1:
        raise ScheduleError(f"the inner parts are a multiple of a positive whole number, not of {factor!r}")
    extent = perfect_extent(func, loop)
    if extent % factor:
        raise refuse(
            f"cannot sample a tile of loop `{loop.var.name}` whose inner parts are a multiple of {factor}: that does not divide its extent",
            func,
            (loop, f"extent {extent}"),
            help="pad rounds extents up; sample_perfect_tile takes any divisors",
        )
    return extent


def perfect_extent(func: Func, loop: For) -> int:
    """Return the constant extent of a loop that is to be factored; raise if it has none."""
    extent = constant_extent(func, loop)
    if extent is None or extent < 1:
        raise refuse(
            f"cannot sample a perfect tile of loop `{loop.var.name}`: its extent is no positive constant",
            func,
            (loop, f"extent {loop.extent}"),
            help="sample_tile takes any extent",
        )
    return extent


def locations(func: Func, block: Block) -> dict[str, Edit | None]:
    """Return the locations where a block can be computed, by name, and the edit that moves it there (None: it stays).

    The locations are: where it is, inlined into its readers, and each loop of its first reader that `compute_at` accepts.
    """
    places: dict[str, Edit | None] = {"root": None}
    with suppress(ScheduleError):
        places["inline"] = compute_inline(func, block)
    written = dict.fromkeys(a.buffer for a in accesses(block) if a.write)
    first = next((b for buffer in written for b in readers(func, buffer) if b is not block), None)
    for loop in loops_above(func, first) if first is not None else []:
        with suppress(ScheduleError):
            places[fresh_name(loop.var.name, set(places))] = compute_at(func, block, loop)
    return places
