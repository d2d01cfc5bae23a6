"""Compiles a program's kernels with LLVM in a background thread, while the rest of the program is still being lowered.

Kernels are handed in as soon as they are scheduled. Their LLVM text is written at once. A thread compiles it to objects; LLVM releases the
GIL, so lowering goes on meanwhile. A large kernel is a piece of its own, small ones are grouped by their order and size alone, so the code
is always the same. Names in a kernel that stands alone depend on nothing outside of it, so its code can serve other programs
(`code_of`, `add`).

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
from ..loop.stmt import Call, Check, For, Func, While, walk_stmts
from ..support.cancellation import asked_to_stop, stop_if_asked
from ..target import Target
from .emit import emit_object
from .kernel_code import KernelCode
from .llvm import Module, State
from .llvm_build import Declarations

_PIECE = 50_000  # characters that complete a piece: for less, LLVM's fixed cost per module is too high
_SHARE = 4  # a kernel of this part of a piece is a piece of its own
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


_LOOK = 0.05  # seconds between two looks whether a compilation should stop, while it waits for LLVM


class BackgroundCompile:
    """Compiles one program with LLVM: its kernels in a background thread, then its host program."""

    def __init__(self, target: Target, level: int = 2, watch: Watch | None = None) -> None:
        self.target, self.level = target, level
        self.state = State(target, Declarations(target), linkage="hidden", watch=watch)
        self.made: set[str] = set()  # names of inner functions in complete pieces
        self.texts: SimpleQueue[tuple[str, int, int] | None] = SimpleQueue()  # (LLVM text, optimization level, place in `objects`)
        self.objects: list[bytes] = []  # one for each piece in order; empty until it is compiled
        self.codes: dict[Func, tuple[KernelCode, int | None]] = {}  # kernels that stand alone, with their places in `objects`
        self.failure: BaseException | None = None
        self.stopped = False
        self.thread: threading.Thread | None = None

    def __enter__(self) -> BackgroundCompile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stopped = True
        self._wait()

    def kernel(self, func: Func, name: str = "") -> None:
        """Write the code of a kernel, and hand the collected kernels to the background thread once they are a piece of `_PIECE` characters.

        `name` is different for each kernel of a program; all names in the code of a kernel that stands alone begin with it. Without a name,
        and if it calls others or fails with messages, a kernel shares the tables of its program. One without loops is left to its
        callers' module, where LLVM inlines it.
        """
        if not any(isinstance(s, For | While) for s in walk_stmts(func.body)):
            return
        code = self._alone(func, name) if name else None
        if code is not None:
            self.add(func, code)
            return
        self.state.inner(func)
        self._group()

    def add(self, func: Func, code: KernelCode) -> None:
        """Add a kernel whose code was written before; that of `func` itself is not looked at."""
        state, place = self.state, None
        state.names[func] = code.symbol
        state.signatures[code.symbol] = code.signature
        state.parallel |= code.parallel
        if code.object or sum(map(len, code.functions)) * _SHARE >= _PIECE:
            self.made.add(code.symbol)
            place = len(self.objects)
            if code.object:
                self.objects.append(code.object)
            else:
                self._compile(_module_of(code, self.target), self.level)
                code = KernelCode(code.symbol, code.signature, code.parallel)  # the text is as large as all other memory
        else:
            state.declarations.lines.update(code.declarations)
            state.functions += code.functions
            self._group()
        self.codes[func] = (code, place)

    def code_of(self, func: Func) -> KernelCode | None:
        """Return the code of a kernel for other programs; None if it does not stand alone. Only after `finish`."""
        code, place = self.codes.get(func, (None, None))
        if code is None or place is None:
            return code
        return KernelCode(code.symbol, code.signature, code.parallel, object=self.objects[place])

    def _alone(self, func: Func, name: str) -> KernelCode | None:
        """Return the text of a kernel that needs nothing of the program around it; None if it does."""
        if any(isinstance(s, Call | Check) for s in walk_stmts(func.body)):
            return None
        state = State(self.target, Declarations(self.target), linkage=self.state.linkage, watch=self.state.watch, prefix=f"k{name}.")
        symbol = state.inner(func)
        if state.sites or len(state.signatures) > 1:
            return None
        declarations = tuple(state.declarations.lines.items())
        return KernelCode(symbol, state.signatures[symbol], state.parallel, tuple(state.functions), declarations)

    def _group(self) -> None:
        """Complete the present piece if it is large enough."""
        if sum(map(len, self.state.functions)) >= _PIECE:
            self._complete()

    def finish(self, entries: Sequence[Func]) -> tuple[Module, list[bytes]]:
        """Return the module of the host program, whose tables serve all pieces, and the objects of all pieces; waits for the thread.

        A host program of more than `_LONG` statements is compiled without LLVM's passes.
        """
        long = any(sum(1 for _ in walk_stmts(f.body)) > _LONG for f in entries)
        if self.state.functions and (long or self.objects):
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
            self._compile(module.text, level)
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
        self._compile(text, self.level)

    def _compile(self, text: str, level: int) -> None:
        """Hand a module to the background thread; its object takes the next place."""
        if self.thread is None:
            self.thread = threading.Thread(target=self._work, name="pliant-llvm", daemon=True)
            self.thread.start()
        self.objects.append(b"")  # before the thread can have the object: it may be done before this one goes on
        self.texts.put((text, level, len(self.objects) - 1))

    def _work(self) -> None:
        with _woken_soon():
            while (piece := self.texts.get()) is not None:
                if self.stopped or self.failure is not None:
                    continue
                try:
                    text, level, place = piece
                    self.objects[place] = emit_object(text, self.target, level)
                except BaseException as error:  # `_wait` raises it
                    self.failure = error

    def _wait(self) -> None:
        """Wait until the thread has compiled everything, or only its present piece if stopped; the thread ends. Raises its error."""
        thread, self.thread = self.thread, None
        if thread is not None:
            self.texts.put(None)
            while thread.is_alive():
                thread.join(_LOOK)
                self.stopped = self.stopped or asked_to_stop()
            stop_if_asked()
        if self.failure is not None and not self.stopped:
            raise self.failure


def _module_of(code: KernelCode, target: Target) -> str:
    """Return the text of a module of one kernel."""
    state = State(target, Declarations(target))
    state.declarations.lines.update(code.declarations)
    state.functions += code.functions
    return state.text()
