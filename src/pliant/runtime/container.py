"""Container format of `.pliant` files: named sections, aligned, checksummed and mapped with mmap. artifact.py gives them meaning.

    with Writer("model.pliant") as w:
        w.add("program", "", text.encode())
        w.add("tensor", "0", array, dtype="f32", shape=[2, 3])
    c = read("model.pliant")
    c.find("program")[0].data               # a memoryview of the mapped file
    c = parse(to_bytes(lambda w: w.add("program", "", text.encode())), "a name")    # the same in memory

A file is written under a temporary name, synced, and renamed, so an interrupted writer leaves the old file. Bytes (little endian): a
head of 64 bytes (magic, version u32, zero u32, offset and size u64 of the index, its sha256), the sections, each at a multiple of 64,
and at the very end the index as JSON: {"pliant": version of the writer, "sections": [{"kind", "name", "offset", "size", "sha256",
"facts"}, …]}. A reader ignores sections of an unknown kind. It checks everything but the bytes of the sections, which would read the
whole file: `Section.check` compares these with their checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import mmap
import os
import struct
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import IO, Any

from ..support.errors import ModelFileError
from ..support.record import dataclass

MAGIC = b"PLIANT\r\n"
VERSION = 1
ALIGNMENT = 64  # of sections: a cache line and the widest vector, so that mapped tensors are aligned
_HEAD = struct.Struct("<8sIIQQ32s")
_INDEX_LIMIT = 256 << 20  # bytes; a larger index is taken for a damaged or hostile file
_PIECE = 4 << 20  # bytes that `Container.copied` copies at once; a multiple of the page size, as madvise demands
_FIELDS = {"kind", "name", "offset", "size", "sha256", "facts"}
_KEYS = {"pliant", "sections"}


class Sections:
    """Writes the content of a `.pliant` file, section by section, to an open file or to memory."""

    def __init__(self, file: IO[bytes], made_by: str = "") -> None:
        self._file, self._made_by = file, made_by
        self._sections: list[dict[str, Any]] = []
        file.write(bytes(_HEAD.size))

    def add(self, kind: str, name: str, data: Any, **facts: Any) -> None:
        """Add a section, aligned: bytes, or any object with contiguous memory.

        The index gets its place, its SHA-256 and `facts`.
        """
        self._pad()
        view = memoryview(data).cast("B") if len(memoryview(data)) else memoryview(b"")
        begin, digest = self._file.tell(), hashlib.sha256(view).hexdigest()
        self._file.write(view)
        self._sections.append(
            {"kind": kind, "name": name, "offset": begin, "size": view.nbytes, "sha256": digest, "facts": facts}
        )  # fmt: skip

    def finish(self) -> None:
        """Write the index and the head; nothing can be added afterwards."""
        self._pad()
        index = json.dumps({"pliant": self._made_by, "sections": self._sections}, separators=(",", ":")).encode()
        place = self._file.tell()
        self._file.write(index)
        self._file.seek(0)
        self._file.write(_HEAD.pack(MAGIC, VERSION, 0, place, len(index), hashlib.sha256(index).digest()))

    def _pad(self) -> None:
        self._file.write(bytes(-self._file.tell() % ALIGNMENT))


def to_bytes(write: Callable[[Sections], None], made_by: str = "") -> bytes:
    """Return the content of a `.pliant` file, whose sections `write` adds, without a file; `parse` reads it."""
    memory = io.BytesIO()
    sections = Sections(memory, made_by)
    write(sections)
    sections.finish()
    return memory.getvalue()


class Writer:
    """Makes a `.pliant` file: `with` gives its sections. The file appears under its name only when it is complete."""

    def __init__(self, path: str | os.PathLike[str], made_by: str = "") -> None:
        self.path = os.path.abspath(os.fspath(path))
        self._made_by = made_by

    def __enter__(self) -> Sections:
        import tempfile

        folder, name = os.path.split(self.path)
        try:
            handle, self._temporary = tempfile.mkstemp(prefix=f".{name}-", suffix=".tmp", dir=folder)
        except OSError as problem:
            raise ModelFileError(f"cannot write {self.path}: {problem.strerror or problem}") from None
        self._file = os.fdopen(handle, "wb")
        self._sections = Sections(self._file, self._made_by)
        return self._sections

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

    def _finish(self) -> None:
        self._sections.finish()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.chmod(self._temporary, 0o666 & ~_umask())
        os.replace(self._temporary, self.path)
        _sync_folder(os.path.dirname(self.path))


def _umask() -> int:
    """Return the process's umask; the system tells it only while setting it."""
    umask = os.umask(0o022)
    os.umask(umask)
    return umask


def _sync_folder(folder: str) -> None:
    """Sync a folder, where the system can, so that the rename survives a power cut."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a `.pliant` file: its bytes in the mapped file, and the facts that its writer stored."""

    kind: str
    name: str
    facts: Mapping[str, Any]
    offset: int  # of its bytes in the file
    data: memoryview
    sha256: str
    file: str

    def check(self) -> memoryview:
        """Return the bytes; raises a ModelFileError if they differ from their checksum."""
        if hashlib.sha256(self.data).hexdigest() != self.sha256:
            raise broken(self.file, f"the bytes of its {self.kind}{' ' if self.name else ''}{shown(self.name)} have changed")
        return self.data


