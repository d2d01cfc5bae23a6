"""Traces: what was done to a program, as data. They print as Python, save as JSON, and can be applied to a program again.

    trace = s.trace
    print(trace)                          # i, j, k = s.loops("c") …
    Trace.from_json(trace.to_json()).apply(func)

A handle is a number here: the order in which the schedule handed it out; so is a sampled value. What sampling chose is the vector
`decisions`, apart from the calls: a search changes the vector, or some of its decisions by name, and `apply` makes the schedule that it
means. Where that is none, the error says at which entry of the trace: `entry 4 of the trace, s.vectorize(j_1): cannot vectorize …`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..loop.stmt import Func
from ..support.errors import Error, ModelFileError, ScheduleError, counted
from ..support.record import dataclass

VERSION = 2
READABLE = (1, 2)  # version 1 has no names of decisions: they get the names that they have by default

F = TypeVar("F", bound=Callable[..., Any])
Position = int | tuple[int, ...]  # a decision in a vector: of a choice among several its number, of a tile its factors


def traced(method: F) -> F:
    """Marks a method whose calls are entries of traces: what a trace may call."""
    method.traced = True  # type: ignore[attr-defined]
    return method


class BrokenTraceError(ModelFileError, ScheduleError):
    """A trace that no schedule has made: it calls what is no primitive, or uses what no entry gave."""


@dataclass(frozen=True, slots=True)
class HandleId:
    """A handle by its number, with the name it is printed under."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class ValueId:
    """A sampled value by its number, with the name it is printed under."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One call of a method of `Schedule`, and the handles (or sampled values) that it gave."""

    op: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[HandleId | ValueId, ...] = ()

    def __str__(self) -> str:
        shown = [*(_shown(a) for a in self.args), *(f"{k}={_shown(v)}" for k, v in self.kwargs.items())]
        call = f"s.{self.op}({', '.join(shown)})"
        names = ", ".join([*(["_"] if self.op == "sample_tile" else []), *(r.name for r in self.results)])
        unpacked = "," if self.op in _TUPLES and len(self.results) == 1 else ""
        return f"{names}{unpacked} = {call}" if self.results else call


# What answers a tuple: one of a single result is unpacked, too.
_TUPLES = {"child_blocks", "consumers", "loop_partition", "loops", "output_blocks", "pad", "partition", "producers", "split"}
_TUPLES |= {"sample_partitioned_tile", "sample_perfect_tile", "transform_block_layout"}


def _shown(value: Any) -> str:
    if isinstance(value, (HandleId, ValueId)):
        return value.name
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))}{',' * (len(value) == 1)})"
    return f'"{value}"' if isinstance(value, str) else repr(value)


