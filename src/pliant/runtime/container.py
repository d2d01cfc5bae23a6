"""The file of an artifact: named sections, aligned, checksummed and mapped; what they mean is artifact.py's.

    with Writer("model.pliant") as w:
        w.add("program", "", text.encode())
        w.add("tensor", "0", array, dtype="f32", shape=[2, 3])
    c = read("model.pliant")
    c.find("program")[0].data               # a memoryview of the mapped file

A file is written under another name, synced, and renamed, so that whoever is interrupted leaves the old one. Bytes (little endian): a
head of 64 bytes (magic, version u32, zero u32, place and size u64 of the index, its sha256), the sections, each at a multiple of 64,
and at the very end the index as JSON: {"pliant": version of the writer, "sections": [{"kind", "name", "offset", "size", "sha256",
"facts"}, …]}. Sections of a kind that a reader does not know are left alone. A reader checks everything but the bytes of the
sections: those have checksums, which `Section.check` compares.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ..support.errors import ModelFileError
from ..support.record import dataclass

MAGIC = b"PLIANT\r\n"
VERSION = 1
ALIGNMENT = 64
_HEAD = struct.Struct("<8sIIQQ32s")
_INDEX_LIMIT = 256 << 20
_PIECE = 4 << 20  # bytes that are copied at once
_FIELDS = {"kind", "name", "offset", "size", "sha256", "facts"}
_KEYS = {"pliant", "sections"}


class Writer:
    """Writes a container; nothing stands under its name before all is written."""

    def __init__(self, path: str | os.PathLike[str], made_by: str = "") -> None:
        self.path = os.path.abspath(os.fspath(path))
        self._made_by = made_by
        self._sections: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        import tempfile

        folder, name = os.path.split(self.path)
        try:
            handle, self._temporary = tempfile.mkstemp(prefix=f".{name}-", suffix=".tmp", dir=folder)
        except OSError as problem:
            raise ModelFileError(f"cannot write {self.path}: {problem.strerror or problem}") from None
        self._file = os.fdopen(handle, "wb")
        self._file.write(bytes(_HEAD.size))
        return self

    def add(self, kind: str, name: str, data: Any, **facts: Any) -> None:
        """Adds a section: bytes, or anything with contiguous memory."""
        self._pad()
        view = memoryview(data).cast("B") if len(memoryview(data)) else memoryview(b"")
        begin, digest = self._file.tell(), hashlib.sha256(view).hexdigest()
        self._file.write(view)
        self._sections.append(
            {"kind": kind, "name": name, "offset": begin, "size": view.nbytes, "sha256": digest, "facts": facts}
        )  # fmt: skip

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                self._finish()
        except OSError as problem:
            raise ModelFileError(f"cannot write {self.path}: {problem.strerror or problem}") from None
        finally:
            self._file.close()
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)

    def _pad(self) -> None:
        self._file.write(bytes(-self._file.tell() % ALIGNMENT))

    def _finish(self) -> None:
        self._pad()
        index = json.dumps({"pliant": self._made_by, "sections": self._sections}, separators=(",", ":")).encode()
        place = self._file.tell()
        self._file.write(index)
        self._file.seek(0)
        self._file.write(_HEAD.pack(MAGIC, VERSION, 0, place, len(index), hashlib.sha256(index).digest()))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.chmod(self._temporary, 0o666 & ~_umask())
        os.replace(self._temporary, self.path)
        _sync_folder(os.path.dirname(self.path))


def _umask() -> int:
    """What new files may not be; the system tells it only while setting it."""
    found = os.umask(0o022)
    os.umask(found)
    return found


def _sync_folder(folder: str) -> None:
    """Has the new name survive a power cut, where a folder can be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@dataclass(frozen=True, slots=True)
class Section:
    """A section: its bytes in the mapped file, and what its writer said of it."""

    kind: str
    name: str
    facts: Mapping[str, Any]
    offset: int  # of its bytes in the file
    data: memoryview
    sha256: str
    file: str

    def check(self) -> memoryview:
        """The bytes, after a comparison with their checksum."""
        if hashlib.sha256(self.data).hexdigest() != self.sha256:
            raise broken(self.file, f"the bytes of its {self.kind}{' ' if self.name else ''}{shown(self.name)} have changed")
        return self.data


