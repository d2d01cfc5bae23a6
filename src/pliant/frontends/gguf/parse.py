"""Parses one GGUF file: header, metadata and tensor table. Every length and offset is checked before it is used.

    magic "GGUF", version u32 (2 or 3), tensors u64, pairs u64, the pairs (key, type, value), the table (name, dims, type, offset),
    padding to `general.alignment`, the data

A file that is malformed or exceeds the limits below raises a ModelFileError with the problem and the byte offset. Items are read one
by one, so memory use is bounded by the size of the file, whatever the counts in it say.

    parse(data, "model.gguf") -> Parsed(version, metadata, entries)
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ...quantization.formats import FORMATS, RETIRED, Format
from ...support.errors import ModelFileError
from ...support.record import dataclass

# Limits against malicious files, far above what real models have.
MAX_PAIRS = 65_536
MAX_TENSORS = 65_536
MAX_STRING = 16 << 20
MAX_KEY = 65_535
MAX_NAME = 256
MAX_ELEMENTS = 1 << 27
MAX_DIM = (1 << 31) - 1

Buffer = bytes | mmap.mmap
Value = bool | int | float | str | list[str] | NDArray[Any]

_STRING, _ARRAY = 8, 9
# type -> (name, struct and numpy letter, bytes)
_NUMBERS = {
    0: ("u8", "B", 1),
    1: ("i8", "b", 1),
    2: ("u16", "H", 2),
    3: ("i16", "h", 2),
    4: ("u32", "I", 4),
    5: ("i32", "i", 4),
    6: ("f32", "f", 4),
    7: ("bool", "?", 1),
    10: ("u64", "Q", 8),
    11: ("i64", "q", 8),
    12: ("f64", "d", 8),
}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of a tensor of a GGUF file: name, format, shape (outermost dim first), and size and absolute offset of its data in bytes."""

    name: str
    format: Format
    shape: tuple[int, ...]
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """The parsed header of a GGUF file: version, metadata and tensor table, without tensor data."""

    version: int
    metadata: dict[str, Value]
    entries: list[Entry]


class Cursor:
    """A read position in the file; every read is bounds-checked and raises at the end of the file."""

    def __init__(self, data: Buffer, name: str) -> None:
        self.data = data
        self.name = name
        self.at = 0
        self.end = len(data)

    def refuse(self, what: str, at: int | None = None) -> NoReturn:
        """Raises the ModelFileError for a malformed GGUF file, with the byte position."""
        raise ModelFileError(f"gguf: {what}", facts=[f"file `{self.name}`, byte {self.at if at is None else at} of {self.end}"])

    def take(self, size: int, what: str) -> int:
        """Advances over the next `size` bytes and returns their offset; raises ModelFileError at the end of the file."""
        if size > self.end - self.at:
            self.refuse(f"the file ends within {what}: {size} bytes are needed, {self.end - self.at} are there")
        at = self.at
        self.at += size
        return at

    def u32(self, what: str) -> int:
        """Reads a 32-bit unsigned integer."""
        number: int = _U32.unpack_from(self.data, self.take(4, what))[0]
        return number

    def u64(self, what: str, limit: int) -> int:
        """Reads a 64-bit unsigned integer; raises if it exceeds `limit`."""
        number: int = _U64.unpack_from(self.data, self.take(8, what))[0]
        if number > limit:
            self.refuse(f"{what} is {number}, more than the limit of {limit}", self.at - 8)
        return number

    def text(self, what: str, limit: int) -> str:
        """Reads a string of at most `limit` bytes; raises ModelFileError if it is longer or not UTF-8."""
        size = self.u64(f"the length of {what}", limit)
        at = self.take(size, what)
        try:
            return self.data[at : at + size].decode()
        except UnicodeDecodeError:
            self.refuse(f"{what} is not UTF-8", at)


