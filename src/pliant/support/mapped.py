"""Arrays that are parts of mapped files: whether they are, and giving back the memory of their pages.

    release = mapped_pages(arrays)      # the mappings that these arrays are views of
    release()                           # their pages leave memory; whoever reads them again gets them from the file

Pages of a mapped file count as memory of the process once they were read. A program that reads a large file once, from its beginning
to its end, gives them back on the way.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable
from typing import Any


def mapping_of(array: Any) -> mmap.mmap | None:
    """Return the mapped file that an array is a view of; None if it is in other memory."""
    owner = array
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    return owner.obj if isinstance(owner, memoryview) and isinstance(owner.obj, mmap.mmap) else None


def mapped_pages(arrays: Iterable[Any]) -> Callable[[], None] | None:
    """Return the function that drops the pages of all files that these arrays are views of; None if there are none.

    Only read-only mappings count: dropping a page of a private writable one would lose what was written to it.
    """
    if not hasattr(mmap, "MADV_DONTNEED"):
        return None
    mappings = {id(m): m for m in map(mapping_of, arrays) if m is not None and memoryview(m).readonly}
    if not mappings:
        return None

    def release() -> None:
        for mapping in mappings.values():
            mapping.madvise(mmap.MADV_DONTNEED)

    return release