@dataclass(frozen=True, slots=True)
class Container:
    """A `.pliant` file, mapped or in memory, with its sections in order."""

    file: str
    size: int
    version: int
    made_by: str
    sections: tuple[Section, ...]
    data: mmap.mmap | None  # None if it is in memory

    def copied(self, begin: int, end: int) -> Any:
        """Copy a part of a mapped file into memory, aligned as in the file; drops the mapped pages it has copied, to save memory."""
        import numpy as np

        assert self.data is not None
        memory = np.empty(end - begin + ALIGNMENT, np.uint8)  # numpy requests huge pages, which file mappings do not get
        copy = memory[(begin - memory.ctypes.data) % ALIGNMENT :][: end - begin]
        mapped = np.frombuffer(self.data, np.uint8)
        for at in range(begin - begin % _PIECE, end, _PIECE):
            first, last = max(at, begin), min(at + _PIECE, end)
            copy[first - begin : last - begin] = mapped[first:last]
            if hasattr(mmap, "MADV_DONTNEED"):
                self.data.madvise(mmap.MADV_DONTNEED, at, last - at)
        return copy

    def find(self, kind: str) -> list[Section]:
        """Return all sections of a kind, in the order of the file."""
        return [s for s in self.sections if s.kind == kind]


def read(path: str | os.PathLike[str]) -> Container:
    """Map a file and return its sections; raises `ModelFileError` for anything but the exact format."""
    file = os.fspath(path)
    try:
        with open(file, "rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            if size < _HEAD.size:
                raise broken(file, f"it has {size} bytes, its head alone has {_HEAD.size}")
            mapped = mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ)
    except OSError as problem:
        raise ModelFileError(f"cannot read {file}: {problem.strerror or problem}") from None
    return _opened(file, mapped, mapped)


def parse(content: bytes, name: str) -> Container:
    """Return the sections of a `.pliant` file's content, each compared with its checksum; raises `ModelFileError` as `read` does.

    The bytes are copied to memory that is aligned as a mapped file is. `name` is what errors call it.
    """
    import numpy as np

    if len(content) < _HEAD.size:
        raise broken(name, f"it has {len(content)} bytes, its head alone has {_HEAD.size}")
    memory = np.empty(len(content) + ALIGNMENT, np.uint8)
    aligned = memory[-memory.ctypes.data % ALIGNMENT :][: len(content)]
    aligned[:] = np.frombuffer(content, np.uint8)
    made = _opened(name, aligned.data.toreadonly(), None)
    for section in made.sections:
        section.check()
    return made


def _opened(file: str, content: mmap.mmap | memoryview, mapped: mmap.mmap | None) -> Container:
    """Return the container of a content that has at least the bytes of a head; raises `ModelFileError` as `read` does."""
    size = len(content)
    magic, version, zero, place, length, digest = _HEAD.unpack_from(content)
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
    index = bytes(content[place:])
    if hashlib.sha256(index).digest() != digest:
        raise broken(file, "its index has changed")
    return _container(file, memoryview(content), mapped, index, place)


def _container(file: str, data: memoryview, mapped: mmap.mmap | None, index: bytes, end: int) -> Container:
    try:
        root = json.loads(index)
    except (ValueError, RecursionError):
        raise broken(file, "its index is not JSON") from None
    if not isinstance(root, dict) or set(root) != _KEYS or not isinstance(root["pliant"], str) or not isinstance(root["sections"], list):
        raise broken(file, "its index has not the fields of one")
    sections, at = [], _HEAD.size
    for entry in root["sections"]:
        if not isinstance(entry, dict) or set(entry) != _FIELDS or not isinstance(entry["facts"], dict):
            raise broken(file, "a section is not described as one")
        kind, name, offset, size, digest = (entry[k] for k in ("kind", "name", "offset", "size", "sha256"))
        if not all(isinstance(t, str) for t in (kind, name, digest)) or type(offset) is not int or type(size) is not int:
            raise broken(file, "a section is not described as one")
        if size < 0 or offset < at or offset % ALIGNMENT or offset + size > end:
            raise broken(file, f"its {shown(kind)} {shown(name)} of {size} bytes at {offset} is not where a section can be")
        at = offset + size
        sections.append(Section(kind, name, entry["facts"], offset, data[offset:at], digest, file))
    return Container(file, len(data), VERSION, root["pliant"], tuple(sections), mapped)


def shown(text: str) -> str:
    """Return a text from the file, escaped and short enough for an error message."""
    return ascii(text)[1:-1][:60]


def broken(file: str, reason: str) -> ModelFileError:
    """Return the error for a `.pliant` file that is damaged or none."""
    return ModelFileError(f"{file} is no usable .pliant file: {reason}")
