"""Traces: what was done to a program, as data. They print as Python, save as JSON, and can be applied to a program again.

    trace = s.trace
    print(trace)                          # i, j, k = s.loops("c") …
    Trace.from_json(trace.to_json()).apply(func)

A handle is a number here: the order in which the schedule handed it out; so is a sampled value. What sampling chose is the vector
`decisions`, apart from the calls: a search changes the vector, and `apply` makes the schedule that it means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..loop.stmt import Func
from ..support.errors import ModelFileError
from ..support.record import dataclass

VERSION = 1


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


_TUPLES = ("loops", "partition", "sample_perfect_tile")


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
    decisions: tuple[int | tuple[int, ...], ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self.entries))

    def apply(self, source: Any, decisions: Sequence[int | tuple[int, ...]] | None = None, seed: int = 0) -> Func:
        """Do the same to another program: a `Func`, or what carries one as `func`.

        Sampled choices are `decisions`, else those of the trace; beyond them they are drawn from the stream of the seed.
        """
        from .schedule import Schedule

        s = Schedule(source, decisions=self.decisions if decisions is None else decisions, seed=seed)
        self.replay(s)
        return s.program

    def undecided(self) -> Trace:
        """The calls alone: each choice is open again."""
        return Trace(self.entries)

    def replay(self, s: Any) -> None:
        """Do the same in a schedule."""
        handles: dict[int, Any] = {}
        values: dict[int, Any] = {}

        def value(x: Any) -> Any:
            if not isinstance(x, (HandleId, ValueId)):
                return x
            known = handles if isinstance(x, HandleId) else values
            if x.number not in known:
                raise ModelFileError(f"this trace uses `{x.name}` before it is made")
            return known[x.number]

        for e in self.entries:
            if e.op.startswith("_") or not callable(getattr(type(s), e.op, None)):
                raise ModelFileError(f"this trace calls `{e.op}`, which is no primitive")
            made = getattr(s, e.op)(*map(value, e.args), **{k: value(v) for k, v in e.kwargs.items()})
            listed = made if isinstance(made, tuple) else (made,)
            for r, one in zip(e.results, [x for x in listed if x is not None] if e.results else (), strict=True):
                (handles if isinstance(r, HandleId) else values)[r.number] = one

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
            if data["version"] != VERSION:
                raise ModelFileError(f"this trace has version {data['version']}; version {VERSION} is expected")
            return Trace(
                tuple(
                    Entry(
                        str(e["op"]),
                        tuple(_decoded(a) for a in e["args"]),
                        {k: _decoded(v) for k, v in e["kwargs"].items()},
                        tuple(_decoded(r) for r in e["results"]),
                    )
                    for e in data["entries"]
                ),
                tuple(_decision(d) for d in data.get("decisions", ())),
            )
        except (json.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError("this is no trace of a schedule", facts=[str(error)]) from error


def _coded(value: Any) -> Any:
    if isinstance(value, (HandleId, ValueId)):
        return {"handle" if isinstance(value, HandleId) else "value": value.number, "name": value.name}
    return value


def _decision(value: Any) -> int | tuple[int, ...]:
    return tuple(int(v) for v in value) if isinstance(value, list) else int(value)


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_decoded, value))
    if not isinstance(value, dict):
        return value
    return HandleId(int(value["handle"]), str(value["name"])) if "handle" in value else ValueId(int(value["value"]), str(value["name"]))
