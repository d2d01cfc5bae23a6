"""What a call and a launch cost, and what a stolen core costs: the floors of the runtime.

Each contestant runs in a child process of its own, in alternating rounds; the table shows the best and the median of the rounds.

    python benchmarks/launch.py [--rounds 5]

Contestants: a call of a compiled kernel with three arrays of 16 elements (one fresh, one given output); a parallel loop of two
chunks on 2 threads, whose chunks take about 2 µs, against the same on 1 thread; a loop below its serial threshold; what each further
kernel of a graph program costs its host program, for kernels of 16 elements; and loops of 50, 200 and 2000 µs on 1 and 2 threads while a
busy loop takes one core.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent

# launches: `count` launches of `extent` chunks of one; a chunk is `work` steps of a chain of additions and multiplications.
PROGRAM = """
define internal i32 @body(ptr %ctx, ptr %env, i64 %b, i64 %e) {
entry:
  %work = load i64, ptr %env
  %size = sub i64 %e, %b
  %steps = mul i64 %work, %size
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %step ]
  %x = phi i64 [ %b, %entry ], [ %x2, %step ]
  %more = icmp slt i64 %i, %steps
  br i1 %more, label %step, label %out
step:
  %x1 = mul i64 %x, 6364136223846793005
  %x2 = add i64 %x1, 1442695040888963407
  %i1 = add i64 %i, 1
  br label %next
out:
  %slot = getelementptr i64, ptr %env, i64 8
  %odd = and i64 %x, 1
  %at = getelementptr i64, ptr %slot, i64 %odd
  store volatile i64 %x, ptr %at
  ret i32 0
}

