"""Memos of a compilation: process-wide caches that are cleared at its end.

    @remembered(maxsize=16)
    def index(root): ...            # as functools.lru_cache, and empty again after each compilation

    when_forgetting(EMPTY.forget)   # for memos of another form
    forget()                        # at the end of a compilation

Their keys are parts of the compiled program, which no later program contains; without clearing they would keep all of it in memory.
Clearing is safe at any time and in any thread: a running computation recomputes what it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_clears: list[Callable[[], object]] = []  # in the order of registration


def when_forgetting(clear: F) -> F:
    """Decorator: registers a function that clears a memo at the end of each compilation."""
    _clears.append(clear)
    return clear


def remembered(maxsize: int) -> Callable[[F], F]:
    """Decorator: memoizes the latest `maxsize` results of a function of hashable arguments, until `forget`."""

    def wrap(fn: F) -> F:
        memoized = lru_cache(maxsize=maxsize)(fn)
        when_forgetting(memoized.cache_clear)
        return cast(F, memoized)

    return wrap


def forget() -> None:
    """Clears all memos, at the end of a compilation."""
    for clear in reversed(_clears):  # in reverse order of registration: memos that others build on are registered first
        clear()
