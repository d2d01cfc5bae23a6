"""What each thread did in a run: the chunks of parallel loops, watched from Python one by one.

spans = record_threads(f, args).spans        # in one run, which takes longer than others

The runtime calls `Ctx.parallel_for` for each parallel loop. Here this is a function that passes the loop on with another body, which reads
the clock before and after each chunk: some microseconds for each of them.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.ctx import Body, ParallelFor
from ..runtime.ctx import Profile as Hook
from ..runtime.executable import Executable
from ..support.record import dataclass

Chunk = tuple[int, int, int, int]  # the launch, the identity of the thread, begin and end on the clock


@dataclass(frozen=True, slots=True)
class Span:
    """The work of one thread on one launch: from the begin of its first chunk to the end of its last, in nanoseconds of the run.

    `busy` is the time in its chunks; `chunks` is 0 for a launch without parallel loops, which is all on the calling thread, 0.
    """

    thread: int
    launch: int
    begin: int
    duration: int
    busy: int
    chunks: int


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """The work of all threads in one run, in the order of launches; `kernels` has the name of each launch's kernel."""

    wall: int
    kernels: tuple[str, ...]
    spans: tuple[Span, ...]


def record_threads(f: Executable, args: Sequence[Any]) -> ThreadTimes:
    """Runs the program once on arguments in the order of its signature, and returns what each thread did."""
    clock, launches, chunks = time.perf_counter_ns, list[tuple[int, int, int]](), list[Chunk]()

    def hook(ctx: int, kernel: int, phase: int) -> None:
        launches.append((clock(), kernel, phase))

    native = Hook(hook)
    watch = _LoopWatch(chunks, lambda: len(launches) // 2)  # in a launch, its begin is there and its end is not
    begin = clock()
    f._caller.call_profiled(args, ctypes.cast(native, ctypes.c_void_p).value or 0, watch_loops=watch)
    wall = clock() - begin
    pairs = list(zip(launches[::2], launches[1::2], strict=True))
    spans = spans_of([(start - begin, end - begin) for (start, _, _), (end, _, _) in pairs], chunks, begin, threading.get_ident())
    return ThreadTimes(wall, tuple(f.interface.kernels[kernel] for (_, kernel, _), _ in pairs), tuple(spans))


class _LoopWatch:
    """Makes a `parallel_for` that records the chunks of another one; nested loops run inside of a chunk, and are part of it."""

    def __init__(self, chunks: list[Chunk], launch: Callable[[], int]) -> None:
        self._chunks, self._launch = chunks, launch
        self._inside: set[int] = set()
        self._watched: Any = None  # what native code calls has to stay alive

    def __call__(self, address: int) -> int:
        """Returns the address of the function that watches the `parallel_for` at this address."""
        parallel_for = ParallelFor(address)

        def watched(ctx: int, body: int, env: int, extent: int, grain: int) -> int:
            if threading.get_ident() in self._inside:
                return int(parallel_for(ctx, body, env, extent, grain))
            chunk = self._chunk(Body(body), self._launch())
            return int(parallel_for(ctx, ctypes.cast(chunk, ctypes.c_void_p).value, env, extent, grain))

        self._watched = ParallelFor(watched)
        return ctypes.cast(self._watched, ctypes.c_void_p).value or 0

    def _chunk(self, body: Any, launch: int) -> Any:
        """Returns the body of a loop with a record of each chunk around it."""

        def chunk(ctx: int, env: int, begin: int, end: int) -> int:
            thread = threading.get_ident()
            self._inside.add(thread)
            start = time.perf_counter_ns()
            code = body(ctx, env, begin, end)
            self._chunks.append((launch, thread, start, time.perf_counter_ns()))
            self._inside.discard(thread)
            return int(code)

        return Body(chunk)


def spans_of(launches: Sequence[tuple[int, int]], chunks: Sequence[Chunk], origin: int, caller: int) -> list[Span]:
    """Returns the spans of a run from the begin and end of its launches and from its chunks, whose clock began at `origin`.

    The calling thread is 0; others have numbers in the order of their first chunk.
    """
    numbers = {thread: k for k, thread in enumerate(dict.fromkeys([caller, *(thread for _, thread, _, _ in chunks)]))}
    by_launch: dict[int, dict[int, list[tuple[int, int]]]] = {}
    for launch, thread, start, end in chunks:
        by_launch.setdefault(launch, {}).setdefault(numbers[thread], []).append((start - origin, end - origin))
    spans = []
    for launch, (start, end) in enumerate(launches):
        for thread, times in sorted(by_launch.get(launch, {}).items()):
            begin = min(first for first, _ in times)
            duration = max(last for _, last in times) - begin
            spans.append(Span(thread, launch, begin, duration, sum(last - first for first, last in times), len(times)))
        if launch not in by_launch:
            spans.append(Span(0, launch, start, end - start, end - start, 0))
    return spans
