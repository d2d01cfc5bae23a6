"""The version of the compiler, a hash that is part of the key of every cache of compiled code."""

from __future__ import annotations

import functools
import hashlib
import os

ROOT = os.path.dirname(os.path.dirname(__file__))  # the package's folder
SOURCES = (".py", ".h", ".ll")  # files that generated code depends on


@functools.cache
def compiler_version() -> str:
    """Returns a hash over the sizes and modification times of the compiler's source files; part of the cache key.

    Editing a file changes the version, so that a cache never returns code of an older compiler. Hashing the contents would take ten times
    as long, at every start.
    """
    files: list[tuple[str, int, int]] = []
    folders = [ROOT]
    while folders:
        for entry in os.scandir(folders.pop()):
            if entry.is_dir() and entry.name != "__pycache__":
                folders.append(entry.path)
            elif entry.name.endswith(SOURCES):
                status = entry.stat()
                files.append((entry.path[len(ROOT) :], status.st_size, status.st_mtime_ns))
    return hashlib.sha256(repr(sorted(files)).encode()).hexdigest()
