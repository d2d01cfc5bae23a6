"""Writes a blob as files for Windows, without a linker: an object (COFF) and a DLL (PE32+).

    dynamic_library(blob, "x86_64", {"model_run": blob.exports["run"]}, "model.dll")

A blob has no relocations, no undefined symbols and no writable data, so both files are its code, a symbol table, and headers. The DLL
imports nothing and has no entry point: loading it runs no code. Functions have no unwind tables, so an exception of a callback must not
pass through them. Numbers are those of Microsoft's "PE Format".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from ..runtime.blob import Blob
from ..target import Target

MACHINES = {"x86_64": 0x8664, "aarch64": 0xAA64}
_PAGE, _FILE_UNIT = 4096, 512  # alignment of sections in memory (code for ARM relies on it) and in the file
_BASE = 0x1_8000_0000  # the usual preferred base of 64-bit DLLs; the loader chooses another address
_CODE, _DATA, _ALIGN_4096, _DISCARD, _EXECUTE, _READ = 0x20, 0x40, 0x00D0_0000, 0x0200_0000, 0x2000_0000, 0x4000_0000
_EXECUTABLE, _LARGE_ADDRESSES, _DLL = 0x2, 0x20, 0x2000
_HIGH_ENTROPY, _ANYWHERE, _NO_EXECUTE = 0x20, 0x40, 0x100
_DIRECTORIES, _EXPORTS, _RELOCATIONS = 16, 0, 5
_HEADS = 64 + 4 + 20 + 112 + 8 * _DIRECTORIES  # DOS header, signature, COFF header, optional header


class _Section(NamedTuple):
    name: str
    content: bytes
    flags: int


def library_files(blob: Blob, machine: Target, symbols: Mapping[str, int], name: str) -> dict[str, bytes]:
    """Return an object and a DLL that export `symbols` (name -> offset in the blob)."""
    library = dynamic_library(blob, machine.arch, symbols, f"{name}.dll")
    return {f"{name}.obj": object_file(blob, machine.arch, symbols), f"{name}.dll": library}


def object_file(blob: Blob, arch: str, symbols: Mapping[str, int]) -> bytes:
    """Return a relocatable COFF object for Windows whose external functions are `symbols` (name -> offset in the blob)."""
    strings = b""
    table = b""
    for name, at in symbols.items():
        text = name.encode()
        short = text.ljust(8, b"\0") if len(text) <= 8 else struct.pack("<II", 0, 4 + len(strings))
        strings += b"" if len(text) <= 8 else text + b"\0"
        table += short + struct.pack("<IhHBB", at, 1, 0x20, 2, 0)  # a function of section 1, external
    start = 20 + 40
    head = struct.pack("<HHIIIHH", MACHINES[arch], 1, 0, start + len(blob.code), len(symbols), 0, 0)
    section = _section_head(_Section(".text", blob.code, _CODE | _ALIGN_4096 | _EXECUTE | _READ), 0, start, len(blob.code))
    return head + section + blob.code + table + struct.pack("<I", 4 + len(strings)) + strings


def dynamic_library(blob: Blob, arch: str, symbols: Mapping[str, int], file: str) -> bytes:
    """Return a DLL that exports `symbols` and has no dependencies."""
    code_at = _PAGE
    exports_at = code_at + _up(len(blob.code), _PAGE)
    exports = _export_table({name: code_at + at for name, at in symbols.items()}, file, exports_at)
    relocations_at = exports_at + _up(len(exports), _PAGE)
    # The code is position-independent. A relocation table of padding entries says so, and lets the loader choose the address (ASLR).
    relocations = struct.pack("<IIHH", code_at, 12, 0, 0)
    sections = [
        _Section(".text", blob.code, _CODE | _EXECUTE | _READ),
        _Section(".edata", exports, _DATA | _READ),
        _Section(".reloc", relocations, _DATA | _DISCARD | _READ),
    ]
    places = (code_at, exports_at, relocations_at)
    directories = [(0, 0)] * _DIRECTORIES
    directories[_EXPORTS], directories[_RELOCATIONS] = (exports_at, len(exports)), (relocations_at, len(relocations))
    heads_size = _up(_HEADS + 40 * len(sections), _FILE_UNIT)
    body, heads = b"", b""
    for s, place in zip(sections, places, strict=True):
        content = s.content + bytes(-len(s.content) % _FILE_UNIT)
        heads += _section_head(s, place, heads_size + len(body), len(content))
        body += content
    traits = _EXECUTABLE | _LARGE_ADDRESSES | _DLL
    whole = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64) + b"PE\0\0"
    whole += struct.pack("<HHIIIHH", MACHINES[arch], len(sections), 0, 0, 0, 112 + 8 * _DIRECTORIES, traits)
    whole += struct.pack("<HBBIIIII", 0x20B, 14, 0, _up(len(blob.code), _FILE_UNIT), len(body), 0, 0, code_at)
    whole += struct.pack("<QIIHHHHHHI", _BASE, _PAGE, _FILE_UNIT, 6, 0, 0, 0, 6, 0, 0)  # Windows Vista and later
    image = relocations_at + _up(len(relocations), _PAGE)
    whole += struct.pack("<IIIHH", image, heads_size, 0, 3, _HIGH_ENTROPY | _ANYWHERE | _NO_EXECUTE)
    whole += struct.pack("<QQQQII", 1 << 20, 1 << 12, 1 << 20, 1 << 12, 0, _DIRECTORIES)
    whole += b"".join(struct.pack("<II", *d) for d in directories) + heads
    return whole.ljust(heads_size, b"\0") + body


def _section_head(s: _Section, address: int, offset: int, size: int) -> bytes:
    """Return the header of a section; in an object (address 0) it has no size in memory."""
    in_memory = len(s.content) if address else 0
    return s.name.encode().ljust(8, b"\0") + struct.pack("<IIIIIIHHI", in_memory, address, size, offset, 0, 0, 0, 0, s.flags)


def _export_table(symbols: Mapping[str, int], file: str, at: int) -> bytes:
    """Return the export table. The loader does a binary search for names, so they are sorted."""
    names = sorted(symbols, key=str.encode)
    count = len(names)
    functions_at = at + 40
    names_at = functions_at + 4 * count
    ordinals_at = names_at + 4 * count
    text = file.encode() + b"\0"
    text_at = ordinals_at + 2 * count
    places = []
    for name in names:
        places.append(text_at + len(text))
        text += name.encode() + b"\0"
    head = struct.pack("<IIHHIIIIIII", 0, 0, 0, 0, text_at, 1, count, count, functions_at, names_at, ordinals_at)
    addresses = struct.pack(f"<{count}I", *(symbols[name] for name in names))
    return head + addresses + struct.pack(f"<{count}I{count}H", *places, *range(count)) + text


def _up(size: int, unit: int) -> int:
    return size + -size % unit
