"""Stopping a long computation of one thread from another thread, at places where nothing is half done.

with cancellable(event):        # in the thread of the computation
    ...
    stop_if_asked()             # raises Cancelled once another thread has set the event
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Cancelled(BaseException):
    """Raised in a thread that was asked to stop; no error, so nothing that handles errors catches it."""


class _Asked(threading.local):
    event: threading.Event | None = None


_asked = _Asked()


@contextmanager
def cancellable(event: threading.Event) -> Iterator[None]:
    """Context manager: `stop_if_asked` raises in this thread once the event is set."""
    before, _asked.event = _asked.event, event
    try:
        yield
    finally:
        _asked.event = before


def asked_to_stop() -> bool:
    """Returns True if this thread was asked to stop."""
    return _asked.event is not None and _asked.event.is_set()


def stop_if_asked() -> None:
    """Raises Cancelled if this thread was asked to stop."""
    if asked_to_stop():
        raise Cancelled


@contextmanager
def unwrapped_interrupts() -> Iterator[None]:
    """Lets Ctrl-C through as KeyboardInterrupt, also where it comes while a module of the compiler is imported.

    Until Python 3.12, what `__set_name__` raises while a class is made, such as a dataclass, becomes the cause of a RuntimeError.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise
