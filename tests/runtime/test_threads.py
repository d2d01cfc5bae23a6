"""The thread pool: every chunk once, errors, cancelling, nesting, many callers, fork, the end of the interpreter."""

from __future__ import annotations

import ctypes
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from launching import Launch
from runtime_programs import compiled

from pliant.codegen.native_code import EXPORTS, compile_native
from pliant.runtime import threads as pool_module
from pliant.runtime.blob import load
from pliant.runtime.ctx import Body, Code
from pliant.runtime.native_library import native
from pliant.runtime.records import Pool, View, Worker

# Adds 1 to each element of its chunk.
INCREMENT = """
define i32 @body(ptr %ctx, ptr %env, i64 %b, i64 %e) {
entry:
  br label %next
next:
  %i = phi i64 [ %b, %entry ], [ %i1, %work ]
  %more = icmp slt i64 %i, %e
  br i1 %more, label %work, label %out
work:
  %at = getelementptr i64, ptr %env, i64 %i
  %v = load i64, ptr %at
  %v1 = add i64 %v, 1
  store i64 %v1, ptr %at
  %i1 = add i64 %i, 1
  br label %next
out:
  ret i32 0
}
"""


def increment() -> tuple[object, int]:
    loaded = load(compiled(INCREMENT, "body"))
    return loaded, loaded.address("body")


