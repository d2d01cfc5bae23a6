"""Sampling: choices in a schedule that a search makes, each a number or a few that stand apart from the trace.

    a, b = s.sample_perfect_tile(j, 2)             # 40 = 5 * 8, or any other two factors
    s.split(j, a, b)
    s.trace.decisions                              # ((5, 8),)
    s.trace.apply(func, decisions=[(10, 4)])       # the same schedule with another choice

What was sampled is an int (or a text) that knows where it came from, so that the trace of a later call refers to the choice, not to
its value; arithmetic on it gives plain numbers. A decision that does not fit where it is used (an earlier one changed an extent)
is repaired to the nearest that does; one that is no whole number nor some of them is refused. Factors of 1 are loops too: whatever is
chosen, a split gives as many loops, and what comes after it in a trace can be done to them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import suppress
from math import isqrt, prod
from typing import Any

from ..loop.stmt import Block, Func
from ..support.errors import ScheduleError
from ..support.random import Stream
from .cursor import Forward
from .nest import accesses, constant_extent, loops_above, readers
from .primitives.inline import compute_inline
from .primitives.move import compute_at
from .refusal import refuse
from .trace import ValueId

Decision = int | tuple[int, ...]
MOST_PARTS = 64
TILES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)


class SampledInt(int):
    """A sampled number, and which value of its schedule it is: in another schedule it is a plain number."""

    origin: ValueId | None

    def __new__(cls, value: int, origin: ValueId | None = None) -> SampledInt:
        sampled = super().__new__(cls, value)
        sampled.origin = origin
        return sampled


class SampledText(str):
    """A sampled text, and which value of its schedule it is: in another schedule it is a plain text."""

    __slots__ = ("origin",)
    origin: ValueId | None

    def __new__(cls, value: str, origin: ValueId | None = None) -> SampledText:
        sampled = super().__new__(cls, value)
        sampled.origin = origin
        return sampled


def plain(value: Any) -> Any:
    """A value without its origin."""
    if isinstance(value, SampledInt):
        return int(value)
    if isinstance(value, SampledText):
        return str(value)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    return tuple(plain(v) for v in value) if type(value) is tuple else value


def as_decision(value: Any) -> Decision:
    """What somebody gives as a decision: a whole number, or several."""
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


def categorical(count: int, weights: Sequence[float] | None, given: Decision | None, stream: Stream) -> int:
    """The position of a choice among `count`."""
    if weights is not None and not all(isinstance(w, (int, float)) for w in weights):
        raise ScheduleError("probabilities are numbers", facts=[f"these are {tuple(weights)!r}"])
    if weights is not None and (len(weights) != count or min(weights) < 0 or sum(weights) <= 0):
        raise ScheduleError(f"{count} candidates have {len(weights)} probabilities, or these are negative or all 0")
    if given is not None:
        return min(max(given, 0), count - 1) if isinstance(given, int) else 0
    return stream.below(count) if weights is None else stream.weighted(weights)


def check_parts(parts: int, most: int) -> None:
    """Refuse a number of parts that is none, and a largest factor that is none."""
    if not isinstance(parts, int):
        raise ScheduleError(f"the number of parts is a whole number, not {parts!r}")
    if not 1 <= parts <= MOST_PARTS:
        raise ScheduleError(f"there are no {parts} parts, but 1 to {MOST_PARTS}")
    if not isinstance(most, int) or most < 1:
        raise ScheduleError(f"the largest factor is a positive whole number, not {most!r}")


def perfect_tile(extent: int, parts: int, most: int, given: Decision | None, stream: Stream) -> tuple[int, ...]:
    """`parts` factors whose product is the extent, the last one at most `most`."""
    if isinstance(given, tuple) and len(given) == parts and min(given) >= 1 and prod(given) == extent and given[-1] <= most:
        return given
    wanted = given if isinstance(given, tuple) else ()
    found: list[int] = []
    rest = extent
    for n in range(parts - 1, 0, -1):
        limit = most if n == parts - 1 else rest
        divisors = [d for d in _divisors(rest) if d <= limit] or [1]
        if given is None:
            found.append(stream.choice(divisors))
        else:
            asked = wanted[n] if n < len(wanted) else 1
            found.append(max((d for d in divisors if d <= max(1, asked)), default=1))
        rest //= found[-1]
    return (rest, *reversed(found))


def check_partition(func: Func, loop: Any, parts: int, position: int, factor: int) -> int:
    """The extent of a loop whose inner parts, from `position` on, are to be a multiple of `factor` together."""
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


def partitioned_tile(
    extent: int, parts: int, position: int, factor: int, most: int, given: Decision | None, stream: Stream
) -> tuple[int, ...]:
    """A perfect tile of which the parts from `position` on are a multiple of `factor` together."""
    fits = isinstance(given, tuple) and len(given) == parts and min(given) >= 1 and prod(given) == extent and given[-1] <= most
    if isinstance(given, tuple) and fits and prod(given[position:]) % factor == 0:
        return given
    wanted = given if isinstance(given, tuple) else None
    inner = [d * factor for d in _divisors(extent // factor) if position > 0 or d * factor == extent]
    if parts - position == 1:  # the innermost part alone
        inner = [n for n in inner if n <= most] or inner[:1]
    if given is None:
        size = stream.choice(inner)
    else:
        asked = prod(wanted[position:]) if wanted is not None and len(wanted) == parts else 1
        size = max((n for n in inner if n <= asked), default=inner[0])
    outer_wanted, inner_wanted = (None, None) if given is None else ((wanted or ())[:position], (wanted or ())[position:])
    outer = perfect_tile(extent // size, position, extent, outer_wanted, stream.fork("outer")) if position else ()
    return (*outer, *perfect_tile(size, parts - position, most, inner_wanted, stream.fork("inner")))


def _divisors(n: int) -> list[int]:
    """The divisors of a number, in order."""
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


def free_tile(parts: int, most: int, given: Decision | None, stream: Stream) -> tuple[int, ...]:
    """`parts - 1` inner factors of any size up to `most`."""
    if given is not None:
        asked = given if isinstance(given, tuple) else (given,)
        return tuple(min(max(1, asked[n] if n < len(asked) else 1), most) for n in range(parts - 1))
    return tuple(stream.choice([t for t in TILES if t <= most]) for _ in range(parts - 1))


def perfect_extent(func: Func, loop: Any) -> int:
    """The extent of a loop that is to be cut into factors."""
    extent = constant_extent(func, loop)
    if extent is None or extent < 1:
        raise refuse(
            f"cannot sample a perfect tile of loop `{loop.var.name}`: its extent is no positive constant",
            func,
            (loop, f"extent {loop.extent}"),
            help="sample_tile takes any extent",
        )
    return extent


def compute_location(func: Func, block: Block, given: Decision | None, stream: Stream) -> tuple[int, tuple[Func, Forward] | None, str]:
    """Where a block is computed: the decision, the edit that puts it there (None: it stays), and a word for it.

    The choices are: where it is, inlined into its readers, and each loop of its first reader that compute_at accepts.
    """
    choices: list[tuple[tuple[Func, Forward] | None, str]] = [(None, "root")]
    with suppress(ScheduleError):
        choices.append((compute_inline(func, block), "inline"))
    written = dict.fromkeys(a.buffer for a in accesses(block) if a.write)
    first = next((b for buffer in written for b in readers(func, buffer) if b is not block), None)
    for loop in loops_above(func, first) if first is not None else []:
        with suppress(ScheduleError):
            choices.append((compute_at(func, block, loop), loop.var.name))
    n = categorical(len(choices), None, given, stream)
    return n, *choices[n]
