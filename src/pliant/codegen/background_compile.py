"""Compiles a program's kernels with LLVM in a background thread, while the rest of the program is still being lowered.

Kernels are handed in as soon as they are scheduled. Their LLVM text is written at once. A thread compiles it to objects; LLVM releases the
GIL, so lowering goes on meanwhile. Kernels are grouped into pieces by their order and size alone, so the code is always the same.

    with BackgroundCompile(target("native")) as pieces:
        pieces.kernel(func)                                     # as soon as it is scheduled
        module, objects = pieces.finish((prepare, size, run))   # the host program, which calls the kernels

llvmlite's lock lets one thread into LLVM at a time, so there is only one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from types import TracebackType

from ..loop.lowering import Watch
from ..loop.stmt import For, Func, While, walk_stmts
from ..target import Target
from .emit import emit_object
from .llvm import Module, State
from .llvm_build import Declarations

_PIECE = 50_000  # characters that complete a piece: for less, LLVM's fixed cost per module is too high
# A host program of more statements is compiled without LLVM's passes: it is straight-line code that runs once per call. That of YOLOv8n
# takes 0.14 s without them, 1.9 s with them, and 0.4 s with the attribute `optnone`, because the pass manager still visits each function.
_LONG = 200


_waking = threading.Lock()
_awake: list[float] = []  # for each running LLVM thread, the switch interval before it started


@contextmanager
def _woken_soon() -> Iterator[None]:
    """Context manager: sets Python's switch interval to 0.1 ms: a thread that returns from LLVM waits that long for the GIL, not 5 ms.

    The last of several that run at the same time sets the interval from before the first again.
    """
    with _waking:
        _awake.append(_awake[-1] if _awake else sys.getswitchinterval())
        sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        with _waking:
            before = _awake.pop()
            if not _awake:
                sys.setswitchinterval(before)


class BackgroundCompile:
    """Compiles one program with LLVM: its kernels in a background thread, then its host program."""

    def __init__(self, target: Target, level: int = 2, watch: Watch | None = None) -> None:
        self.target, self.level = target, level
        self.state = State(target, Declarations(target), linkage="hidden", watch=watch)
        self.made: set[str] = set()  # names of inner functions in complete pieces
        self.texts: SimpleQueue[tuple[str, int] | None] = SimpleQueue()  # (LLVM text, optimization level)
        self.objects: list[bytes] = []
        self.failure: BaseException | None = None
        self.stopped = False
        self.thread: threading.Thread | None = None

    def __enter__(self) -> BackgroundCompile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stopped = True
        self._wait()

    def kernel(self, func: Func) -> None:
        """Write the code of a kernel, and hand the collected kernels to the background thread once they are a piece of `_PIECE` characters.

        A kernel without loops is left to its callers' module, where LLVM inlines it.
        """
        if not any(isinstance(s, For | While) for s in walk_stmts(func.body)):
            return
        self.state.inner(func)
        if sum(map(len, self.state.functions)) >= _PIECE:
            self._complete()

    def finish(self, entries: Sequence[Func]) -> tuple[Module, list[bytes]]:
        """Return the module of the host program, whose tables serve all pieces, and the objects of all pieces; waits for the thread.

        A host program of more than `_LONG` statements is compiled without LLVM's passes.
        """
        long = any(sum(1 for _ in walk_stmts(f.body)) > _LONG for f in entries)
        if self.state.functions and (long or self.thread is not None):
            self._complete()
        names = tuple(f.name for f in entries)
        self.state.used.update(names)
        self.state.linkage = "internal"  # no later piece calls them
        for f in entries:
            self.state.function(f, exported=True)
        module = self.state.module(names, self._elsewhere())
        level = 0 if long else self.level
        if self.thread is None:
            self.objects.append(emit_object(module.text, self.target, level))
        else:
            self.texts.put((module.text, level))
            self._wait()
        return module, self.objects

    def _elsewhere(self) -> list[str]:
        """Return the inner functions of complete pieces that the present piece calls."""
        return [name for name in self.state.called if name in self.made]

    def _complete(self) -> None:
        """Hand the LLVM text collected so far to the background thread, and begin a new piece."""
        text = self.state.text(self._elsewhere())
        self.made |= self.state.signatures.keys()
        self.state.declarations = Declarations(self.target)
        self.state.functions.clear()
        self.state.called.clear()
        if self.thread is None:
            self.thread = threading.Thread(target=self._work, name="pliant-llvm", daemon=True)
            self.thread.start()
        self.texts.put((text, self.level))

    def _work(self) -> None:
        with _woken_soon():
            while (piece := self.texts.get()) is not None:
                if self.stopped or self.failure is not None:
                    continue
                try:
                    text, level = piece
                    self.objects.append(emit_object(text, self.target, level))
                except BaseException as error:  # `_wait` raises it
                    self.failure = error

    def _wait(self) -> None:
        """Wait until the thread has compiled everything, or only its present piece if stopped; the thread ends. Raises its error."""
        thread, self.thread = self.thread, None
        if thread is not None:
            self.texts.put(None)
            thread.join()
        if self.failure is not None and not self.stopped:
            raise self.failure
