"""Writes a blob as a Mach-O object for macOS, which the system's linker turns into a program or a library.

    object_file(blob, "aarch64", {"model_run": blob.exports["run"]})
    # cc main.c model.o; or, for a library, cc -dynamiclib model.o -o libmodel.dylib

A blob has no relocations, no undefined symbols and no writable data, so the file is its code, a symbol table, and headers. There is no
library beside it: macOS on ARM loads only signed libraries, and its linker signs them. Numbers are those of Apple's <mach-o/loader.h>.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ..runtime.blob import Blob
from ..target import Target

MACHINES = {"aarch64": (0x0100000C, 0), "x86_64": (0x01000007, 3)}  # CPU type, subtype: all CPUs of the type
_OBJECT = 1
_SYMBOLS, _DYNAMIC_SYMBOLS, _SEGMENT, _BUILD_VERSION = 0x2, 0xB, 0x19, 0x32
_MACOS, _VERSION_11 = 1, 11 << 16  # macOS 11 is the first for ARM
_ALIGNMENT = 12  # log2: aarch64 code addresses constants by pages of 4096 bytes
_CODE = 0x80000000 | 0x400  # the section has only, and some, instructions
_EXTERNAL_IN_SECTION = 0x0F


def library_files(blob: Blob, machine: Target, symbols: Mapping[str, int], name: str) -> dict[str, bytes]:
    """Return the files of an exported library: a Mach-O object that exports `symbols` (name -> offset in the blob)."""
    return {f"{name}.o": object_file(blob, machine.arch, symbols)}


def object_file(blob: Blob, arch: str, symbols: Mapping[str, int]) -> bytes:
    """Return a relocatable object whose external functions are `symbols`; in the file their names begin with `_`, as C's do.

    MH_SUBSECTIONS_VIA_SYMBOLS is not set: the linker must not move functions apart, since they refer to each other by fixed distances.
    """
    strings, table = b" \0", b""
    for name, at in sorted(symbols.items()):
        table += struct.pack("<IBBHQ", len(strings), _EXTERNAL_IN_SECTION, 1, 0, at)
        strings += b"_" + name.encode() + b"\0"
    strings += bytes(-len(strings) % 8)
    sizes = (72 + 80, 24, 24, 80)  # of the load commands below
    code_at = 32 + sum(sizes)
    code = blob.code + bytes(-len(blob.code) % 8)
    table_at = code_at + len(code)
    access = 7  # read, write, execute: usual in objects; the linker sets the final access
    segment = struct.pack("<II16sQQQQIIII", _SEGMENT, sizes[0], b"", 0, len(code), code_at, len(code), access, access, 1, 0)
    section = struct.pack("<16s16sQQIIIIIIII", b"__text", b"__TEXT", 0, len(code), code_at, _ALIGNMENT, 0, 0, _CODE, 0, 0, 0)
    build = struct.pack("<IIIIII", _BUILD_VERSION, sizes[1], _MACOS, _VERSION_11, 0, 0)
    listed = struct.pack("<IIIIII", _SYMBOLS, sizes[2], table_at, len(symbols), table_at + len(table), len(strings))
    # No local symbols, all external and defined, none undefined.
    dynamic = struct.pack("<20I", _DYNAMIC_SYMBOLS, sizes[3], 0, 0, 0, len(symbols), len(symbols), 0, *[0] * 12)
    head = struct.pack("<8I", 0xFEEDFACF, *MACHINES[arch], _OBJECT, len(sizes), sum(sizes), 0, 0)
    return head + segment + section + build + listed + dynamic + code + table + strings