@dataclass(frozen=True, slots=True)
class Trace:
    """The calls that made a program out of another one, in order."""

    entries: tuple[Entry, ...] = ()
    decisions: tuple[Position, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self.entries))

    def apply(self, source: Any, decisions: Mapping[str, Any] | Sequence[Position] | None = None, seed: int = 0) -> Func:
        """Do the same to another program: a `Func`, or what carries one as `func`. See `schedule`."""
        program: Func = self.schedule(source, decisions, seed).program
        return program

    def schedule(self, source: Any, decisions: Mapping[str, Any] | Sequence[Position] | None = None, seed: int = 0) -> Any:
        """The schedule that does the same to another program; its `decisions` are the records of the choices.

        Sampled choices are `decisions` in order, else those of the trace; beyond them they are drawn from the stream of the seed. One that
        does not fit is repaired (`domains.py`). Decisions by name are some of the choices, in place of those of the trace; they are not
        repaired, but errors where they do not fit. What the decisions make impossible is a `ScheduleError` that names the entry.
        """
        from .schedule import Schedule

        named = decisions if isinstance(decisions, Mapping) else {}
        s = Schedule(source, decisions=named, seed=seed)
        s._choices.given = self.decisions if decisions is None or isinstance(decisions, Mapping) else tuple(decisions)
        choices = sum(e.op.startswith("sample_") for e in self.entries)
        if len(s._choices.given) > choices:
            raise ScheduleError(f"{counted(len(s._choices.given), 'decision')} for a trace with {counted(choices, 'choice')}")
        self.replay(s)
        s._choices.check_used()
        return s

    def undecided(self) -> Trace:
        """The calls alone: each choice is open again."""
        return Trace(self.entries)

    def replay(self, s: Any) -> None:
        """Do the same in a schedule."""
        known: dict[HandleId | ValueId, Any] = {}
        for n, e in enumerate(self.entries):
            try:
                _replay(e, s, known)
            except ScheduleError as error:
                error.what = f"entry {n + 1} of the trace, {e}: {error.what}"
                raise
            except Error as error:
                raise ScheduleError(f"entry {n + 1} of the trace, {e}: {error.what}", facts=error.facts, help=error.help) from error

    def to_json(self) -> str:
        """The trace as JSON text."""
        entries = [
            {
                "op": e.op,
                "args": [_coded(a) for a in e.args],
                "kwargs": {k: _coded(v) for k, v in e.kwargs.items()},
                "results": [_coded(r) for r in e.results],
            }
            for e in self.entries
        ]
        return json.dumps({"version": VERSION, "entries": entries, "decisions": self.decisions})

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace of a JSON text."""
        try:
            data = json.loads(text)
            if data["version"] not in READABLE:
                raise ModelFileError(f"this trace has version {data['version']}; version {VERSION} is expected")
            return Trace(
                tuple(
                    Entry(
                        str(e["op"]),
                        tuple(_decoded(a) for a in e["args"]),
                        {k: _decoded(v) for k, v in e["kwargs"].items()},
                        tuple(map(_result, e["results"])),
                    )
                    for e in data["entries"]
                ),
                tuple(_decision(d) for d in data.get("decisions", ())),
            )
        except ModelFileError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise ModelFileError("this is no trace of a schedule", facts=[str(error)]) from error


def _replay(e: Entry, s: Any, known: dict[HandleId | ValueId, Any]) -> None:
    """One call, with what earlier ones gave; what it gives is known then."""
    if not getattr(getattr(type(s), e.op, None), "traced", False):
        raise BrokenTraceError(f"this trace calls `{e.op}`, which is no primitive")

    def value(x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(value, x))
        if not isinstance(x, (HandleId, ValueId)):
            return x
        if x not in known:
            raise BrokenTraceError(f"this trace uses `{x.name}` before it is made")
        return known[x]

    method, args, kwargs = getattr(s, e.op), [value(a) for a in e.args], {k: value(v) for k, v in e.kwargs.items()}
    try:
        inspect.signature(method).bind(*args, **kwargs)
    except TypeError as error:
        raise BrokenTraceError(f"this trace calls `{e.op}` with other arguments than it takes: {error}") from None
    made = method(*args, **kwargs)
    listed = [x for x in (made if isinstance(made, tuple) else (made,)) if x is not None]
    if e.results and len(listed) != len(e.results):
        raise ScheduleError(f"it gives {counted(len(listed), 'result')} here, and {len(e.results)} in the trace")
    known.update(zip(e.results, listed, strict=False))


def _coded(value: Any) -> Any:
    if isinstance(value, (HandleId, ValueId)):
        return {"handle" if isinstance(value, HandleId) else "value": value.number, "name": value.name}
    return value


def _result(value: Any) -> HandleId | ValueId:
    found = _decoded(value)
    if not isinstance(found, (HandleId, ValueId)):
        raise ValueError(f"{value!r} is no result of a call")
    return found


def _decision(value: Any) -> Position:
    if isinstance(value, list):
        return tuple(map(_whole, value))
    return _whole(value)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is no decision")
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_decoded, value))
    if not isinstance(value, dict):
        return value
    name = str(value["name"])
    return HandleId(_whole(value["handle"]), name) if "handle" in value else ValueId(_whole(value["value"]), name)
