"""Store of ready-to-run programs on disk: machine code with its constants (weights) in the layouts that it reads.

    store = ProgramStore(code_cache.folder() / "ready")
    store.keep("smollm2-f16", key, StoredProgram(package, arrays, {"words": 49152}))
    store.find("smollm2-f16", key)             # -> StoredProgram, or None

A file is a container (container.py). It holds the whole key, so that a program from another model, another compiler or for another
machine is a miss. A file of another format is a miss too, and is removed. Code and index are compared with their checksums. The arrays
are not: that would take longer than all the rest, and they were synced before the file got its name. Arrays are copied into memory,
where the system can use huge pages, because a model decodes faster that way. Only arrays that were mapped when they were stored are mapped
again, for example a model's embedding table, of which few rows are read. When the folder grows over its limit, the least recently used
files are removed. A file that does not fit on the disk is not written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..support.errors import Error, ModelFileError
from ..support.mapped import mapped_pages, mapping_of
from . import container
from .package import Package

LIMIT = 16 << 30  # bytes on disk
_SPARE = 1 << 30  # bytes of the disk that stay free
_STALE = 3600.0  # seconds after which a temporary file is taken for one of a killed process
_KINDS = frozenset(f"{order}{kind}" for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1") for order in "<|")


class StoredProgram(NamedTuple):
    """A record of a stored program: its package, the arrays of its constants in order, and facts that its owner stored with it."""

    package: Package
    constants: Sequence[Any]
    facts: Mapping[str, Any]


class ProgramStore:
    """A folder of compiled programs with their weights, ready to run; limited in size, shared between processes."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    def find(self, name: str, key: bytes) -> StoredProgram | None:
        """Return the program stored under this name and mark it as used; None if there is none or its key differs.

        A damaged file is removed.
        """
        path = self._path(name)
        if not path.exists():
            return None
        try:
            program = _read(path, key)
        except ModelFileError:
            _unlink(path)
            return None
        if program is not None:
            with contextlib.suppress(OSError):
                os.utime(path)
        return program

    def keep(self, name: str, key: bytes, program: StoredProgram) -> bool:
        """Store a program, replacing one of the same name; returns False if it was not stored.

        That is so if there is no room for it, if the folder cannot be written, if it calls functions outside of compiled code, and if a
        constant has a dtype that files do not hold. Pages of mapped constants are given back to the system once they are written.
        """
        if program.package.interface.calls:
            return False  # its constants contain addresses of this process
        arrays, numbers = _unique(program.constants)
        size = sum(a.nbytes for a in arrays)
        if not all(a.dtype.str in _KINDS for a in arrays):
            return False
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if size > self.limit or shutil.disk_usage(self.folder).free < size + _SPARE:
                return False
            with container.Writer(self._path(name)) as w:
                w.add("key", "", key, numbers=numbers, facts=dict(program.facts))
                w.add("code", "", program.package.to_bytes())
                for number, array in enumerate(arrays):
                    kind = "mapped" if _is_mapped(array) else "array"
                    w.add(kind, str(number), array.reshape(-1).view("u1"), dtype=array.dtype.str, shape=list(array.shape))
                    if (release := mapped_pages([array])) is not None:
                        release()
        except (OSError, Error):
            return False
        self._bound()
        return True

    def files(self) -> list[Path]:
        """Return the files of the store, least recently used first."""
        return [path for _, _, path in self._scan()]

    def size(self) -> int:
        """Return the total size of the store's files in bytes."""
        return sum(size for _, size, _ in self._scan())

    def remove(self, prefix: str = "") -> int:
        """Remove the programs whose names begin with `prefix`; returns the number of freed bytes."""
        return sum(size for _, size, path in self._scan() if path.name.startswith(prefix) and _unlink(path))

    def sweep(self, unneeded: Callable[[Mapping[str, Any]], bool]) -> None:
        """Remove the programs for whose facts `unneeded` is true, and damaged files."""
        for path in self.files():
            try:
                facts = _only(container.read(path), "key").facts.get("facts")
            except ModelFileError:
                facts = None
            if not isinstance(facts, dict) or unneeded(facts):
                _unlink(path)

    def clear(self) -> None:
        """Remove every file of the store."""
        self.remove()

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.ready"

    def _scan(self) -> list[tuple[float, int, Path]]:
        files: list[tuple[float, int, Path]] = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.folder):
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    if entry.name.endswith(".ready"):
                        files.append((status.st_mtime, status.st_size, Path(entry.path)))
                    elif entry.name.endswith(".tmp") and time.time() - status.st_mtime > _STALE:
                        os.unlink(entry.path)
        return sorted(files)

    def _bound(self) -> None:
        files = self._scan()
        total = sum(size for _, size, _ in files)
        for _, size, path in files[:-1]:  # the last one was just written
            if total <= self.limit:
                return
            total -= size if _unlink(path) else 0


def _unique(arrays: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Return each distinct array once, mapped ones last, and for each constant the index of its array."""
    unique = sorted({id(a): a for a in arrays}.values(), key=_is_mapped)
    places = {id(a): number for number, a in enumerate(unique)}
    return unique, [places[id(a)] for a in arrays]


def _is_mapped(array: Any) -> bool:
    """True if an array is part of a mapped file."""
    return mapping_of(array) is not None


def _read(path: Path, key: bytes) -> StoredProgram | None:
    """Read a file; returns None if it was stored under another key, raises `ModelFileError` if it is damaged."""
    sections = container.read(path)
    held, code = (_only(sections, kind) for kind in ("key", "code"))
    if held.data != key:
        return None
    arrays = _arrays(sections)
    numbers, facts = held.facts.get("numbers"), held.facts.get("facts")
    if not isinstance(numbers, list) or not isinstance(facts, dict) or not all(type(n) is int and 0 <= n < len(arrays) for n in numbers):
        raise container.broken(str(path), "its constants are not those of a program")
    package = Package.from_bytes(bytes(code.check()))
    if [arrays[n].nbytes for n in numbers] != [c.size for c in package.interface.constants]:
        raise container.broken(str(path), "its constants are not those of its code")
    return StoredProgram(package, [arrays[n] for n in numbers], facts)


def _only(sections: container.Container, kind: str) -> container.Section:
    matching = sections.find(kind)
    if len(matching) != 1:
        raise container.broken(sections.file, f"it has {len(matching)} sections of the kind {kind}")
    return matching[0]


def _arrays(file: container.Container) -> list[Any]:
    """Return the arrays of a file: first those that are copied, into one piece of memory, then the mapped ones."""
    import numpy as np

    stored = file.find("array")
    begin, end = (stored[0].offset, stored[-1].offset + len(stored[-1].data)) if stored else (0, 0)
    whole = file.copied(begin, end)
    whole.flags.writeable = False
    copied = [_array(s, whole[s.offset - begin :][: len(s.data)]) for s in stored]
    return copied + [_array(s, np.frombuffer(s.data, np.uint8)) for s in file.find("mapped")]


def _array(section: container.Section, data: Any) -> Any:
    """Return the array that a section's facts describe, over the given bytes, without a copy; raises `ModelFileError`."""
    kind, shape = section.facts.get("dtype"), section.facts.get("shape")
    if kind not in _KINDS or not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise container.broken(section.file, f"array {container.shown(section.name)} is not described as one")
    try:
        return data.view(kind).reshape(shape)
    except ValueError:
        raise container.broken(section.file, f"array {container.shown(section.name)} has not the bytes of its shape") from None


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
