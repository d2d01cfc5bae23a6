"""Traces: the primitive calls that transformed a program, as data. They print as Python, save as JSON, and can be replayed.

    trace = s.trace
    print(trace)                          # i, j, k = s.loops("c") …
    Trace.from_json(trace.to_json()).apply(func)

A handle is a number in a trace (the order in which the schedule handed it out), and so is a sampled value. The sampled choices are the
vector `decisions`, apart from the calls. A search changes the vector, or some decisions by name, and `apply` replays the schedule with
them. If that is illegal, the error names the entry: `entry 4 of the trace, s.vectorize(j_1): cannot vectorize …`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..loop.stmt import Func
from ..support.errors import Error, ModelFileError, ScheduleError, counted
from ..support.record import dataclass

VERSION = 2  # format of the JSON text; change it if older readers would misread new traces
READABLE = (1, 2)  # version 1 has no names of decisions: they get their default names

F = TypeVar("F", bound=Callable[..., Any])
Position = int | tuple[int, ...]  # a decision as a number: the position of a choice in its list, or the factors of a tile


def traced(method: F) -> F:
    """Decorator: marks a method of `Schedule` as a primitive that traces record and may replay."""
    method.traced = True  # type: ignore[attr-defined]
    return method


class BrokenTraceError(ModelFileError, ScheduleError):
    """A trace that no schedule has made: it calls something that is no primitive, or uses a handle that no entry returned."""


@dataclass(frozen=True, slots=True)
class _Id:
    number: int
    name: str  # the name it is printed under


class HandleId(_Id):
    """The number of a handle in a trace, with the name it is printed under."""

    __slots__ = ()


class ValueId(_Id):
    """The number of a sampled value in a trace, with the name it is printed under."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of one call of a method of `Schedule`: its arguments, and the handles or sampled values that it returned."""

    op: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[HandleId | ValueId, ...] = ()

    def __str__(self) -> str:
        arguments = [*(_shown(a) for a in self.args), *(f"{k}={_shown(v)}" for k, v in self.kwargs.items())]
        call = f"s.{self.op}({', '.join(arguments)})"
        names = ", ".join([*(["_"] if self.op == "sample_tile" else []), *(r.name for r in self.results)])
        unpacked = "," if self.op in _TUPLES and len(self.results) == 1 else ""
        return f"{names}{unpacked} = {call}" if self.results else call


# Methods that return a tuple: a single result is printed as `x, = …`.
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
    """The calls that transformed a program, in order, and the sampled choices as a vector."""

    entries: tuple[Entry, ...] = ()
    decisions: tuple[Position, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self.entries))

    def apply(self, source: Any, decisions: Mapping[str, Any] | Sequence[Position] | None = None, seed: int = 0) -> Func:
        """Replay the trace on another program (a `Func`, or an object with `func`) and return the result; see `schedule`."""
        program: Func = self.schedule(source, decisions, seed).program
        return program

    def schedule(self, source: Any, decisions: Mapping[str, Any] | Sequence[Position] | None = None, seed: int = 0) -> Any:
        """Replay the trace on another program and return the schedule; its `decisions` are the records of the choices.

        Sampled choices come from the sequence `decisions`, else from the trace; any beyond these are drawn from the seed's stream. A choice
        that does not fit is repaired (`domains.py`). Decisions by name replace some choices of the trace; they are not repaired, and raise
        if they do not fit. If the decisions make a call illegal, the `ScheduleError` names the entry.
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
        """Return the trace without its sampled choices, so that a replay draws them anew."""
        return Trace(self.entries)

    def replay(self, s: Any) -> None:
        """Make all calls of the trace on the schedule `s`; an error names the entry that failed."""
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
        """Return the trace as JSON text."""
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
        """Parse a trace from JSON text; raise `ModelFileError` if it is none."""
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
    """Replay one call with the results of earlier ones in `known`, and add its own results.

    Raises a BrokenTraceError if the call is no primitive or uses unknown results, a ScheduleError if it gives other results.
    """
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
    returned = method(*args, **kwargs)
    results = [x for x in (returned if isinstance(returned, tuple) else (returned,)) if x is not None]
    if e.results and len(results) != len(e.results):
        raise ScheduleError(f"it gives {counted(len(results), 'result')} here, and {len(e.results)} in the trace")
    known.update(zip(e.results, results, strict=False))


def _coded(value: Any) -> Any:
    if isinstance(value, (HandleId, ValueId)):
        return {"handle" if isinstance(value, HandleId) else "value": value.number, "name": value.name}
    return value


def _result(value: Any) -> HandleId | ValueId:
    decoded = _decoded(value)
    if not isinstance(decoded, (HandleId, ValueId)):
        raise ValueError(f"{value!r} is no result of a call")
    return decoded


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
