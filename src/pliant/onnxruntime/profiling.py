"""Profiling of a session: the kernels of its runs are timed, and `end_profiling` writes one trace, for Perfetto or Chrome.

The compiler's record of what a kernel computes is made when the trace is written, not while the application runs.
"""

from __future__ import annotations

import time
from typing import Any

from ..report.profile import Recording, describe, record_run, save_trace
from ..runtime.executable import Executable

MOST_LAUNCHES = 1_000_000  # a limit on memory, as onnxruntime has one; later runs are not recorded


class Profiler:
    """The recorded runs of a session; runs after about a million launches of kernels are no longer recorded."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._runs: list[tuple[Executable, Recording]] = []
        self._launches = 0
        self.start = time.perf_counter_ns()

    def run(self, executable: Executable, arguments: list[Any]) -> list[Any]:
        """Runs a program with timers around its kernels, and keeps the record unless there are too many; returns its results."""
        results, recording = record_run(executable, arguments)
        if self._launches < MOST_LAUNCHES:
            self._runs.append((executable, recording))
            self._launches += len(recording.events)
        return results

    def save(self) -> str:
        """Writes the trace of all runs to a file of the current folder, named by prefix and time; returns its name."""
        now = time.time()
        path = f"{self._prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S', time.localtime(now))}_{int(now % 1 * 1000):03d}.json"
        save_trace(path, [(r.start - self.start, describe(f, f._provenance, r)) for f, r in self._runs])
        return path
