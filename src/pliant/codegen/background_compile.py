"""A program's machine code in pieces, which LLVM makes while the rest of the program is still being lowered.

Kernels are handed in as soon as they are scheduled. Their text is written at once; a thread makes objects of it, and since Python is not
needed for that, it goes on meanwhile. What is in which piece depends on the kernels and their order alone, so the code is always the same.

    with Pieces(target("native")) as pieces:
        pieces.kernel(func)                                  # as soon as it is there
        module, objects = pieces.finish((prepare, size, run))   # these call the kernels

LLVM's own lock (of llvmlite) lets one thread in at a time, so that there is one.
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

_PIECE = 50_000  # letters from which on a piece is complete: less is not worth LLVM's start
# Statements of a host program from which on LLVM's passes are left out for it: straight code that runs once a call. That of YOLOv8n takes
# 0.14 s without them, 1.9 s with them, and 0.4 s with the attribute `optnone`, which passes over each function all the same.
_LONG = 200


_waking = threading.Lock()
_awake: list[float] = []  # for each thread of LLVM at work, how long Python's threads were left alone before


@contextmanager
def _woken_soon() -> Iterator[None]:
    """Inside, a thread that comes back from LLVM waits a tenth of a millisecond for Python's lock, not five, after each of many calls."""
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
    """The code of one program at work."""

    def __init__(self, target: Target, level: int = 2, watch: Watch | None = None) -> None:
        self.target, self.level = target, level
        self.state = State(target, Declarations(target), linkage="hidden", watch=watch)
        self.made: set[str] = set()  # inner functions of complete pieces
        self.texts: SimpleQueue[tuple[str, int] | None] = SimpleQueue()  # each with its level
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
        """Make the code of a kernel; one without loops is left to those who call it, where it is inlined."""
        if not any(isinstance(s, For | While) for s in walk_stmts(func.body)):
            return
        self.state.inner(func)
        if sum(map(len, self.state.functions)) >= _PIECE:
            self._complete()

    def finish(self, entries: Sequence[Func]) -> tuple[Module, list[bytes]]:
        """The module of the exported functions, which says what numbers in all pieces mean, and the objects of all pieces."""
        long = any(sum(1 for _ in walk_stmts(f.body)) > _LONG for f in entries)
        if self.state.functions and (long or self.thread is not None):
            self._complete()
        names = tuple(f.name for f in entries)
        self.state.used.update(names)
        self.state.linkage = "internal"  # nobody comes after them
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
        """The inner functions of complete pieces that are called since."""
        return [name for name in self.state.called if name in self.made]

    def _complete(self) -> None:
        """Give what was made to LLVM, and begin anew."""
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
                except BaseException as error:  # whoever waits for the code is told
                    self.failure = error

    def _wait(self) -> None:
        """Until everything is done that was given, or the piece at work when it is stopped; then nothing more can be given."""
        thread, self.thread = self.thread, None
        if thread is not None:
            self.texts.put(None)
            thread.join()
        if self.failure is not None and not self.stopped:
            raise self.failure
