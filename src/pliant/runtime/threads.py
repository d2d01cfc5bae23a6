"""The thread pool, and the number of threads that a call uses.

Workers are daemon Python threads inside of `worker_loop` (runtime/native/thread_pool.ll); they do not hold the GIL and
never return. There is one pool for the process. It grows to the largest number of threads requested; the `View` that `Ctx.pool`
points at limits a call to fewer.

    count, rule = resolve_threads()            # (2, "the processors this process may use")
    launcher = launcher_for(count)
    ctx.parallel_for, ctx.pool = launcher.parallel_for, launcher.pool

Records, semaphores and code are never freed, because workers may still read them while the interpreter shuts down.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import time
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from ..support.context import assigned
from ..support.errors import Error
from ..support.source import caller_span
from .native_library import immortal, native
from .records import MAX_THREADS, Pool, View, Worker

# Times in microseconds. _SPIN, _PATIENCE: how long a worker and a launcher spin before they sleep. _STALL: shorter waits are never charged
# to a worker (a time slice of the system's scheduler is longer). _SHED: the longest time for which a worker is shed. _ALLOWANCE: how much
# time a worker may lose before it is shed.
_SPIN, _PATIENCE, _STALL, _SHED, _ALLOWANCE = 60, 60, 300, 1_000_000, 10_000


class Launcher(NamedTuple):
    """The values of `Ctx.parallel_for` and `Ctx.pool`, which decide how a call runs its parallel loops."""

    parallel_for: int
    pool: int


_lock = threading.Lock()
_pool: Pool | None = None
_launchers: dict[int, Launcher] = {}


def launcher_for(threads: int) -> Launcher:
    """Return the launcher of parallel loops on `threads` threads, the calling one included; starts missing workers."""
    known = _launchers.get(threads)
    if known is not None:
        return known
    with _lock:
        code = native()
        if threads <= 1:
            launcher = Launcher(code.address("serial_for"), 0)
        else:
            wanted = min(threads, MAX_THREADS + 1) - 1
            pool = _grow(wanted)
            view = immortal(View(ctypes.addressof(pool), wanted))
            launcher = Launcher(code.address("parallel_for"), ctypes.addressof(view))
        _launchers[threads] = launcher
        return launcher


def _grow(wanted: int) -> Pool:
    """Return the pool with at least `wanted` workers, or as many as the system lets us start."""
    global _pool
    if _pool is None:
        _pool = _new_pool()
    pool = _pool
    loop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(native().address("worker_loop"))
    for index in range(pool.workers, wanted):
        worker = pool.worker[index]
        worker.semaphore = _semaphores().make(ctypes.addressof(worker) + Worker.semaphore_memory.offset)
        arguments = (ctypes.addressof(pool), index)
        thread = threading.Thread(target=loop, args=arguments, name=f"pliant-{index}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # a limit on threads, or the interpreter is ending
            break
        if sys.platform == "linux":
            worker.clock_id = time.pthread_getcpuclockid(thread.ident or 0)
        pool.workers = index + 1
    return pool


def _new_pool() -> Pool:
    line = 128  # processors fetch cache lines of 64 bytes in pairs, and some ARM cores have lines of 128
    memory = immortal(ctypes.create_string_buffer(ctypes.sizeof(Pool) + line))
    pool = Pool.from_address(ctypes.addressof(memory) + -ctypes.addressof(memory) % line)
    semaphores = _semaphores()
    pool.wait, pool.post = semaphores.wait, semaphores.post
    pool.semaphore = semaphores.make(ctypes.addressof(pool) + Pool.semaphore_memory.offset)
    pool.clock, pool.processor, pool.step_aside = (_of_linux(name) for name in ("clock_gettime", "sched_getcpu", "sched_yield"))
    rate = _ticks_per_microsecond()
    pool.rate = int(rate * 1024 / 1000)  # ticks in 1024 nanoseconds
    times = (_SPIN, _PATIENCE, _STALL, _SHED, _ALLOWANCE)
    pool.spin, pool.patience, pool.stall, pool.shed, pool.allowance = (int(rate * t) for t in times)
    return pool


def _ticks_per_microsecond() -> float:
    """Measure the rate of the native code's counter; it only scales timeouts, so an error of a factor of two is harmless."""
    ticks = ctypes.PYFUNCTYPE(ctypes.c_int64)(native().address("ticks"))
    begin, first = time.perf_counter_ns(), ticks()
    while time.perf_counter_ns() - begin < 200_000:
        pass
    last, end = ticks(), time.perf_counter_ns()
    return min(max(float(last - first) * 1000 / (end - begin), 1.0), 10_000.0)


def _of_linux(name: str) -> int:
    """Return the address of a libc function that the pool uses on Linux only, else 0."""
    if sys.platform == "linux":
        return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0
    return 0


