"""Python's garbage collector during a compilation.

A compiler makes very many small objects that live until its end, and the collector looks at all of them again and again: up to a tenth
of the time of a compilation. Within `fewer_collections` it waits for a hundred thousand new objects each time, which bounds what
cycles may hold meanwhile.

    with fewer_collections():
        package = compile(...)
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECTS = 100_000


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Let the collector run seldom. It is a setting of the process: who finds it changed already leaves it to the one who did."""
    before = gc.get_threshold()
    if not 0 < before[0] < _OBJECTS:
        yield
        return
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
