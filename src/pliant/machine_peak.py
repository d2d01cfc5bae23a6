"""Measures the roofline of this machine with our own loop programs: peak FMA rate and memory read bandwidth.

    fma_rate(1)                # 9.8e10: floating-point operations per second, on one thread
    read_bandwidth(2)          # 2.8e10: bytes per second, on two threads

Both are upper limits for other programs, so the best repetition counts: disturbances only make a run slower. A run is short, so that some
runs are undisturbed even on a busy machine. All runs together take about `seconds`.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .api import Kernel, compile, kernel
from .loop.script import alloc, parallel, unroll, vector
from .sym.script import fma
from .sym.spec import Out, Tensor, dim, f32, i64
from .target import Target, target

if TYPE_CHECKING:
    import numpy as np

chunks = dim("chunks")
rows = dim("rows")

_READ_ROWS = 8  # accumulators of a reading chunk: enough to hide the latency of an addition
_PARTS = 8  # parts of the buffer; each run reads another part, so that caches do not hold it from the previous run
_CHUNK_BYTES = 1 << 20  # unit of parallel work: small enough to balance threads, large enough to hide its overhead
_RUN = 1e-3  # seconds of a run: long enough for the clock, short enough for one time slice of a busy system


@functools.cache
def multiply_add(machine: Target) -> Kernel:
    """Returns a kernel of independent FMAs on registers: enough accumulators to hide the FMA latency, without spills."""
    lanes = machine.vector_bits // 32
    accumulators = 24 if machine.n_vector_registers >= 32 else 12
    fused = machine.has_fma  # without the instruction, fma would measure its emulation

    @kernel(scheduled=True)
    def multiply_add(x: Tensor[f32, chunks, 2, lanes], y: Out[f32, chunks, accumulators, lanes], steps: i64) -> None:
        for c in parallel(chunks, grain=1):
            acc = alloc((accumulators, lanes), f32, scope="register")
            for i in unroll(accumulators):
                for j in vector(lanes):
                    acc[i, j] = 0.0
            for _ in range(steps):
                for i in unroll(accumulators):
                    for j in vector(lanes):
                        acc[i, j] = fma(x[c, 0, j], x[c, 1, j], acc[i, j]) if fused else x[c, 0, j] * x[c, 1, j] + acc[i, j]
            for i in unroll(accumulators):
                for j in vector(lanes):
                    y[c, i, j] = acc[i, j]

    return multiply_add


@functools.cache
def read_all(machine: Target) -> Kernel:
    """Returns a kernel that reads every element once and only adds it to an accumulator."""
    lanes = machine.vector_bits // 32

    @kernel(scheduled=True)
    def read_all(x: Tensor[f32, chunks, rows, _READ_ROWS, lanes], y: Out[f32, chunks, _READ_ROWS, lanes]) -> None:
        for c in parallel(chunks, grain=1):
            acc = alloc((_READ_ROWS, lanes), f32, scope="register")
            for i in unroll(_READ_ROWS):
                for j in vector(lanes):
                    acc[i, j] = 0.0
            for k in range(rows):
                for i in unroll(_READ_ROWS):
                    for j in vector(lanes):
                        acc[i, j] += x[c, k, i, j]
            for i in unroll(_READ_ROWS):
                for j in vector(lanes):
                    y[c, i, j] = acc[i, j]

    return read_all


def best_time(run: Callable[[], object], seconds: float) -> float:
    """Returns the time in seconds of the fastest of the runs that fit into `seconds`; makes at least three."""
    best, end, runs = float("inf"), time.perf_counter() + seconds, 0
    while runs < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        best, runs = min(best, time.perf_counter() - begin), runs + 1
    return best


def fma_rate(threads: int, seconds: float = 0.2) -> float:
    """Returns the peak f32 operations per second of `threads` threads; an FMA counts as two."""
    import numpy as np

    machine = target("native")
    program = multiply_add(machine)
    f = compile(program, threads=threads)
    accumulators, lanes = (int(str(n)) for n in program.func.buffers[1].shape[1:])
    count = 8 * threads  # several chunks per thread: if a thread loses its core, the others take over
    x, y = np.full((count, 2, lanes), 0.5, np.float32), np.empty((count, accumulators, lanes), np.float32)

    def timed(steps: int, seconds: float) -> float:
        return best_time(lambda: f(x, steps, out=y), seconds)

    steps = 100
    while (once := timed(steps, 0.0)) < _RUN:
        steps = int(steps * min(10.0, 1.5 * _RUN / once)) + 1
    return 2.0 * y.size * steps / timed(steps, seconds)


def read_bandwidth(threads: int, seconds: float = 0.2) -> float:
    """Returns the bytes per second that `threads` threads read from memory: the median over parts of a large buffer of their best runs.

    The median ignores parts that a cache may keep, however large the buffer is.
    """
    import numpy as np

    parts = _large_buffer()
    f = compile(read_all(target("native")), threads=threads)
    y = np.empty((parts.shape[1], *parts.shape[3:]), np.float32)
    best, end, passes = [float("inf")] * len(parts), time.perf_counter() + seconds, 0
    while passes < 3 or time.perf_counter() < end:
        for number, part in enumerate(parts):
            begin = time.perf_counter()
            f(part, out=y)
            best[number] = min(best[number], time.perf_counter() - begin)
        passes += 1
    return float(parts[0].nbytes) / statistics.median(best)


def _large_buffer() -> np.ndarray[Any, Any]:
    """Returns eight parts, each about as large as the last-level cache.

    Every page is written first: the system maps pages that were never written to one shared page of zeros.
    """
    import numpy as np

    machine = target("native")
    lanes = machine.vector_bits // 32
    count = -(-min(max(machine.caches.l3, 32 << 20), 256 << 20) // _CHUNK_BYTES)
    return np.ones((_PARTS, count, _CHUNK_BYTES // (4 * _READ_ROWS * lanes), _READ_ROWS, lanes), np.float32)
