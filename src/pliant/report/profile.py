"""Profiles: the time of each kernel launch, and its share of the machine's roofline (peak arithmetic and memory bandwidth).

    p = f.profile(x)
    print(p)                    # a table by kernel
    p.save("trace.json")        # for https://ui.perfetto.dev or chrome://tracing
    p.launches[0].layers        # ("encoder.layer.0.attention.self.query",)

The ABI's profile hook reads the clock in Python, which adds about a microsecond to each launch. The program runs several times: the fastest
run is shown launch by launch, and each launch has the median and the spread of all runs. A run before these, which pays for page faults and
cold caches, is not counted; a run after them, if there are several threads, tells what each of these did (`threads.py`). The limits of the
machine (`pliant.machine_peak`) are measured at first use.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..provenance import Provenance
from ..runtime.ctx import Profile as Hook
from ..runtime.executable import Executable
from ..runtime.threads import resolve_threads
from ..support.errors import counted
from ..support.html_table import html_table
from ..support.output_file import write_text
from ..support.record import dataclass
from ..support.units import per_second
from .launches import Step, steps
from .layers import prefixes
from .threads import ThreadTimes, record_threads

RUNS = 5  # several, because other work on the machine disturbs some of them


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: its begin and duration in nanoseconds, and its operations and bytes if they are known.

    `samples` has its duration in each run, the fastest run of the program included; empty if only one run is known.
    """

    kernel: str
    layers: tuple[str, ...]
    begin: int
    duration: int
    operations: int | None = None
    bytes: int | None = None
    samples: tuple[int, ...] = ()

    def of_limit(self, limits: Limits) -> float | None:
        """Returns the share of the roofline that the launch reached: of peak arithmetic or of memory bandwidth, whichever is larger.

        None if the operations, bytes or duration are unknown.
        """
        if self.operations is None or self.bytes is None or not self.duration:
            return None
        return _at_limit(self.operations, self.bytes, limits) / (self.duration * 1e-9)

    def above_limit(self, limits: Limits) -> int | None:
        """Returns the nanoseconds that the launch took longer than the roofline allows; 0 if it was faster, as from a cache.

        None if the operations or bytes are unknown.
        """
        if self.operations is None or self.bytes is None:
            return None
        return max(0, self.duration - round(_at_limit(self.operations, self.bytes, limits) * 1e9))


def _at_limit(operations: int, moved: int, limits: Limits) -> float:
    """Returns the seconds that these operations and bytes take at the limits of the machine, whichever binds."""
    return max(operations / limits.operations, moved / limits.bytes)


_COLUMNS = ("kernel", "calls", "ms", "share", "operations", "memory", "of limit")


@dataclass(frozen=True, slots=True)
class Limits:
    """The peak rates of the machine: floating-point operations and bytes read, per second."""

    operations: float
    bytes: float


@functools.cache
def limits(threads: int) -> Limits:
    """The limits of this machine for a number of threads, measured once."""
    from ..machine_peak import fma_rate, read_bandwidth

    return Limits(fma_rate(threads), read_bandwidth(threads))


@dataclass(frozen=True)
class Profile:
    """The times of one run, the fastest of several; `walls` has the wall times of all of them, in nanoseconds.

    `by_thread` tells what each thread did, in a run of its own; None on one thread, and for a program that updates state.
    """

    program: str
    dims: Mapping[str, int]
    threads: int
    runs: int
    wall: int  # nanoseconds from the call to its end
    launches: tuple[Launch, ...]
    walls: tuple[int, ...] = ()
    by_thread: ThreadTimes | None = None

    @property
    def in_kernels(self) -> int:
        """The nanoseconds spent in kernels."""
        return sum(x.duration for x in self.launches)

    def by_kernel(self) -> dict[str, list[Launch]]:
        """The launches of each kernel; kernels that take the most time come first."""
        launches_of: dict[str, list[Launch]] = {}
        for launch in self.launches:
            launches_of.setdefault(launch.kernel, []).append(launch)
        return dict(sorted(launches_of.items(), key=lambda item: -sum(x.duration for x in item[1])))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a trace for Perfetto or Chrome: kernels on one track, the user's layers on another; threads as a process of their own."""
        save_trace(path, [(0, self)])

    def __str__(self) -> str:
        return _table(self, limits(self.threads))

    def __repr__(self) -> str:
        return f"<profile of {self.program}: {counted(len(self.launches), 'launch', 'launches')}, {self.wall / 1e6:.3f} ms>"

    def _repr_html_(self) -> str:
        """Returns the profile as a table, which notebooks show."""
        machine = limits(self.threads)
        return html_table(_head(self), _COLUMNS, _rows(self, machine), _foot(machine))


