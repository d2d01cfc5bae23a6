"""Writes a blob as ELF files, without a linker: a relocatable object and a shared library.

    shared_library(blob, "x86_64", {"model_run": blob.exports["run"]}, "libmodel.so")

A blob has no relocations, no undefined symbols and no writable data, so both files are its code, a symbol table, and headers. The
library's segments begin at multiples of 16 KiB, the largest page size of the supported systems (Android demands it). Numbers are
those of the ELF specification.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from ..runtime.blob import Blob
from ..support.record import dataclass
from ..target import Target

PAGE = 16384
MACHINES = {"x86_64": (62, 0), "aarch64": (183, 0), "riscv64": (243, 5)}  # e_machine, e_flags (RVC, double-float ABI)
_CODE_ALIGNMENT = 4096  # a blob is mapped at a page boundary, and its code may rely on it
_REL, _DYN = 1, 3
_PROGBITS, _SYMTAB, _STRTAB, _HASH, _DYNAMIC, _DYNSYM = 1, 2, 3, 5, 6, 11
_WRITE, _ALLOC, _EXEC = 1, 2, 4
_GLOBAL_FUNCTION = 1 << 4 | 2
_READ_SEGMENT, _CODE_SEGMENT, _DATA_SEGMENT = 4, 5, 6  # read; read and execute; read and write
_DYNAMIC_BYTES = 7 * 16


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    type: int
    content: bytes
    flags: int = 0
    link: int = 0
    info: int = 0
    entry: int = 0
    alignment: int = 1


class _Strings:
    """An ELF string table under construction."""

    def __init__(self) -> None:
        self.content = b"\0"

    def add(self, text: str) -> int:
        """Append a string; returns its offset in the table."""
        at = len(self.content)
        self.content += text.encode() + b"\0"
        return at


def library_files(blob: Blob, machine: Target, symbols: Mapping[str, int], name: str) -> dict[str, bytes]:
    """Return an object that exports `symbols` (name -> offset in the blob), and a shared library unless the target has no system."""
    files = {f"{name}.o": object_file(blob, machine.arch, symbols)}
    if machine.os != "none":
        files[f"lib{name}.so"] = shared_library(blob, machine.arch, symbols, f"lib{name}.so")
    return files


def object_file(blob: Blob, arch: str, symbols: Mapping[str, int]) -> bytes:
    """Return a relocatable object whose global functions are `symbols` (name -> offset in the blob)."""
    strings = _Strings()
    table = bytes(24) + b"".join(_symbol(strings.add(name), 1, at) for name, at in symbols.items())
    sections = [
        _Section(".text", _PROGBITS, blob.code, _ALLOC | _EXEC, alignment=_CODE_ALIGNMENT),
        _Section(".symtab", _SYMTAB, table, link=3, info=1, entry=24, alignment=8),  # info: one local symbol, the empty one
        _Section(".strtab", _STRTAB, strings.content),
        _Section(".note.GNU-stack", _PROGBITS, b""),  # its presence says that the stack need not be executable
    ]
    return _file(_REL, arch, sections, [])


def shared_library(blob: Blob, arch: str, symbols: Mapping[str, int], soname: str) -> bytes:
    """Return a shared library that exports `symbols` (name -> offset in the blob), without dependencies."""
    strings = _Strings()
    own_name = strings.add(soname)
    names = {name: strings.add(name) for name in symbols}
    hashes = _hash_table(list(symbols))

    def sections(table: bytes, dynamic: bytes) -> list[_Section]:
        return [
            _Section(".dynsym", _DYNSYM, table, _ALLOC, link=2, info=1, entry=24, alignment=8),
            _Section(".dynstr", _STRTAB, strings.content, _ALLOC),
            _Section(".hash", _HASH, hashes, _ALLOC, link=1, entry=4, alignment=8),
            _Section(".text", _PROGBITS, blob.code, _ALLOC | _EXEC, alignment=PAGE),
            _Section(".dynamic", _DYNAMIC, dynamic, _ALLOC | _WRITE, link=2, entry=16, alignment=PAGE),
        ]

    # Sections are laid out first with empty tables of the right size, because the tables contain the addresses.
    table_at, strings_at, hash_at, code_at, dynamic_at = _places(sections(bytes(24 + 24 * len(names)), bytes(_DYNAMIC_BYTES)), 5)
    table = bytes(24) + b"".join(_symbol(names[name], 4, code_at + at) for name, at in symbols.items())
    # HASH, STRTAB, SYMTAB, STRSZ, SYMENT, SONAME, NULL
    tags = (4, hash_at, 5, strings_at, 6, table_at, 10, len(strings.content), 11, 24, 14, own_name, 0, 0)
    segments = [
        _segment(1, _READ_SEGMENT, 0, hash_at + len(hashes), PAGE),
        _segment(1, _CODE_SEGMENT, code_at, len(blob.code), PAGE),
        # glibc before 2.35 writes addresses into this table, so it must be writable.
        _segment(1, _DATA_SEGMENT, dynamic_at, _DYNAMIC_BYTES, PAGE),
        _segment(2, _DATA_SEGMENT, dynamic_at, _DYNAMIC_BYTES, 8),
        _segment(0x6474E551, _DATA_SEGMENT, 0, 0, 16),  # GNU_STACK: not executable
    ]
    return _file(_DYN, arch, sections(table, struct.pack("<14Q", *tags)), segments)


def _file(kind: int, arch: str, sections: Sequence[_Section], segments: Sequence[bytes]) -> bytes:
    """Assemble a file: headers, sections, section headers. Addresses are offsets in the file."""
    names = _Strings()
    offsets = [names.add(s.name) for s in sections]
    own = names.add(".shstrtab")
    sections, offsets = [*sections, _Section(".shstrtab", _STRTAB, names.content)], [*offsets, own]
    places = _places(sections, len(segments))
    body = bytearray(64 + 56 * len(segments))
    heads = bytes(64)
    for s, name, at in zip(sections, offsets, places, strict=True):
        body += bytes(at - len(body)) + s.content
        address = at if s.flags & _ALLOC and segments else 0
        heads += struct.pack("<IIQQQQIIQQ", name, s.type, s.flags, address, at, len(s.content), s.link, s.info, s.alignment, s.entry)
    body += bytes(-len(body) % 8)
    machine, flags = MACHINES[arch]
    sizes = (64, 56 if segments else 0, len(segments), 64, 1 + len(sections), len(sections))
    head = struct.pack("<HHIQQQI6H", kind, machine, 1, 0, 64 if segments else 0, len(body), flags, *sizes)
    body[:64] = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + head
    body[64 : 64 + 56 * len(segments)] = b"".join(segments)
    return bytes(body) + heads


def _places(sections: Sequence[_Section], segments: int) -> list[int]:
    """Return the offset of each section in a file with this number of segments."""
    end, places = 64 + 56 * segments, []
    for s in sections:
        places.append(end + -end % s.alignment)
        end = places[-1] + len(s.content)
    return places


def _segment(kind: int, access: int, offset: int, size: int, alignment: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, access, offset, offset, offset, size, size, alignment)


def _symbol(name: int, section: int, value: int) -> bytes:
    return struct.pack("<IBBHQQ", name, _GLOBAL_FUNCTION, 0, section, value, 0)


def _hash_table(names: Sequence[str]) -> bytes:
    """Return the hash table in which loaders look up the symbols 1, 2, …: one bucket with one chain, since they are few."""
    chain = [*range(2, len(names) + 1), 0]
    return struct.pack(f"<{3 + 1 + len(chain)}I", 1, 1 + len(names), 1, 0, *chain)
