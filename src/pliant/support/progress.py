"""What a long compilation says while it works: to a function that the caller gave, or to a person.

    with listening(print, "yolo"):
        ...                             # calls print("yolo: kernel 37 of 91, 12 s, 9 s left"), now and then

A person at a terminal sees one line that changes. Elsewhere (a log file, a notebook), one line is written after 5 seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str], object]
PATIENCE = 5.0  # seconds without a word, where the output is no terminal
_STEPS: ContextVar[Callable[[int, int], None] | None] = ContextVar("pliant_progress", default=None)


@contextmanager
def telling(progress: Listener | bool | None) -> Iterator[Listener]:
    """Gives the function that says what is going on inside: `progress`; a line on stderr for True; silence for None and False."""
    say, done = for_people() if progress is True else (progress or _ignore, _nothing)
    try:
        yield say
    finally:
        done()


@contextmanager
def listening(progress: Listener | bool | None, what: str) -> Iterator[None]:
    """Sends the progress of what is compiled inside to a function; True is a line on stderr, None and False are silence."""
    if not progress:
        yield
        return
    begin = time.monotonic()
    with telling(progress) as say:

        def step(number: int, total: int) -> None:
            passed = time.monotonic() - begin
            left = passed / number * (total - number) if number else 0.0
            say(f"{what}: kernel {number + 1} of {total}, {passed:.0f} s" + (f", {left:.0f} s left" if number and passed >= 1 else ""))

        token = _STEPS.set(step)
        try:
            yield
        finally:
            _STEPS.reset(token)


def kernel_begins(number: int, total: int) -> None:
    """Tells the listener, if there is one, that a kernel of the program is next: `number` counts from 0."""
    step = _STEPS.get()
    if step is not None:
        step(number, total)


def for_people() -> tuple[Listener, Callable[[], None]]:
    """Returns a function that shows a text on stderr, and one that ends the display."""
    if sys.stderr.isatty():
        return _over_the_line, lambda: _over_the_line("")
    begin = time.monotonic()
    said: list[str] = []

    def once(text: str) -> None:
        if not said and time.monotonic() - begin >= PATIENCE:
            said.append(text)
            print(text, file=sys.stderr, flush=True)

    return once, _nothing


def _over_the_line(text: str) -> None:
    """Replaces the line of the terminal."""
    print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _nothing() -> None:
    pass


def _ignore(text: str) -> None:
    pass
