"""How nets scale beyond the cores of this machine: a simulation from measured chunks, and real runs with more threads than cores.

    python benchmarks/threads.py [yolo det rec nsfw ...]            # simulated speed-up on 2 to 64 threads
    python benchmarks/threads.py --crowd [yolo ...]                 # time with 1, 2, 4, 8, 16 threads on the cores that there are
    taskset -c 0 python benchmarks/threads.py --crowd nsfw          # the same on one core

The simulation runs a net once on one thread with a `parallel_for` that times every chunk, and plays its launches on any number of threads.
Its assumptions:

- A chunk takes the same time on every core, however many run. So the figures are upper bounds where memory bandwidth or heat limits.
- Beyond its work a launch costs 0.2, 1, 2, 3, 4, 6 µs for 2, 4, 8, 16, 32, 64 threads (the first figure is measured by launch.py, the
  others are assumed), and taking a ticket 0.05 µs.
- What runs outside of parallel loops does not get faster.

Two policies are compared: tickets of 20 µs whatever the number of threads, and those of the thread pool (`runtime/native/thread_pool.ll`).
"""

from __future__ import annotations

import argparse
import ctypes
import heapq
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import pliant
from pliant.runtime import threads
from pliant.runtime.ctx import Body

THREADS = (2, 4, 8, 16, 32, 64)
LAUNCH_US = {2: 0.2, 4: 1.0, 8: 2.0, 16: 3.0, 32: 4.0, 64: 6.0}
TICKET_US = 0.05
RUNS = 15
_FOR = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Run(NamedTuple):
    """One run of a program: microseconds outside of parallel loops, and of each chunk of each launch."""

    outside: float
    launches: list[list[float]]

    @property
    def total(self) -> float:
        return self.outside + sum(map(sum, self.launches))


def batch_of_pool(chunks: int, count: int) -> int:
    """The chunks per ticket that `parallel_for` of thread_pool.ll takes."""
    shares = count * (4 if count > 16 else 16)
    return max(1, min(chunks // shares, max(4, count // 4)))


def batch_of_20_us(chunks: int, count: int) -> int:
    """The chunks per ticket of a policy that does not know the number of threads."""
    return 4


def simulate(run: Run, count: int, batch_of: Callable[[int, int], int]) -> float:
    """Return the microseconds of a run on `count` threads."""
    time_us = run.outside
    for chunks in run.launches:
        size = batch_of(len(chunks), count)
        tickets = [sum(chunks[at : at + size]) + TICKET_US for at in range(0, len(chunks), size)]
        if len(tickets) == 1:
            time_us += tickets[0]
            continue
        free = [0.0] * count
        for ticket in tickets:  # the thread that is free first takes the next
            heapq.heapreplace(free, free[0] + ticket)
        time_us += max(free) + LAUNCH_US[count]
    return time_us


class Recorder:
    """A `parallel_for` that runs chunks one after the other and keeps their times."""

    def __init__(self) -> None:
        self.launches: list[list[float]] = []
        self.inside = 0
        self._function = _FOR(self._run)
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def _run(self, ctx: int, body: int, env: int, extent: int, grain: int) -> int:
        entered = time.perf_counter_ns()
        call = Body(body)
        call(ctx, env, 0, 0)  # an empty range: what the call itself costs here
        before = time.perf_counter_ns()
        call(ctx, env, 0, 0)
        overhead = time.perf_counter_ns() - before
        times = []
        for begin in range(0, extent, grain):
            before = time.perf_counter_ns()
            code = call(ctx, env, begin, min(begin + grain, extent))
            times.append(max(time.perf_counter_ns() - before - overhead, 0) / 1000)
            if code:
                return int(code)
        self.launches.append(times)
        self.inside += time.perf_counter_ns() - entered
        return 0


def recorded(f: Any, feeds: dict[str, Any]) -> Run:
    """Run a program several times on one thread with all chunks timed; returns the shortest time of each chunk."""
    recorder = Recorder()
    threads._launchers[1] = threads.Launcher(recorder.address, 0)  # what `launcher_for(1)` answers from now on
    runs = []
    with pliant.threads(1):
        f.run(feeds)
        for _ in range(RUNS):
            recorder.launches, recorder.inside = [], 0
            begin = time.perf_counter_ns()
            f.run(feeds)
            whole = time.perf_counter_ns() - begin
            runs.append(Run((whole - recorder.inside) / 1000, recorder.launches))
    shortest = [[min(times) for times in zip(*launch, strict=True)] for launch in zip(*(run.launches for run in runs), strict=True)]
    return Run(min(run.outside for run in runs), shortest)


def compiled(name: str) -> tuple[Any, dict[str, Any]]:
    """A program of `onnx_models.py` and its first feeds."""
    from onnx_models import IMAGES, file_of

    f = pliant.compile(str(file_of(name)))
    shape = IMAGES[name][2][0]
    return f, {f.inputs[0].name: np.random.default_rng(0).random(shape, np.float32)}


def scaling(names: Sequence[str]) -> None:
    """Print the simulated speed-up of each net."""
    print(f"{'net':6} {'1 thread ms':>11} {'outside':>8} {'launches':>8}  policy   " + "".join(f"{c:>7}" for c in THREADS))
    for name in names:
        run = recorded(*compiled(name))
        for label, policy in (("20 µs", batch_of_20_us), ("pool", batch_of_pool)):
            factors = "".join(f"{run.total / simulate(run, c, policy):7.2f}" for c in THREADS)
            print(f"{name:6} {run.total / 1000:11.2f} {run.outside / run.total:8.1%} {len(run.launches):8}  {label:8}{factors}")


def crowd(names: Sequence[str]) -> None:
    """Print the time of each net with 1 to 16 threads on the cores that there are."""
    counts = (1, 2, 4, 8, 16)
    print(f"{'net':6} best / median ms of " + ", ".join(f"{c} threads" for c in counts))
    for name in names:
        f, feeds = compiled(name)
        cells = []
        for count in counts:
            with pliant.threads(count):
                f.run(feeds)
                times = []
                for _ in range(30):
                    begin = time.perf_counter()
                    f.run(feeds)
                    times.append((time.perf_counter() - begin) * 1e3)
            cells.append(f"{min(times):7.2f} / {statistics.median(times):7.2f}")
        print(f"{name:6} " + "  ".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description="nets on more threads than this machine has cores")
    parser.add_argument("names", nargs="*", default=["yolo", "det", "rec", "nsfw"])
    parser.add_argument("--crowd", action="store_true", help="real runs with more threads than cores")
    options = parser.parse_args()
    (crowd if options.crowd else scaling)(options.names)


if __name__ == "__main__":
    main()
