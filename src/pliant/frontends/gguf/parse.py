"""The bytes of one GGUF file taken apart: header, metadata, table of tensors; every length and offset is checked before it is used.

    magic "GGUF", version u32 (2 or 3), tensors u64, pairs u64, the pairs (key, type, value), the table (name, dims, type, offset),
    padding to `general.alignment`, the data

The limits are those of the module's head; a file that breaks a rule is a ModelFileError that names what is wrong and the byte where it is.
Strings and numbers are taken out one by one, so what is held is bounded by the file's own size, whatever its counts say.

    parse(data, "model.gguf") -> Parsed(version, metadata, tensors)
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
    """A row of the table of tensors: dims outermost first, and the bytes of the data in the file."""

    name: str
    format: Format
    shape: tuple[int, ...]
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """What one file holds."""

    version: int
    metadata: dict[str, Value]
    entries: list[Entry]


class Cursor:
    """A place in the file that moves forward; what it reads lies inside of the file, or an error says that it does not."""

    def __init__(self, data: Buffer, name: str) -> None:
        self.data = data
        self.name = name
        self.at = 0
        self.end = len(data)

    def refuse(self, what: str, at: int | None = None) -> NoReturn:
        """Raises the error for a broken file."""
        raise ModelFileError(f"gguf: {what}", facts=[f"file `{self.name}`, byte {self.at if at is None else at} of {self.end}"])

    def take(self, size: int, what: str) -> int:
        """The place of the next `size` bytes, which are stepped over."""
        if size > self.end - self.at:
            self.refuse(f"the file ends within {what}: {size} bytes are needed, {self.end - self.at} are there")
        at = self.at
        self.at += size
        return at

    def u32(self, what: str) -> int:
        """The next number of 32 bits."""
        found: int = _U32.unpack_from(self.data, self.take(4, what))[0]
        return found

    def u64(self, what: str, limit: int) -> int:
        """The next number of 64 bits, at most `limit`."""
        found: int = _U64.unpack_from(self.data, self.take(8, what))[0]
        if found > limit:
            self.refuse(f"{what} is {found}, more than the limit of {limit}", self.at - 8)
        return found

    def text(self, what: str, limit: int) -> str:
        """The next string, which must be UTF-8."""
        size = self.u64(f"the length of {what}", limit)
        at = self.take(size, what)
        try:
            return self.data[at : at + size].decode()
        except UnicodeDecodeError:
            self.refuse(f"{what} is not UTF-8", at)


def parse(data: Buffer, name: str) -> Parsed:
    """Takes a file apart; nothing of the tensors' data is read."""
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
    """What a file says, fit for a message: short, on one line, nothing that moves a terminal."""
    plain = "".join(c if c.isprintable() else "?" for c in text[:limit])
    return plain + ("…" if len(text) > limit else "")


def _version(cursor: Cursor) -> int:
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
    found: Value = struct.unpack_from(f"<{letter}", cursor.data, at)[0]
    return found


def _string(cursor: Cursor, what: str) -> str:
    """A value: bytes that are no UTF-8 are kept as surrogates, because vocabularies hold such."""
    size = cursor.u64(f"the length of {what}", MAX_STRING)
    at = cursor.take(size, f"the value of {what}")
    return cursor.data[at : at + size].decode(errors="surrogateescape")


def _array(cursor: Cursor, what: str) -> list[str] | NDArray[Any]:
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
    found: NDArray[Any] = np.frombuffer(cursor.data, np.dtype(letter).newbyteorder("<"), count, at) if count else np.empty(0, letter)
    if letter == "?" and found.view(np.uint8).max(initial=0) > 1:
        cursor.refuse(f"an element of {what} is neither 0 nor 1, where bools are", at)
    return found


def _strings(cursor: Cursor, count: int, what: str) -> list[str]:
    if count * 8 > cursor.end - cursor.at:
        cursor.refuse(f"{what} is said to have {count} strings, more than there are bytes for")
    found: list[str] = []
    # vocabularies have a quarter of a million strings, so this loop does without the cursor
    data, at, end, length = cursor.data, cursor.at, cursor.end, _U64.unpack_from
    keep: Callable[[str], None] = found.append
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
    return found


def _alignment(cursor: Cursor, metadata: dict[str, Value]) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or isinstance(value, bool) or not 8 <= value <= 65_536 or value & (value - 1):
        cursor.refuse("`general.alignment` is not a power of two from 8 to 65536")
    return value


def _row(cursor: Cursor) -> tuple[str, Format, tuple[int, ...], int, int]:
    """A row of the table: name, type, dims, bytes of data, offset of the data; the offset is not checked yet."""
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
    """The table with places in the file, each inside of it and none over another."""
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
    last: Entry | None = None
    for entry in sorted(entries, key=lambda e: e.start):
        if last is not None and entry.start < last.start + last.size:
            cursor.refuse(f"the data of tensors `{shown(last.name)}` and `{shown(entry.name)}` overlap", entry.start)
        last = entry
