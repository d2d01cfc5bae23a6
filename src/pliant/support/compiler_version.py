"""The version of the compiler, by which caches tell code of this compiler from code of another one."""

from __future__ import annotations

import functools
import hashlib
import os

ROOT = os.path.dirname(os.path.dirname(__file__))  # of the package
SOURCES = (".py", ".h", ".ll")


@functools.cache
def compiler_version() -> str:
    """A hash over the sizes and modification times of the compiler's source files.

    Whoever edits a file gets another version, so that no code of an older compiler is taken from a cache. Reading the files themselves
    would take ten times as long, at every start.
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
