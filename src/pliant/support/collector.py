"""Reduces Python's garbage collection during a compilation.

A compiler makes very many small objects that live until its end, and the collector scans all of them again and again: up to a tenth of
the time of a compilation. Within `fewer_collections` it waits for a hundred thousand new objects each time, which bounds the memory that
cycles may hold meanwhile.

    with fewer_collections():
        package = compile(...)
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECTS = 100_000  # new objects between two collections


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Context manager: raises the garbage collector's threshold, and restores it at the end.

    It is a setting of the process, so a nested or concurrent use leaves it to the first one.
    """
    before = gc.get_threshold()
    if not 0 < before[0] < _OBJECTS:
        yield
        return
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
