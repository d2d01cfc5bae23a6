"""Launching parallel loops from tests: bodies are Python functions, or native ones from runtime_programs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from pliant.runtime.ctx import Body, Ctx
from pliant.runtime.threads import launcher_for

_FOR = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Launch:
    """A context with a pool of `threads` threads, to launch loops in."""

    def __init__(self, threads: int) -> None:
        self.ctx = Ctx()
        self.cancel = ctypes.c_int32(0)
        launcher = launcher_for(threads)
        self.ctx.cancel = ctypes.addressof(self.cancel)
        self.ctx.parallel_for, self.ctx.pool = launcher.parallel_for, launcher.pool
        self._for = _FOR(launcher.parallel_for)

    def native(self, body: int, env: int, extent: int, grain: int) -> int:
        """Launch a native body."""
        return int(self._for(ctypes.addressof(self.ctx), body, env, extent, grain))

    def __call__(self, body: Callable[[int, int], int], extent: int, grain: int) -> int:
        """Launch body(begin, end) -> code."""
        made = Body(lambda ctx, env, begin, end: body(begin, end))
        return self.native(ctypes.cast(made, ctypes.c_void_p).value or 0, 0, extent, grain)

    def error(self) -> int:
        """The code in the error record."""
        return int(self.ctx.error[0])
