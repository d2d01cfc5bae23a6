"""Ctrl-C during a long call.

Python's handler cannot run while the main thread is in native code, so a watcher thread sets the cancel flag of the call. Python's
C-level handler writes each signal into a wake-up socket. The watcher reads it, and at SIGINT sets the one cancel flag that all
calls of the main thread poll. These return soon, and the main thread raises KeyboardInterrupt as usual.

    ctx.cancel = cancel_flag() or own          # 0 outside of the main thread: Ctrl-C does not stop calls of other threads
    code = run(...)
    if code:
        surface()

If other code (an event loop) owns the wake-up socket or the handler of SIGINT, nothing happens: that code decides what Ctrl-C does.
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

WATCH = immortal(Watch(main=threading.main_thread().ident or 0))  # the native fast path reads it too
_FLAG = ctypes.addressof(WATCH) + Watch.flag.offset
_CTRL_C, _CANCELLED = 1, 2  # values of the flag, by who set it: any value but 0 cancels
_sockets: tuple[socket.socket, socket.socket] | None = None


def cancel_flag() -> int:
    """Clear the flag that Ctrl-C sets, and return its address; 0 outside of the main thread.

    The first call in the main thread starts the watcher that sets the flag.
    """
    if threading.get_ident() != WATCH.main:
        return 0
    if not WATCH.tried:
        _install()
    WATCH.flag = 0
    return _FLAG


def surface() -> None:
    """Raise KeyboardInterrupt if Ctrl-C stopped the last call of the main thread; does nothing in other threads."""
    if threading.get_ident() != WATCH.main:
        return
    by, WATCH.flag = WATCH.flag, 0
    if by == _CTRL_C:
        raise KeyboardInterrupt  # Python's handler usually raised it already, on the way here


def cancel_main() -> None:
    """Ask the call that runs in the main thread to stop with a CancelledError, not with KeyboardInterrupt."""
    if WATCH.flag != _CTRL_C:
        WATCH.flag = _CANCELLED


def _install() -> None:
    """Start the watcher, unless other code has set a wake-up socket. Runs in the main thread, as set_wakeup_fd demands."""
    global _sockets
    WATCH.tried = 1
    import socket

    try:
        reader, writer = map(immortal, socket.socketpair())  # used until the process ends: the interpreter must not close them
        writer.setblocking(False)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            reader.close()
            writer.close()
            return
        _sockets = reader, writer
        threading.Thread(target=_watch, args=(reader,), name="pliant-interrupt", daemon=True).start()
    except (OSError, ValueError, RuntimeError):  # no sockets, a subinterpreter, no more threads: Ctrl-C then takes effect after the call
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
    """Close the sockets of the Ctrl-C watcher, and reset Python's wake-up socket if it is ours."""
    global _sockets
    if _sockets is None:
        return
    with contextlib.suppress(ValueError, OSError):
        present = signal.set_wakeup_fd(-1)
        if present != _sockets[1].fileno():
            signal.set_wakeup_fd(present)
    for end in _sockets:
        end.close()
    _sockets = None


def _after_fork() -> None:
    """Drop the parent's socket in a child: it must not write to it, and starts its own watcher when it needs one."""
    _forget()
    WATCH.tried, WATCH.main = 0, threading.get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