@dataclass(frozen=True, slots=True)
class Container:
    """A file that was read: its sections, in order."""

    file: str
    size: int
    version: int
    made_by: str
    sections: tuple[Section, ...]
    data: mmap.mmap

    def copied(self, begin: int, end: int) -> Any:
        """A part of the file as bytes in memory of their own, aligned as in the file; of the mapping, little is resident at any time."""
        import numpy as np

        memory = np.empty(end - begin + ALIGNMENT, np.uint8)  # numpy asks for large pages, which a file's memory does not have
        found = memory[(begin - memory.ctypes.data) % ALIGNMENT :][: end - begin]
        mapped = np.frombuffer(self.data, np.uint8)
        for at in range(begin - begin % _PIECE, end, _PIECE):
            first, last = max(at, begin), min(at + _PIECE, end)
            found[first - begin : last - begin] = mapped[first:last]
            if hasattr(mmap, "MADV_DONTNEED"):
                self.data.madvise(mmap.MADV_DONTNEED, at, last - at)
        return found

    def find(self, kind: str) -> list[Section]:
        """The sections of a kind, in order."""
        return [s for s in self.sections if s.kind == kind]


def read(path: str | os.PathLike[str]) -> Container:
    """The sections of a file, mapped; anything but the exact form is a `ModelFileError`."""
    file = os.fspath(path)
    try:
        with open(file, "rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            if size < _HEAD.size:
                raise broken(file, f"it has {size} bytes, its head alone has {_HEAD.size}")
            mapped = mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ)
    except OSError as problem:
        raise ModelFileError(f"cannot read {file}: {problem.strerror or problem}") from None
    magic, version, zero, place, length, digest = _HEAD.unpack_from(mapped)
    if magic != MAGIC:
        raise broken(file, "it does not begin as one")
    if version != VERSION:
        age = "a newer version of Pliant" if version > VERSION else "a version that never was"
        raise ModelFileError(
            f"{file} was made by {age}: its form is {version}, this Pliant reads {VERSION}",
            help="install a newer Pliant, or save the model again with this one",
        )
    if zero or not _HEAD.size <= place <= size or place + length != size or length > _INDEX_LIMIT:
        raise broken(file, f"its index of {length} bytes at {place} does not end with the file, which has {size} bytes")
    index = mapped[place:]
    if hashlib.sha256(index).digest() != digest:
        raise broken(file, "its index has changed")
    return _container(file, mapped, index, place)


def _container(file: str, mapped: mmap.mmap, index: bytes, end: int) -> Container:
    try:
        made = json.loads(index)
    except (ValueError, RecursionError):
        raise broken(file, "its index is not JSON") from None
    if not isinstance(made, dict) or set(made) != _KEYS or not isinstance(made["pliant"], str) or not isinstance(made["sections"], list):
        raise broken(file, "its index has not the fields of one")
    sections, data = [], memoryview(mapped)
    at = _HEAD.size
    for entry in made["sections"]:
        if not isinstance(entry, dict) or set(entry) != _FIELDS or not isinstance(entry["facts"], dict):
            raise broken(file, "a section is not described as one")
        kind, name, offset, size, digest = (entry[k] for k in ("kind", "name", "offset", "size", "sha256"))
        if not all(isinstance(t, str) for t in (kind, name, digest)) or type(offset) is not int or type(size) is not int:
            raise broken(file, "a section is not described as one")
        if size < 0 or offset < at or offset % ALIGNMENT or offset + size > end:
            raise broken(file, f"its {shown(kind)} {shown(name)} of {size} bytes at {offset} is not where a section can be")
        at = offset + size
        sections.append(Section(kind, name, entry["facts"], offset, data[offset:at], digest, file))
    return Container(file, len(data), VERSION, made["pliant"], tuple(sections), mapped)


def shown(text: str) -> str:
    """A text of the file, short enough to be shown."""
    return ascii(text)[1:-1][:60]


def broken(file: str, reason: str) -> ModelFileError:
    """The error for a file that is no artifact, or no longer one."""
    return ModelFileError(f"{file} is no usable .pliant file: {reason}")