@dataclass(frozen=True)
class Recording:
    """The raw times of one run: when it began on the clock, its wall time, and the kernel, begin and end of each launch; nanoseconds."""

    start: int
    wall: int
    events: list[tuple[int, int, int]]
    dims: Mapping[str, int]


def take_profile(f: Executable, provenance: Provenance, args: Sequence[Any], named: Mapping[str, Any], runs: int | None) -> Profile:
    """Profiles `runs` runs and returns the fastest; by default one if the program updates state, which each run changes, else RUNS.

    A program without state runs once more before these, and on several threads once after them.
    """
    values = f._caller.bind(args, named)
    has_state = any(i.consumed for i in f.inputs)
    count = max(1, runs if runs is not None else 1 if has_state else RUNS)
    if not has_state:
        record_run(f, values)
    taken = describe(f, provenance, *sorted((record_run(f, values)[1] for _ in range(count)), key=lambda r: r.wall))
    return taken if has_state or taken.threads == 1 else replace(taken, by_thread=record_threads(f, values))


def record_run(f: Executable, args: Sequence[Any]) -> tuple[list[Any], Recording]:
    """Runs the program once on arguments in the order of its signature; returns the results, and the times of its kernels."""
    clock, seen = time.perf_counter_ns, []

    def hook(ctx: int, kernel: int, phase: int) -> None:
        seen.append((clock(), kernel, phase))

    native = Hook(hook)
    dims = f.symbols_of(dict(zip(f._caller.names, args, strict=True)))
    begin = clock()
    results = f._caller.call_profiled(args, ctypes.cast(native, ctypes.c_void_p).value or 0)
    wall = clock() - begin
    events = [(kernel, start - begin, end - begin) for (start, kernel, _), (end, _, _) in zip(seen[::2], seen[1::2], strict=True)]
    return results, Recording(begin, wall, events, dims)


def describe(f: Executable, provenance: Provenance, recording: Recording, *others: Recording) -> Profile:
    """Returns the profile of a recorded run: its launches with the user's layers, operations and bytes where they are known.

    Other runs on the same arguments add samples of times.
    """
    known = _described(f, provenance, recording.events)
    dims = recording.dims
    variables = {v: dims[v.name] for v in _variables(provenance) if v.name in dims} if known is not None else {}
    samples, launches = _samples((recording, *others)), []
    for number, (kernel, begin, end) in enumerate(recording.events):
        step = known[number] if known is not None else None
        operations, moved = (step.cost(variables) if step is not None else None) or (None, None)
        layers = step.layers if step is not None else ()
        launches.append(Launch(f.interface.kernels[kernel], layers, begin, end - begin, operations, moved, samples[number]))
    walls = tuple(r.wall for r in (recording, *others))
    return Profile(f.interface.name, dims, resolve_threads(f._caller.threads)[0], len(walls), recording.wall, tuple(launches), walls)


def _samples(recordings: Sequence[Recording]) -> list[tuple[int, ...]]:
    """Returns the durations of each launch of the first recording in all those that launched the same kernels."""
    kernels = [kernel for kernel, _, _ in recordings[0].events]
    same = [r.events for r in recordings if [kernel for kernel, _, _ in r.events] == kernels]
    return [tuple(end - begin for _, begin, end in events) for events in zip(*same, strict=True)]


def _described(f: Executable, provenance: Provenance, events: Sequence[tuple[int, int, int]]) -> list[Step] | None:
    """Returns the compiler's record of the launches; None if the events do not match it (e.g. a program with branches or loops)."""
    names = [f.interface.kernels[kernel] for kernel, _, _ in events]
    launched = steps(provenance, names)
    return launched if [s.name for s in launched] == names else None


def _variables(provenance: Provenance) -> Sequence[Any]:
    """Returns the symbolic dims of a program, in the order of its interface."""
    host = provenance.lowered.host
    assert host is not None
    return host.layout.symbols


# How a profile is shown.