def test_fields_that_different_threads_write_are_on_different_cache_lines() -> None:
    line = 128  # processors fetch lines of 64 bytes in pairs
    assert ctypes.sizeof(Worker) == line and Pool.worker.offset % line == 0
    lines = [getattr(Pool, name).offset // line for name in ("wait", "busy", "tickets", "done", "job", "worker")]
    assert lines == sorted(set(lines))


@pytest.mark.parametrize(("machine", "windows"), [("x86_64", False), ("x86_64", True), ("aarch64", False)])
def test_native_code_compiles_for_every_machine(machine: str, windows: bool) -> None:
    assert set(EXPORTS) <= set(compile_native(machine, windows).exports)  # the linker refuses undefined symbols


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_chunk_once(threads: int) -> None:
    random.seed(threads)
    launch = Launch(threads)
    keep, body = increment()
    for _ in range(1500):
        extent = random.choice([0, 1, 2, 3, 7, 64, 1000])
        grain = random.choice([1, 2, 5, 64, 5000])
        data = np.zeros(extent + 1, np.int64)
        assert launch.native(body, data.ctypes.data, extent, grain) == 0
        assert (data[:extent] == 1).all() and data[extent] == 0
    assert keep is not None


@pytest.mark.parametrize("threads", [1, 2])
def test_the_grid_depends_on_extent_and_grain_only(threads: int) -> None:
    seen: list[tuple[int, int]] = []
    assert Launch(threads)(lambda b, e: seen.append((b, e)) or 0, 23, 5) == 0
    assert sorted(seen) == [(0, 5), (5, 10), (10, 15), (15, 20), (20, 23)]


@pytest.mark.parametrize("threads", [2, 3, 20])
def test_tickets_are_few_and_leave_work_for_every_thread(threads: int) -> None:
    """A ticket is several chunks only where each thread still finds four tickets, and never long: the launcher waits for the last one."""
    launch = Launch(threads)
    workers = View.from_address(launch.ctx.pool or 0)
    pool = Pool.from_address(workers.pool or 0)
    body = Body(lambda ctx, env, begin, end: 0)
    seen = set()
    for chunks in (2, 15, 64, 200, 1000, 20_000):
        assert launch.native(ctypes.cast(body, ctypes.c_void_p).value or 0, 0, chunks, 1) == 0
        assert pool.job.chunks == chunks and (pool.job.total - 1) * pool.job.batch < chunks <= pool.job.total * pool.job.batch
        assert pool.job.batch == 1 or pool.job.total >= 4 * threads
        assert 1 <= pool.job.batch <= max(4, threads // 4)
        seen.add(pool.job.batch)
    assert seen >= {1, max(4, threads // 4)}


@pytest.mark.parametrize("threads", [1, 3])
def test_a_huge_grid_near_the_end_of_the_numbers(threads: int) -> None:
    ends: list[tuple[int, int]] = []
    assert Launch(threads)(lambda b, e: ends.append((b, e)) or 0, 2**62 + 1, 2**61) == 0
    assert sorted(ends) == [(0, 2**61), (2**61, 2**62), (2**62, 2**62 + 1)]


@pytest.mark.parametrize("threads", [1, 3])
def test_more_chunks_than_tickets_are_still_chunks(threads: int) -> None:
    """2^33 chunks do not fit into the range of tickets; the first failure shows that each is still one element."""
    seen: list[tuple[int, int]] = []

    def body(begin: int, end: int) -> int:
        seen.append((begin, end))
        return 9 if len(seen) > 50 else 0

    assert Launch(threads)(body, 2**33, 1) == 9
    assert all(end == begin + 1 for begin, end in seen) and len(set(seen)) == len(seen)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_first_failure_stops_the_rest(threads: int) -> None:
    ran: list[int] = []

    def body(begin: int, end: int) -> int:
        ran.append(begin)
        return 7 if begin == 10 else 0

    for _ in range(50):
        ran.clear()
        assert Launch(threads)(body, 100_000, 1) == 7
        assert len(ran) < 100_000


@pytest.mark.parametrize("threads", [1, 2])
def test_cancel_is_looked_at_before_each_chunk(threads: int) -> None:
    launch = Launch(threads)
    ran: list[int] = []

    def body(begin: int, end: int) -> int:
        ran.append(begin)
        launch.cancel.value = 1
        return 0

    assert launch(body, 1000, 1) == Code.CANCELLED == launch.error()
    assert len(ran) <= threads
    assert Launch(threads)(lambda b, e: 0, 1000, 1) == 0, "the pool is free again"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_grain_below_one_is_a_broken_call(threads: int) -> None:
    launch = Launch(threads)
    assert launch(lambda b, e: 0, 10, 0) == Code.BAD_CALL == launch.error()


def test_nested_loops_run_inline() -> None:
    launch = Launch(3)
    seen: Counter[tuple[int, int]] = Counter()
    threads: dict[int, set[int]] = {}

    def outer(begin: int, end: int) -> int:
        me = threading.get_ident()

        def inner(b: int, e: int) -> int:
            seen[begin, b] += 1
            threads.setdefault(begin, set()).add(threading.get_ident())
            return 0

        code = launch(inner, 4, 1)
        assert threads[begin] == {me}
        return code

    for _ in range(20):
        seen.clear()
        threads.clear()
        assert launch(outer, 6, 1) == 0
        assert seen == Counter({(i, j): 1 for i in range(6) for j in range(4)})


def test_many_python_threads_at_once() -> None:
    keep, body = increment()
    problems: list[str] = []

    def caller(seed: int) -> None:
        chance = random.Random(seed)
        launch = Launch(chance.choice([1, 2, 4]))
        for _ in range(400):
            extent, grain = chance.randrange(1, 300), chance.randrange(1, 50)
            data = np.zeros(extent, np.int64)
            if launch.native(body, data.ctypes.data, extent, grain) or not (data == 1).all():
                problems.append(f"{extent} {grain} {data}")

    callers = [threading.Thread(target=caller, args=(i,)) for i in range(6)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert not problems and keep is not None


def test_sleeping_workers_wake_up() -> None:
    launch = Launch(2)
    keep, body = increment()
    for _ in range(30):
        time.sleep(0.003)  # longer than workers spin
        data = np.zeros(64, np.int64)
        assert launch.native(body, data.ctypes.data, 64, 1) == 0 and (data == 1).all()
    assert keep is not None


def test_a_worker_really_helps() -> None:
    """Two chunks that wait for each other can only end on two threads."""
    barrier = threading.Barrier(2, timeout=30)
    launch = Launch(2)
    for _ in range(20):
        pool_module._pool.worker[0].shed_until = 0  # waiting for the GIL may have looked like a stall
        assert launch(lambda b, e: barrier.wait() * 0, 2, 1) == 0


def test_a_limit_below_the_pool_is_kept() -> None:
    Launch(6)
    for _ in range(50):
        used: set[int] = set()

        def body(begin: int, end: int, used: set[int] = used) -> int:
            used.add(threading.get_ident())
            time.sleep(0.0002)
            return 0

        assert Launch(2)(body, 12, 1) == 0
        assert len(used) <= 2


def test_a_stalled_worker_is_shed_and_comes_back() -> None:
    launch = Launch(2)
    me = threading.get_ident()
    ticks = ctypes.PYFUNCTYPE(ctypes.c_int64)(native().address("ticks"))
    record = pool_module._pool.worker[0]
    took = threading.Event()

    def stall(begin: int, end: int) -> int:
        if threading.get_ident() != me:
            took.set()
            time.sleep(0.03)
        else:
            took.wait(1)
        return 0

    record.shed_until = before = 0
    for _ in range(5):  # the launcher may have taken both chunks
        took.clear()
        launch(stall, 2, 1)
        if took.is_set():
            break
    assert record.shed_until > before
    seen: set[int] = set()

    def note(begin: int, end: int) -> int:
        seen.add(threading.get_ident())
        time.sleep(0.0005)
        return 0

    while ticks() < record.shed_until - record.shed_period // 2:
        seen.clear()
        launch(note, 4, 1)
        assert seen == {me} or ticks() >= record.shed_until
    deadline = time.monotonic() + 30
    while seen == {me} and time.monotonic() < deadline:
        launch(note, 4, 1)
    assert seen != {me}


@pytest.mark.parametrize("ran", ["all the time", "not at all"])
def test_only_a_worker_that_did_not_run_is_shed(ran: str) -> None:
    """The launcher waits for a long chunk; a clock of ours tells it how much the worker ran meanwhile."""
    launch = Launch(2)
    me = threading.get_ident()
    pool = pool_module._pool
    took, left = threading.Event(), threading.Event()

    def tell(clock: int, answer: int, _: int) -> int:
        now = time.perf_counter_ns() if ran == "all the time" else 5
        (ctypes.c_int64 * 2).from_address(answer)[:] = list(divmod(now, 1_000_000_000))
        return 0

    def uneven(begin: int, end: int) -> int:
        if threading.get_ident() == me:
            took.wait(1)
            left.set()
        else:
            took.set()
            left.wait(1)  # on a busy machine the launcher may come late to its waiting
            time.sleep(0.02)
        return 0

    clock = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(tell)
    before = pool.clock
    try:
        pool.clock = ctypes.cast(clock, ctypes.c_void_p)
        served = shed = 0
        for _ in range(60):  # the launcher may have been away itself, and saw nothing of the wait
            pool.worker[0].shed_until = 0
            took.clear()
            left.clear()
            launch(uneven, 2, 1)
            served += took.is_set()
            shed += pool.worker[0].shed_until > 0
            if shed or (served == 3 and ran == "all the time"):
                break
        assert served and bool(shed) == (ran == "not at all")
    finally:
        pool.clock = before
        pool.worker[0].shed_until = 0


def test_a_core_that_is_borrowed_now_and_then_is_kept() -> None:
    """The allowance is what decides: a stall that it covers is only charged, the next one, which it does not, sheds."""
    launch = Launch(2)
    me = threading.get_ident()
    pool = pool_module._pool
    record = pool.worker[0]
    ticks = ctypes.PYFUNCTYPE(ctypes.c_int64)(native().address("ticks"))
    took, left = threading.Event(), threading.Event()

    def stall(begin: int, end: int) -> int:
        if threading.get_ident() != me:
            took.set()
            left.wait(1)  # on a busy machine the launcher may come late to its waiting
            time.sleep(0.002)
        else:
            took.wait(1)
            left.set()
        return 0

    def stalled() -> bool:
        for _ in range(20):
            took.clear()
            left.clear()
            launch(stall, 2, 1)
            if took.is_set():
                return True
        return False

    normal, record.shed_until = pool.allowance, 0
    try:
        pool.allowance, record.charged = normal * 1000, 0  # the machine may be busy: a stall is never shorter than it should be
        for _ in range(20):  # the launcher may have been away itself, and saw nothing of the stall
            assert stalled() and record.shed_until == 0
            if record.allowance:
                break
        assert 0 < record.allowance < pool.allowance
        for _ in range(20):  # on a busy machine so much time may pass before the stall that it is covered again
            record.allowance, record.charged = 0, ticks()
            assert stalled()
            if record.shed_until:
                break
        assert record.shed_until > 0 and record.allowance == 0
    finally:
        pool.allowance, record.shed_until, record.charged = normal, 0, 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the processor of a thread")
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_worker_on_the_launchers_processor_steps_aside(goes_on: bool) -> None:
    """All threads are told that they are on processor 7: a worker lets the launcher go on, and serves only if that does not."""
    launch = Launch(2)
    me = threading.get_ident()
    pool = pool_module._pool
    record = pool.worker[0]
    used: set[int] = set()
    asked, done = threading.Event(), threading.Event()

    def step_aside() -> int:
        asked.set()
        if goes_on:
            done.wait(5)
        return 0

    def body(begin: int, end: int) -> int:
        used.add(threading.get_ident())
        if threading.get_ident() == me and begin == 0:
            asked.wait(5)
            if not goes_on:
                time.sleep(0.05)
        if begin == 3 and goes_on:
            done.set()
        return 0

    processor = ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: 7)
    aside = ctypes.CFUNCTYPE(ctypes.c_int64)(step_aside)
    before, record.shed_until = (pool.processor, pool.step_aside), 0
    try:
        pool.processor, pool.step_aside = (ctypes.cast(f, ctypes.c_void_p) for f in (processor, aside))
        assert launch(body, 4, 1) == 0
        assert asked.is_set() and (used == {me}) == goes_on
        deadline = time.monotonic() + 5
        while goes_on and not record.shed_until and time.monotonic() < deadline:
            time.sleep(0.001)
        assert (record.shed_until > 0) == goes_on
    finally:
        done.set()
        pool.processor, pool.step_aside = before
        record.shed_until = 0


LATE = """
import ctypes, mmap
from launching import Launch
from test_threads import increment
launch = Launch(8)
keep, body = increment()
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
for _ in range(3000):
    page = libc.mmap(None, 4096, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    assert launch.native(body, page, 512, 3) == 0
    assert list((ctypes.c_int64 * 512).from_address(page)) == [1] * 512
    libc.munmap(page, 4096)
print("fine")
"""


def test_late_workers_never_touch_a_finished_launch(finish: Callable[..., str]) -> None:
    """More threads than cores, so that some wake late; the memory of a launch is gone when it returns."""
    assert finish(LATE) == "fine\n"


FORK = """
import os, sys
import numpy as np
from launching import Launch
from test_threads import increment
keep, body = increment()
def check():
    for _ in range(50):
        data = np.zeros(100, np.int64)
        assert Launch(2).native(body, data.ctypes.data, 100, 3) == 0 and (data == 1).all()
check()
for generation in range(3):
    child = os.fork()
    if child == 0:
        check()
        continue
    check()
    assert os.waitpid(child, 0)[1] == 0
    break
print("fine", flush=True)
"""


def test_fork(finish: Callable[..., str]) -> None:
    assert finish(FORK) == "fine\n" * 4


@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_the_interpreter_ends_while_workers_spin_or_sleep(finish: Callable[..., str], pause: float) -> None:
    text = f"""
import numpy as np, time
from launching import Launch
from test_threads import increment
keep, body = increment()
data = np.zeros(100, np.int64)
Launch(4).native(body, data.ctypes.data, 100, 1)
time.sleep({pause})
print(int(data.sum()))
"""
    for _ in range(3):
        assert finish(text) == "100\n"


def test_the_pool_comes_from_the_cache_without_llvm(finish: Callable[..., str]) -> None:
    text = "import sys; from launching import Launch; Launch(2); print('llvmlite' in sys.modules)"
    finish(text)
    assert finish(text) == "False\n"
