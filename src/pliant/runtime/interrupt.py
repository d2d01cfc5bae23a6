"""Ctrl-C during a long call.

Python's own handler cannot run while the main thread is in native code, so a watcher raises the cancel flag of the call.
Python's C-level handler writes each signal into a wake-up socket; a daemon thread reads it, and at SIGINT raises the one cancel
flag that all calls of the main thread look at. These return soon, and KeyboardInterrupt surfaces in the main thread as usual.

    ctx.cancel = cancel_flag() or own          # 0 outside of the main thread, whose calls Ctrl-C does not end
    code = run(...)
    if code:
        surface()

Nothing happens where somebody else owns the wake-up socket or the handler of SIGINT (an event loop): they decide what Ctrl-C does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from typing import TYPE_CHECKING

from .native_library import immortal
from .records import Watch

if TYPE_CHECKING:
    import socket

WATCH = immortal(Watch(main=threading.main_thread().ident or 0))  # the native way in looks at it too
_FLAG = ctypes.addressof(WATCH) + Watch.flag.offset
_CTRL_C, _CANCELLED = 1, 2  # who raised the flag: any value but 0 cancels
_sockets: tuple[socket.socket, socket.socket] | None = None


def cancel_flag() -> int:
    """The address of the flag that Ctrl-C raises, which is down now; 0 outside of the main thread."""
    if threading.get_ident() != WATCH.main:
        return 0
    if not WATCH.tried:
        _install()
    WATCH.flag = 0
    return _FLAG


def surface() -> None:
    """Raise the KeyboardInterrupt that made a call of this thread end early, if it was one."""
    if threading.get_ident() != WATCH.main:
        return
    by, WATCH.flag = WATCH.flag, 0
    if by == _CTRL_C:
        raise KeyboardInterrupt  # Python's handler usually raised it already, on the way here


def cancel_main() -> None:
    """Have the call that the main thread is in end early, without an interrupt."""
    if WATCH.flag != _CTRL_C:
        WATCH.flag = _CANCELLED


def _install() -> None:
    """Watch for signals from now on, unless somebody else does. Runs in the main thread, as set_wakeup_fd demands."""
    global _sockets
    WATCH.tried = 1
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
            WATCH.flag = _CTRL_C


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
    _forget()
    WATCH.tried, WATCH.main = 0, threading.get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