def parse(data: Buffer, name: str) -> Parsed:
    """Parses the header of a GGUF file: metadata and tensor table, without reading the tensor data.

    Raises ModelFileError if it is malformed.
    """
    cursor = Cursor(data, name)
    version = _version(cursor)
    tensors = cursor.u64("the number of tensors", MAX_TENSORS)
    pairs = cursor.u64("the number of metadata pairs", MAX_PAIRS)
    metadata: dict[str, Value] = {}
    for _ in range(pairs):
        at = cursor.at
        key = cursor.text("a metadata key", MAX_KEY)
        if not key or key in metadata:
            cursor.refuse(f"the metadata key `{shown(key)}` appears twice" if key else "a metadata key is empty", at)
        metadata[key] = _value(cursor, f"`{shown(key)}`")
    rows = [_row(cursor) for _ in range(tensors)]
    return Parsed(version, metadata, _place(cursor, rows, _alignment(cursor, metadata)))


def shown(text: str, limit: int = 80) -> str:
    """A string of the file for messages: truncated, and without newlines or terminal control characters."""
    plain = "".join(c if c.isprintable() else "?" for c in text[:limit])
    return plain + ("…" if len(text) > limit else "")


def _version(cursor: Cursor) -> int:
    """Reads the magic number and the version; raises if the file is not GGUF of version 2 or 3, little-endian."""
    at = cursor.take(4, "the magic number")
    if cursor.data[at : at + 4] != b"GGUF":
        cursor.refuse("this is not a GGUF file: it does not begin with `GGUF`", at)
    version = cursor.u32("the version")
    if version & 0xFFFF == 0 and version:
        cursor.refuse("this file is for big-endian machines; it has to be converted again for little-endian ones", 4)
    if version not in (2, 3):
        cursor.refuse(f"version {version} is not supported; versions 2 and 3 are", 4)
    return version


def _value(cursor: Cursor, what: str) -> Value:
    """Reads the type and value of a metadata pair; raises ModelFileError for an unknown type."""
    kind = cursor.u32(f"the type of {what}")
    if kind == _STRING:
        return _string(cursor, what)
    if kind == _ARRAY:
        return _array(cursor, what)
    if kind not in _NUMBERS:
        cursor.refuse(f"the value of {what} has the unknown type {kind}", cursor.at - 4)
    _, letter, size = _NUMBERS[kind]
    at = cursor.take(size, f"the value of {what}")
    if letter == "?" and cursor.data[at] > 1:
        cursor.refuse(f"the value of {what} is {cursor.data[at]}, where a bool is 0 or 1", at)
    value: Value = struct.unpack_from(f"<{letter}", cursor.data, at)[0]
    return value


def _string(cursor: Cursor, what: str) -> str:
    """Reads a string value. Bytes that are not UTF-8 become surrogates, because vocabularies contain partial characters."""
    size = cursor.u64(f"the length of {what}", MAX_STRING)
    at = cursor.take(size, f"the value of {what}")
    return cursor.data[at : at + size].decode(errors="surrogateescape")


def _array(cursor: Cursor, what: str) -> list[str] | NDArray[Any]:
    """Reads an array value: a list of strings, or a numpy view of the file. Raises ModelFileError for arrays of arrays."""
    kind = cursor.u32(f"the type of the elements of {what}")
    if kind == _ARRAY:
        cursor.refuse(f"{what} is an array of arrays, which is not supported", cursor.at - 4)
    if kind != _STRING and kind not in _NUMBERS:
        cursor.refuse(f"the elements of {what} have the unknown type {kind}", cursor.at - 4)
    count = cursor.u64(f"the number of elements of {what}", MAX_ELEMENTS)
    if kind == _STRING:
        return _strings(cursor, count, what)
    _, letter, size = _NUMBERS[kind]
    at = cursor.take(count * size, f"the {count} elements of {what}")
    numbers: NDArray[Any] = np.frombuffer(cursor.data, np.dtype(letter).newbyteorder("<"), count, at) if count else np.empty(0, letter)
    if letter == "?" and numbers.view(np.uint8).max(initial=0) > 1:
        cursor.refuse(f"an element of {what} is neither 0 nor 1, where bools are", at)
    return numbers


