"""Traces: what was done to a program, as data. They print as Python, save as JSON, and can be applied to a program again.

    trace = s.trace
    print(trace)                          # i, j, k = s.loops("c") …
    Trace.from_json(trace.to_json()).apply(func)

A handle is a number here: the order in which the schedule handed it out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
class Entry:
    """One call of a method of `Schedule`, and the handles that it gave."""

    op: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[HandleId, ...] = ()

    def __str__(self) -> str:
        shown = [*(_shown(a) for a in self.args), *(f"{k}={_shown(v)}" for k, v in self.kwargs.items())]
        call = f"s.{self.op}({', '.join(shown)})"
        names = ", ".join(r.name for r in self.results)
        unpacked = "," if self.op == "loops" and len(self.results) == 1 else ""
        return f"{names}{unpacked} = {call}" if self.results else call


def _shown(value: Any) -> str:
    if isinstance(value, HandleId):
        return value.name
    return f'"{value}"' if isinstance(value, str) else repr(value)


@dataclass(frozen=True, slots=True)
class Trace:
    """The calls that made a program out of another one, in order."""

    entries: tuple[Entry, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self.entries))

    def apply(self, source: Any) -> Func:
        """Do the same to another program: a `Func`, or what carries one as `func`."""
        from .schedule import Schedule

        s = Schedule(source)
        self.replay(s)
        return s.program

    def replay(self, s: Any) -> None:
        """Do the same in a schedule."""
        handles: dict[int, Any] = {}

        def value(x: Any) -> Any:
            return handles[x.number] if isinstance(x, HandleId) else x

        for e in self.entries:
            made = getattr(s, e.op)(*map(value, e.args), **{k: value(v) for k, v in e.kwargs.items()})
            listed = made if isinstance(made, tuple) else () if made is None else (made,)
            handles.update((r.number, h) for r, h in zip(e.results, listed, strict=True))

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
        return json.dumps({"version": VERSION, "entries": entries})

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
                )
            )
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise ModelFileError("this is no trace of a schedule", facts=[str(error)]) from error


def _coded(value: Any) -> Any:
    return {"handle": value.number, "name": value.name} if isinstance(value, HandleId) else value


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_decoded, value))
    return HandleId(int(value["handle"]), str(value["name"])) if isinstance(value, dict) else value
