"""Programs that are ready to run, kept on disk: machine code with its constants as it reads them.

    folder = KeptPrograms(cache.folder() / "ready")
    folder.keep("smollm2-f16", key, Kept(package, arrays, {"words": 49152}))
    folder.find("smollm2-f16", key)             # -> Kept, or None

A file is a container (container.py). It holds the whole key that it was kept under, so that what was made from another model, by another
compiler or for another machine is not found; a file of another form is not found either, and goes. Code and index are compared with their
checksums; the arrays, of which that would take longer than all the rest, are not: they were synced before the file got its name. Arrays
are copied into memory, which has large pages where the system gives them: a model decodes faster so. Only those that were mapped when they
were kept, a model's table of words say, of which few rows are read, are mapped again. The least recently used files go when the folder
grows over its bound, and a file that the disk has no room for is not written.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..support.errors import Error, ModelFileError
from . import container
from .package import Package

LIMIT = 16 << 30
_SPARE = 1 << 30  # bytes of the disk that are left free
_STALE = 3600.0  # seconds after which a temporary file is of a process that was killed
_KINDS = frozenset(f"{order}{kind}" for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1") for order in "<|")


class StoredProgram(NamedTuple):
    """A package, the arrays of its constants in their order, and what its owner wants to know of it."""

    package: Package
    constants: Sequence[Any]
    facts: Mapping[str, Any]


class ProgramStore:
    """A bounded folder of programs, shared between processes."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    def find(self, name: str, key: bytes) -> StoredProgram | None:
        """What was kept under this name, if it was under this very key."""
        path = self._path(name)
        if not path.exists():
            return None
        try:
            found = _read(path, key)
        except ModelFileError:
            _unlink(path)
            return None
        if found is not None:
            with contextlib.suppress(OSError):
                os.utime(path)
        return found

    def keep(self, name: str, key: bytes, program: StoredProgram) -> bool:
        """Keeps a program in place of what had its name; False where there is no room for it, or the folder cannot be written."""
        if program.package.interface.calls:
            return False  # addresses of this process are among its constants
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
        except (OSError, Error):
            return False
        self._bound()
        return True

    def files(self) -> list[Path]:
        """The files, least recently used first."""
        return [path for _, _, path in self._scan()]

    def size(self) -> int:
        """Bytes on disk."""
        return sum(size for _, size, _ in self._scan())

    def remove(self, prefix: str = "") -> int:
        """Removes what was kept under names that begin so; answers how many bytes that frees."""
        return sum(size for _, size, path in self._scan() if path.name.startswith(prefix) and _unlink(path))

    def sweep(self, unneeded: Callable[[Mapping[str, Any]], bool]) -> None:
        """Removes what is not needed any more, as its facts tell, and what is broken."""
        for path in self.files():
            try:
                facts = _only(container.read(path), "key").facts.get("facts")
            except ModelFileError:
                facts = None
            if not isinstance(facts, dict) or unneeded(facts):
                _unlink(path)

    def clear(self) -> None:
        """Removes every file."""
        self.remove()

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.ready"

    def _scan(self) -> list[tuple[float, int, Path]]:
        found: list[tuple[float, int, Path]] = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.folder):
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    if entry.name.endswith(".ready"):
                        found.append((status.st_mtime, status.st_size, Path(entry.path)))
                    elif entry.name.endswith(".tmp") and time.time() - status.st_mtime > _STALE:
                        os.unlink(entry.path)
        return sorted(found)

    def _bound(self) -> None:
        found = self._scan()
        total = sum(size for _, size, _ in found)
        for _, size, path in found[:-1]:  # the last is the one that was just written
            if total <= self.limit:
                return
            total -= size if _unlink(path) else 0


def _unique(arrays: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Each array once, those that are mapped behind the others, and the number of each constant's."""
    unique = sorted({id(a): a for a in arrays}.values(), key=_is_mapped)
    places = {id(a): number for number, a in enumerate(unique)}
    return unique, [places[id(a)] for a in arrays]


def _is_mapped(array: Any) -> bool:
    """Whether an array lies in a mapped file."""
    owner = array
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    return isinstance(owner, memoryview) and isinstance(owner.obj, mmap.mmap)


def _read(path: Path, key: bytes) -> StoredProgram | None:
    """What a file holds; None where it was kept under another key."""
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
    found = sections.find(kind)
    if len(found) != 1:
        raise container.broken(sections.file, f"it has {len(found)} sections of the kind {kind}")
    return found[0]


def _arrays(file: container.Container) -> list[Any]:
    """The arrays of a file: those to be copied, in one piece of memory, then those that are mapped."""
    import numpy as np

    found = file.find("array")
    begin, end = (found[0].offset, found[-1].offset + len(found[-1].data)) if found else (0, 0)
    whole = file.copied(begin, end)
    whole.flags.writeable = False
    copied = [_array(s, whole[s.offset - begin :][: len(s.data)]) for s in found]
    return copied + [_array(s, np.frombuffer(s.data, np.uint8)) for s in file.find("mapped")]


def _array(section: container.Section, data: Any) -> Any:
    """The array in the bytes of a section, in place."""
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