def _strings(cursor: Cursor, count: int, what: str) -> list[str]:
    """Reads the elements of a string array; bytes that are not UTF-8 become surrogates. Raises ModelFileError at the end of the file."""
    if count * 8 > cursor.end - cursor.at:
        cursor.refuse(f"{what} is said to have {count} strings, more than there are bytes for")
    strings: list[str] = []
    # Vocabularies have up to 256,000 strings, so this loop inlines the cursor's checks.
    data, at, end, length = cursor.data, cursor.at, cursor.end, _U64.unpack_from
    keep: Callable[[str], None] = strings.append
    for _ in range(count):
        if end - at < 8:
            cursor.refuse(f"the file ends within {what}", at)
        size = length(data, at)[0]
        at += 8
        if size > MAX_STRING or size > end - at:
            cursor.refuse(f"a string of {what} is said to have {size} bytes, {end - at} are left", at - 8)
        keep(data[at : at + size].decode("utf-8", "surrogateescape"))
        at += size
    cursor.at = at
    return strings


def _alignment(cursor: Cursor, metadata: dict[str, Value]) -> int:
    """The alignment of tensor data, from the metadata or the default; raises if it is not a power of two in range."""
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or isinstance(value, bool) or not 8 <= value <= 65_536 or value & (value - 1):
        cursor.refuse("`general.alignment` is not a power of two from 8 to 65536")
    return value


def _row(cursor: Cursor) -> tuple[str, Format, tuple[int, ...], int, int]:
    """Reads a row of the tensor table: name, format, shape, size and offset of the data.

    Raises ModelFileError for an unknown format and sizes out of range. The offset is checked later.
    """
    at = cursor.at
    name = cursor.text("a tensor's name", MAX_NAME)
    what = f"tensor `{shown(name)}`"
    if not name:
        cursor.refuse("a tensor has no name", at)
    rank = cursor.u32(f"the number of dims of {what}")
    if not 1 <= rank <= 4:
        cursor.refuse(f"{what} has {rank} dims, where 1 to 4 are allowed", cursor.at - 4)
    dims = [cursor.u64(f"a dim of {what}", MAX_DIM) for _ in range(rank)]
    if 0 in dims:
        cursor.refuse(f"a dim of {what} is 0", at)
    number = cursor.u32(f"the type of {what}")
    format = FORMATS.get(number)
    if format is None:
        known = f"type {RETIRED[number]}, which files do not hold" if number in RETIRED else f"unknown type {number}"
        cursor.refuse(f"{what} has the {known}", cursor.at - 4)
    if dims[0] % format.length:
        cursor.refuse(f"rows of {what} have {dims[0]} elements, which are not whole blocks of {format.name} ({format.length} elements)", at)
    size = dims[0] // format.length * format.size
    for dim in dims[1:]:
        size *= dim
    offset = cursor.u64(f"the offset of {what}", 1 << 62)
    return name, format, tuple(reversed(dims)), size, offset


def _place(cursor: Cursor, rows: list[tuple[str, Format, tuple[int, ...], int, int]], alignment: int) -> list[Entry]:
    """Converts the rows to entries with absolute offsets; raises if one is outside the file, misaligned or overlaps another."""
    base = -(-cursor.at // alignment) * alignment
    entries = []
    seen: set[str] = set()
    for name, format, shape, size, offset in rows:
        what = f"tensor `{shown(name)}`"
        if name in seen:
            cursor.refuse(f"{what} appears twice")
        seen.add(name)
        if offset % alignment:
            cursor.refuse(f"the offset {offset} of {what} is not a multiple of the alignment {alignment}")
        if base + offset + size > cursor.end:
            cursor.refuse(f"the data of {what} ends at byte {base + offset + size}, behind the end of the file")
        entries.append(Entry(name, format, shape, base + offset, size))
    _check_apart(cursor, entries)
    return entries


def _check_apart(cursor: Cursor, entries: list[Entry]) -> None:
    """Raises if the data of two tensors overlap."""
    last: Entry | None = None
    for entry in sorted(entries, key=lambda e: e.start):
        if last is not None and entry.start < last.start + last.size:
            cursor.refuse(f"the data of tensors `{shown(last.name)}` and `{shown(entry.name)}` overlap", entry.start)
        last = entry
