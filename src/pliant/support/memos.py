"""What a compilation remembers for its own speed, and forgets at its end: memos that live as long as the process.

    @remembered(maxsize=16)
    def index(root): ...            # as functools.lru_cache, and empty again after each compilation

    when_forgetting(EMPTY.forget)   # for memos of another form
    forget()                        # at the end of a compilation

Their keys are parts of the program that was compiled, which no later one has; kept, they would hold all of it in memory. Forgetting is
safe at any moment, in any thread: whoever is in the middle of something finds it out again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_clears: list[Callable[[], object]] = []


def when_forgetting(clear: F) -> F:
    """Has a memo cleared at the end of each compilation."""
    _clears.append(clear)
    return clear


def remembered(maxsize: int) -> Callable[[F], F]:
    """A function of hashable arguments with a memo of its latest results."""

    def wrap(fn: F) -> F:
        made = lru_cache(maxsize=maxsize)(fn)
        when_forgetting(made.cache_clear)
        return cast(F, made)

    return wrap


def forget() -> None:
    """Empties all memos."""
    for clear in reversed(_clears):  # what others are made of was told first, and goes last
        clear()