define i32 @launches(ptr %ctx, ptr %buffers, ptr %dims) {
entry:
  %env = load ptr, ptr %buffers
  %count = load i64, ptr %dims
  %extent.at = getelementptr i64, ptr %dims, i64 1
  %extent = load i64, ptr %extent.at
  %for.at = getelementptr i8, ptr %ctx, i64 24
  %for = load ptr, ptr %for.at
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %step ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %small = icmp sle i64 %extent, 1
  br i1 %small, label %alone, label %launch
alone:
  %r = call i32 @body(ptr %ctx, ptr %env, i64 0, i64 %extent)
  br label %step
launch:
  %q = call i32 %for(ptr %ctx, ptr @body, ptr %env, i64 %extent, i64 1)
  br label %step
step:
  %i1 = add i64 %i, 1
  br label %next
out:
  ret i32 0
}
"""


class Launches:
    """Runs `count` launches of `extent` chunks in native code, and measures one launch in microseconds."""

    def __init__(self, threads: int) -> None:
        from pliant.codegen.emit import emit_object
        from pliant.codegen.link_elf import link
        from pliant.runtime.blob import load
        from pliant.runtime.ctx import Ctx, Entry
        from pliant.runtime.threads import launcher_for
        from pliant.target import target

        self._code = load(link(emit_object(PROGRAM, target("native")), ["launches"]))
        self._entry = Entry(self._code.address("launches"))
        launcher = launcher_for(threads)
        self._flag = ctypes.c_int32(0)
        self._ctx = Ctx(cancel=ctypes.addressof(self._flag), parallel_for=launcher.parallel_for, pool=launcher.pool)
        self._env = (ctypes.c_int64 * 16)()
        self._buffers = (ctypes.c_void_p * 1)(ctypes.addressof(self._env))

    def one(self, count: int, extent: int, work: int) -> float:
        """Microseconds of one launch, mean over `count`."""
        self._env[0] = work
        dims = (ctypes.c_int64 * 2)(count, extent)
        begin = time.perf_counter()
        self._entry(ctypes.addressof(self._ctx), ctypes.addressof(self._buffers), ctypes.addressof(dims))
        return (time.perf_counter() - begin) / count * 1e6

    def steps_in(self, microseconds: float) -> int:
        """How many steps take this long on one core."""
        return max(1, int(microseconds / min(self.one(20, 1, 20_000) for _ in range(5)) * 20_000))


def measure_call(given: bool) -> float:
    """Microseconds of one call with three arrays of 16 elements."""
    sys.path.insert(0, str(ROOT / "tests" / "runtime"))
    import numpy as np
    from runtime_programs import add_package

    from pliant.runtime.executable import Executable

    f = Executable(add_package())
    a, b, y = (np.ones(16, np.float32) for _ in range(3))
    call: Callable[[], object] = (lambda: f(a, b, out=y)) if given else (lambda: f(a, b))
    return statistics.median(timed(call, 1000) for _ in range(20))


def measure_launch(threads: int, chunks: int) -> float:
    """Microseconds that a launch of chunks of 2 µs takes beyond its share of the work; median over launches in groups of 20."""
    launches = Launches(threads)
    work = launches.steps_in(2.0)
    launches.one(2000, chunks, work)
    chunk = min(launches.one(100, 1, work) for _ in range(20))
    share = chunk * -(-chunks // threads)
    return statistics.median(launches.one(20, chunks, work) for _ in range(500)) - share


def measure_kernel(threads: int) -> float:
    """Microseconds that a kernel below the serial threshold adds to a graph program: the difference between chains of 200 and of 10."""
    import numpy as np

    import pliant
    from pliant import ops
    from pliant.dtype import f32
    from pliant.graph.builder import Builder
    from pliant.graph.node import Tensor
    from pliant.program import Program
    from pliant.sym.expr import Dim

    def chain(length: int) -> float:
        builder = Builder("chain")
        value = builder.param("x", Tensor(f32, (Dim("n", 1, 1 << 20),)))
        with builder:
            for k in range(length):
                value = ops.add(value, float(k))
        f = pliant.compile(Program.of(builder.finish([value])), threads=threads)
        x, y = np.ones(16, np.float32), np.ones(16, np.float32)
        launches = len(f.profile(x).launches)
        assert launches == length, f"{launches} launches of {length} operators: these are not what is measured"
        return min(timed(lambda: f(x, out=y), 200) for _ in range(50))

    os.environ["PLIANT_DISABLE"] = "fuse,simplify"
    return (chain(200) - chain(10)) / 190


def timed(call: Callable[[], object], count: int) -> float:
    """Microseconds of one call, mean over `count`."""
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count * 1e6


def measure_stolen(threads: int, microseconds: int) -> float:
    """Microseconds of a loop of 16 chunks that takes this long on 1 thread, while a busy loop takes one core."""
    launches = Launches(threads)
    work = launches.steps_in(microseconds / 16)
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        return launches.one(max(5, 600_000 // microseconds), 16, work)
    finally:
        hog.kill()
        hog.wait()


CONTESTANTS: dict[str, Callable[[], float]] = {
    "call, three arrays of 16, fresh output": lambda: measure_call(given=False),
    "call, three arrays of 16, given output": lambda: measure_call(given=True),
    "launch of 2 chunks, 2 threads": lambda: measure_launch(2, 2),
    "launch of 2 chunks, 1 thread": lambda: measure_launch(1, 2),
    "below the serial threshold, 2 threads": lambda: measure_launch(2, 1),
    "each kernel of a program, 16 elements, 2 threads": lambda: measure_kernel(2),
    **{
        f"one core stolen, {us} µs loop, {threads} thread{'s' * (threads > 1)}": (lambda t=threads, u=us: measure_stolen(t, u))
        for us in (50, 200, 2000)
        for threads in (1, 2)
    },
}


def in_child(name: str) -> float:
    """Measure a contestant in a process of its own."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, __file__, "--contestant", name]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        print(json.dumps(CONTESTANTS[options.contestant]()))
        return
    times: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for _ in range(options.rounds):
        for name, rounds in times.items():
            rounds.append(in_child(name))
    print(f"{'µs':50} {'best':>9} {'median':>9}")
    for name, rounds in times.items():
        print(f"{name:50} {min(rounds):9.2f} {statistics.median(rounds):9.2f}")
    for us in (50, 200, 2000):
        one, two = (times[f"one core stolen, {us} µs loop, {t}"] for t in ("1 thread", "2 threads"))
        ratio = statistics.median(one) / statistics.median(two)
        print(f"{f'speed on 2 threads / on 1 thread, {us} µs loop':50} {min(one) / min(two):9.2f} {ratio:9.2f}")


if __name__ == "__main__":
    main()
