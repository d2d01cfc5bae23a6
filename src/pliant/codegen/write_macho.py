"""The file of a blob for macOS: an object (Mach-O) that the system's linker makes a program or a library of.

    object_file(blob, "aarch64", {"model_run": blob.exports["run"]})
    # cc main.c model.o; or, for a library, cc -dynamiclib model.o -o libmodel.dylib

A blob has neither relocations nor undefined symbols nor writable data, so the file is its code, a table of symbols, and heads. There is no
library beside it: macOS on ARM opens none that is not signed, which its linker does. Numbers are those of Apple's <mach-o/loader.h>.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ..runtime.blob import Blob
from ..target import Target

MACHINES = {"aarch64": (0x0100000C, 0), "x86_64": (0x01000007, 3)}  # type, subtype: all of that type
_OBJECT = 1
_SYMBOLS, _DYNAMIC_SYMBOLS, _SEGMENT, _BUILD_VERSION = 0x2, 0xB, 0x19, 0x32
_MACOS, _VERSION_11 = 1, 11 << 16  # the first for ARM
_ALIGNMENT = 12  # log2: code counts addresses in pages of 4096 bytes
_CODE = 0x80000000 | 0x400  # instructions, and nothing that could not be one section of them
_EXTERNAL_IN_SECTION = 0x0F


def library_files(blob: Blob, machine: Target, symbols: Mapping[str, int], name: str) -> dict[str, bytes]:
    """An object that exports `symbols`, offsets into the blob."""
    return {f"{name}.o": object_file(blob, machine.arch, symbols)}


def object_file(blob: Blob, arch: str, symbols: Mapping[str, int]) -> bytes:
    """A relocatable object whose external functions are `symbols`, which C spells without their leading `_`.

    It does not promise that functions may be torn apart (MH_SUBSECTIONS_VIA_SYMBOLS): they refer to each other by fixed distances.
    """
    strings, table = b" \0", b""
    for name, at in sorted(symbols.items()):
        table += struct.pack("<IBBHQ", len(strings), _EXTERNAL_IN_SECTION, 1, 0, at)
        strings += b"_" + name.encode() + b"\0"
    strings += bytes(-len(strings) % 8)
    sizes = (72 + 80, 24, 24, 80)  # of the commands below
    code_at = 32 + sum(sizes)
    code = blob.code + bytes(-len(blob.code) % 8)
    table_at = code_at + len(code)
    access = 7  # of a segment in an object; the linker decides
    segment = struct.pack("<II16sQQQQIIII", _SEGMENT, sizes[0], b"", 0, len(code), code_at, len(code), access, access, 1, 0)
    section = struct.pack("<16s16sQQIIIIIIII", b"__text", b"__TEXT", 0, len(code), code_at, _ALIGNMENT, 0, 0, _CODE, 0, 0, 0)
    build = struct.pack("<IIIIII", _BUILD_VERSION, sizes[1], _MACOS, _VERSION_11, 0, 0)
    listed = struct.pack("<IIIIII", _SYMBOLS, sizes[2], table_at, len(symbols), table_at + len(table), len(strings))
    # No local symbols, all that are there external, none undefined.
    dynamic = struct.pack("<20I", _DYNAMIC_SYMBOLS, sizes[3], 0, 0, 0, len(symbols), len(symbols), 0, *[0] * 12)
    head = struct.pack("<8I", 0xFEEDFACF, *MACHINES[arch], _OBJECT, len(sizes), sum(sizes), 0, 0)
    return head + segment + section + build + listed + dynamic + code + table + strings