def save_trace(path: str | os.PathLike[str], profiles: Sequence[tuple[int, Profile]]) -> None:
    """Writes a trace of several runs, each with the nanosecond at which it began; raises OutputFileError if it cannot."""
    events = [event for begin, profile in profiles for event in _events(profile, begin)]
    write_text(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def _events(p: Profile, origin: int) -> list[dict[str, Any]]:
    """Returns the trace events of a profile, in Chrome's trace format."""

    def event(name: str, begin: int, duration: int, track: int, **facts: Any) -> dict[str, Any]:
        return {"name": name, "ph": "X", "ts": (origin + begin) / 1e3, "dur": duration / 1e3, "pid": 1, "tid": track, "args": facts}

    dims = ", ".join(f"{k} = {v}" for k, v in p.dims.items())
    names: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": f"{p.program} ({dims})"}}]
    names += [{"name": "thread_name", "ph": "M", "pid": 1, "tid": t, "args": {"name": n}} for t, n in ((1, "layers"), (2, "kernels"))]
    spans = [event(name, begin, duration, 1) for name, begin, duration in _layer_spans(p.launches)]
    kernels = [
        event(x.kernel, x.begin, x.duration, 2, layers=", ".join(x.layers), operations=x.operations, bytes=x.bytes) for x in p.launches
    ]  # fmt: skip
    return [*names, *spans, *kernels, *(_thread_events(p.by_thread, origin) if p.by_thread is not None else [])]


def _thread_events(times: ThreadTimes, origin: int) -> list[dict[str, Any]]:
    """Returns the trace events of what each thread did; they are a process of their own, because they come from another run."""
    names = [{"name": "process_name", "ph": "M", "pid": 2, "args": {"name": "threads, in a run that watches every chunk"}}]
    return names + [
        {
            "name": times.kernels[s.launch],
            "ph": "X",
            "ts": (origin + s.begin) / 1e3,
            "dur": s.duration / 1e3,
            "pid": 2,
            "tid": s.thread,
            "args": {"launch": s.launch, "chunks": s.chunks, "busy": s.busy / 1e3},
        }
        for s in times.spans
    ]


def _layer_spans(launches: Sequence[Launch]) -> list[tuple[str, int, int]]:
    """Returns nested spans (path, begin, duration) of the user's layers: a span lasts while consecutive launches share its path prefix."""
    spans: list[tuple[str, int, int]] = []
    open_: list[tuple[str, int]] = []  # the spans that have not ended, with their begin

    def close(depth: int, end: int) -> None:
        while len(open_) > depth:
            name, begin = open_.pop()
            spans.append((name, begin, end - begin))

    last = 0
    for x in launches:
        paths = prefixes(x.layers[0]) if x.layers else []
        same = next((k for k, (path, (name, _)) in enumerate(zip(paths, open_, strict=False)) if path != name), min(len(paths), len(open_)))
        close(same, last)
        open_ += [(path, x.begin) for path in paths[same:]]
        last = x.begin + x.duration
    close(0, last)
    return sorted(spans, key=lambda s: (s[1], len(prefixes(s[0]))))


def _table(p: Profile, machine: Limits) -> str:
    """The profile as a text table, one row per kernel."""
    rows = [_COLUMNS, *_rows(p, machine)]
    widths = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
    lines = ["  ".join(c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(r, widths, strict=True))) for r in rows]
    return "\n".join([_head(p), *(line.rstrip() for line in lines), _foot(machine)])


def _head(p: Profile) -> str:
    dims = ", ".join(f"{k} = {v}" for k, v in p.dims.items())
    head = f"{p.program}{f' ({dims})' if dims else ''}: {p.wall / 1e6:.3f} ms with {p.threads} thread{'s' * (p.threads != 1)}"
    if len(p.walls) > 1:
        head += f", the fastest of {len(p.walls)} runs (median {statistics.median(p.walls) / 1e6:.3f} ms)"
    return head


def _foot(machine: Limits) -> str:
    return f"limits: {per_second(machine.operations, 'FLOP')}, {per_second(machine.bytes, 'B')}"


def _rows(p: Profile, machine: Limits) -> list[tuple[str, ...]]:
    """Returns one row per kernel as texts, and one for the time between kernels."""
    rows: list[tuple[str, ...]] = []
    for name, launches in p.by_kernel().items():
        rows.append((name, str(len(launches)), *_row(launches, p.wall, machine)))
    between = p.wall - p.in_kernels
    return [*rows, ("between kernels", "", f"{between / 1e6:.3f}", f"{between / max(1, p.wall):.1%}", "", "", "")]


def _row(found: Sequence[Launch], wall: int, machine: Limits) -> tuple[str, str, str, str, str]:
    """Returns the cells of a kernel's row as texts: time, share, operations, bandwidth and share of the roofline."""
    time_ = sum(x.duration for x in found)
    seconds = max(1, time_) * 1e-9
    shown = f"{time_ / 1e6:.3f}", f"{time_ / max(1, wall):.1%}"
    if any(x.operations is None or x.bytes is None for x in found):
        return *shown, "", "", ""
    operations, moved = sum(x.operations or 0 for x in found), sum(x.bytes or 0 for x in found)
    limit = sum(_at_limit(x.operations or 0, x.bytes or 0, machine) for x in found)
    return *shown, per_second(operations / seconds, "FLOP"), per_second(moved / seconds, "B"), f"{limit / seconds:.0%}"
