"""Programs that answer soon: compiled with `effort="fast"` first, and swapped for the full program once that is compiled in the background.

    f = FastStart(source)       # returns after the fast compilation
    y = f(x)                    # the fast program, later the full one: the same bits
    f.effort                    # "fast" or "full"
    f.wait()                    # until the full program is there

A swap happens between calls: a call runs one program from its beginning to its end. Fast and full programs differ only in decisions that
keep the bits of results. A full program in the code cache is taken at once. If its compilation fails, the fast one stays, with a warning.
At the end of the process, or with `stop`, a compilation ends at its next kernel.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from typing import Any, Literal

from .api import compile, program_of
from .cache_key import cache_key, options_text
from .pipeline import check_disabled
from .program import Program
from .runtime.executable import Executable
from .support.cancellation import Cancelled, cancellable
from .support.settings import read as read_settings
from .target import target as find_target
from .tuned_code import CodeStore, decisions_of

_SOON = 10.0  # seconds that the end of a process waits at most for a kernel that is being compiled
_running: weakref.WeakSet[FastStart] = weakref.WeakSet()


class FastStart:
    """A program that can be called after the fast compilation, and becomes the full program once a background thread has compiled that.

    The full program in the code cache is taken at once, without a thread. `effort` says which program calls run: "fast" or "full".
    `failure` is the exception of a full compilation that failed, else None. Raises what the fast compilation raises.
    """

    def __init__(self, source: Any, threads: int | None = None) -> None:
        program = program_of(source)
        self._full = threading.Event()  # set once the full program is there, or will never be
        self._stopped = threading.Event()
        self.failure: Exception | None = None  # why there is no full program
        self.effort: Literal["full", "fast"] = "full" if _is_cached(program) else "fast"
        self.executable: Executable = compile(program, threads=threads, effort=self.effort)
        if self.effort == "full":
            self._full.set()
            return
        _running.add(self)
        self._thread = threading.Thread(target=self._improve, args=(program, threads), name="pliant-full", daemon=True)
        self._thread.start()

    def __call__(self, *args: Any) -> Any:
        """Calls the program that is there now, fast or full, and returns its result."""
        return self.executable(*args)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the background compilation has ended; returns True if calls run the full program now.

        It waits at most `timeout` seconds, without a limit if that is None. It returns False after a failure, a stop or the end of the
        time.
        """
        self._full.wait(timeout)
        return self.effort == "full"

    def stop(self) -> None:
        """Asks the background compilation to end at its next kernel, and waits at most ten seconds for that; the present program stays."""
        self._stopped.set()
        if not self._full.is_set() and threading.current_thread() is not self._thread:
            self._thread.join(_SOON)

    def _improve(self, program: Program, threads: int | None) -> None:
        """Compiles the full program and swaps it in; runs in a thread of its own.

        If that fails, it sets `failure` and warns. In any case it wakes those who wait.
        """
        try:
            with cancellable(self._stopped):
                full = compile(program, threads=threads)
            self.executable, self.effort = full, "full"
        except Cancelled:
            pass
        except Exception as error:
            self.failure = error
            warnings.warn(f"the full program could not be compiled, calls keep the fast one: {error}", RuntimeWarning, stacklevel=1)
        finally:
            self._full.set()


@atexit.register
def _stop_all() -> None:
    """Stops all background compilations before the interpreter ends, because a thread in LLVM would see its memory freed.

    It waits at most ten seconds for each.
    """
    running = list(_running)
    for start in running:
        start._stopped.set()
    for start in running:
        start.stop()


def _after_fork() -> None:
    """Marks, in a child process, all background compilations as ended; the program that is there stays."""
    for start in list(_running):  # a child has no background thread, so the fast program stays
        start._full = threading.Event()
        start._full.set()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _is_cached(program: Program) -> bool:
    """Returns True if the code cache has the full program for this machine, with the settings and tuned decisions of now."""
    machine = find_target("native")
    asked = decisions_of()
    options = options_text(machine, check_disabled(read_settings().disable), asked.text(), load_here=False)
    return options is not None and CodeStore(asked).get(cache_key(program, machine) + options.encode()) is not None