class _Semaphores(NamedTuple):
    """The system's semaphore functions, called as wait(s, -1, 0) and post(s, 1, 0): all but Windows ignore the further arguments."""

    wait: int
    post: int
    make: Any  # (address of 48 bytes for it) -> the first argument of both functions


@functools.cache
def _semaphores() -> _Semaphores:
    def address(function: Any) -> int:
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    if sys.platform == "win32":
        kernel = ctypes.windll.kernel32
        kernel.CreateSemaphoreW.restype = ctypes.c_void_p
        return _Semaphores(
            address(kernel.WaitForSingleObject),
            address(kernel.ReleaseSemaphore),
            lambda memory: kernel.CreateSemaphoreW(None, 0, 0x7FFFFFFF, None),
        )
    system = immortal(ctypes.CDLL(None))
    if sys.platform == "darwin":

        def make_port(memory: int) -> int:
            port = ctypes.c_uint32.from_address(memory)
            system.semaphore_create(ctypes.c_uint32.in_dll(system, "mach_task_self_"), ctypes.byref(port), 0, 0)
            return port.value

        return _Semaphores(address(system.semaphore_wait), address(system.semaphore_signal), make_port)

    def make(memory: int) -> int:
        system.sem_init(ctypes.c_void_p(memory), 0, 0)
        return memory

    return _Semaphores(address(system.sem_wait), address(system.sem_post), make)


def _after_fork() -> None:
    """Forget the pool in a child, which has no workers: it makes its own pool when it needs one. The code stays mapped."""
    global _pool, _lock
    EPOCH.value += 1
    _pool = None
    _lock = threading.Lock()
    _launchers.clear()
    _given_by_system.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


WITHIN: ContextVar[int | None] = immortal(ContextVar("pliant_threads", default=None))
EPOCH = immortal(ctypes.c_int64(0))  # a result of `current_launcher` is valid as long as this and WITHIN are unchanged
_process_wide: int | None = None


def resolve_threads(argument: int | None = None) -> tuple[int, str]:
    """Return the number of threads of a call, and the rule that set it: argument, `with`, `set_threads`, environment, system."""
    if argument is not None:
        return _checked(argument), "the argument `threads`"
    within = WITHIN.get()
    if within is not None:
        return within, "`with pliant.threads(...)`"
    if _process_wide is not None:
        return _process_wide, "`pliant.set_threads(...)`"
    return _given_by_system()


def current_launcher(argument: int | None) -> Launcher:
    """Return the launcher for a call now; chooses as `resolve_threads` does, but faster."""
    count = argument or WITHIN.get() or _process_wide or _given_by_system()[0]
    return _launchers.get(count) or launcher_for(count)


def set_threads(count: int | None) -> None:
    """Let calls of the whole process use `count` threads; None gives the choice back to environment and system."""
    global _process_wide
    _process_wide = None if count is None else _checked(count)
    EPOCH.value += 1


def threads(count: int) -> AbstractContextManager[None]:
    """Let calls inside the `with` block (of this Python thread or task) use `count` threads."""
    return assigned(WITHIN, _checked(count))


def _checked(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise Error(f"the number of threads is {count!r}, expected a whole number of at least 1", where=caller_span())
    return count


@functools.cache
def _given_by_system() -> tuple[int, str]:
    chosen = os.environ.get("PLIANT_NUM_THREADS", "").strip()
    if chosen:
        if not chosen.isdecimal() or int(chosen) < 1:
            raise Error(f"PLIANT_NUM_THREADS is `{chosen}`, expected a whole number of at least 1")
        return int(chosen), "PLIANT_NUM_THREADS"
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # OpenMP lists one number for each level of nesting
    if first.isdecimal() and int(first) >= 1:
        return int(first), "OMP_NUM_THREADS"
    if hasattr(os, "sched_getaffinity"):
        usable = len(os.sched_getaffinity(0))
    else:
        usable = os.cpu_count() or 1
    quota = cgroup_quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    if quota is not None and quota < usable:
        return max(1, int(quota)), "the quota of the cgroup"
    return usable, "the processors this process may use"


def cgroup_quota(membership: Path, root: Path) -> float | None:
    """Return the smallest CPU quota of this process's control groups, in processors.

    None if there is none (Linux, cgroup versions 1 and 2).
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    quotas: list[float] = []
    for line in lines:
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / "cpu" if controllers else root
        folder = base / group.lstrip("/")
        for at in [folder, *folder.parents]:
            quotas += _quota_in(at, version_2=not controllers)
            if at == base:
                break
    return min(quotas, default=None)


def _quota_in(folder: Path, version_2: bool) -> list[float]:
    try:
        if version_2:
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        return [int(quota) / int(period)] if quota not in ("max", "-1") else []
    except (OSError, ValueError, ZeroDivisionError):
        return []
