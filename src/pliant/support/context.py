"""Scoped values of context variables, which are separate for each Python thread and task.

with assigned(WITHIN, 4):
    ...                     # WITHIN.get() is 4 here, and what it was before afterwards
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def assigned(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Sets a context variable inside the `with` block, and restores its value at the end."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
