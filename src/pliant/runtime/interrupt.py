"""Ctrl-C during a long call.

Python's own handler cannot run while the main thread is in native code, so a watcher raises the cancel flag of the call.
Python's C-level handler writes each signal into a wake-up socket; a daemon thread reads it, and at SIGINT raises the cancel
flags of the calls that the main thread is in. These return soon, and KeyboardInterrupt surfaces in the main thread as usual.

    try:
        enter(flag)          # flag: the c_int32 that Ctx.cancel points at
        code = run(...)
    finally:
        leave(flag)

Nothing happens where somebody else owns the wake-up socket or the handler of SIGINT (an event loop): they decide what Ctrl-C does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from typing import TYPE_CHECKING

from .native import immortal

if TYPE_CHECKING:
    import socket

_calls: list[ctypes.c_int32] = []  # cancel flags of the main thread's running calls
_sockets: tuple[socket.socket, socket.socket] | None = None
_tried = False
_main = threading.main_thread().ident


def enter(flag: ctypes.c_int32) -> None:
    """A call with this cancel flag begins; does nothing outside the main thread."""
    if threading.get_ident() == _main:
        if not _tried:
            _install()
        _calls.append(flag)


def leave(flag: ctypes.c_int32) -> None:
    """The call with this cancel flag ended."""
    if flag in _calls:
        _calls.remove(flag)


def surface(flag: ctypes.c_int32) -> None:
    """Raise the KeyboardInterrupt that made a call end early, if it was one."""
    if flag.value == _INTERRUPTED:
        flag.value = 0
        raise KeyboardInterrupt  # Python's handler usually raised it already, on the way here


_INTERRUPTED = 2  # what the watcher writes: any value but 0 cancels


def _install() -> None:
    """Watch for signals from now on, unless somebody else does. Runs in the main thread, as set_wakeup_fd demands."""
    global _sockets, _tried
    _tried = True
    import socket

    try:
        reader, writer = map(immortal, socket.socketpair())  # used until the very end, so never closed by it
        writer.setblocking(False)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            reader.close()
            writer.close()
            return
        _sockets = reader, writer
        threading.Thread(target=_watch, args=(reader,), name="pliant-interrupt", daemon=True).start()
    except (OSError, ValueError, RuntimeError):  # no sockets, a subinterpreter, no more threads: Ctrl-C then waits for the call
        _forget()


def _watch(reader: socket.socket) -> None:
    while True:
        try:
            signals = reader.recv(64)
        except OSError:
            return
        if not signals:
            return
        if signal.SIGINT in signals and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            for flag in _calls.copy():
                flag.value = _INTERRUPTED


def _forget() -> None:
    """Give the wake-up socket back if it is ours."""
    global _sockets
    if _sockets is None:
        return
    with contextlib.suppress(ValueError, OSError):
        found = signal.set_wakeup_fd(-1)
        if found != _sockets[1].fileno():
            signal.set_wakeup_fd(found)
    for end in _sockets:
        end.close()
    _sockets = None


def _after_fork() -> None:
    """A child must not write into its parent's socket; it watches with one of its own when it needs to."""
    global _tried, _main
    _forget()
    _calls.clear()
    _tried = False
    _main = threading.get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
