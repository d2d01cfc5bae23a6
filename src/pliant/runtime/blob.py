"""Blobs: code with a table of exported offsets, and the loader that maps machine code into executable memory.

A blob of the form `flat` is position-independent machine code without undefined symbols, relocations or writable data, so
loading is a copy into fresh pages. Pages are W^X: writable first, then executable and never writable again. Blobs of the other
forms (a `wasm` module, `c` source) are stored in packages and artifacts but never mapped; their offsets say where the body of a
function begins in the module or the text.

    loaded = load(Blob(code, {"run": 0}))
    run = Entry(loaded.address("run"))       # valid while `loaded` lives

Bytes of a blob (little endian): magic, form u32 (its index in FORMS, or the four letters of another form), count of exports u32, size of
the code u64, then for each export the length of its name u16, the name in UTF-8 and its offset u64, then the code, and nothing after it.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from typing import NamedTuple

from ..support.errors import InternalError, ModelFileError

_MAGIC = b"PLBLOB\x00\x02"
_HEAD = struct.Struct("<8sIIQ")
FORMS = ("flat", "wasm", "c")


class Blob(NamedTuple):
    """The machine code of a program as bytes, and the offsets of its exported functions."""

    code: bytes
    exports: dict[str, int]
    form: str = "flat"

    def to_bytes(self) -> bytes:
        """Serialize the blob; `from_bytes` reads it."""
        parts = [_HEAD.pack(_MAGIC, _form_number(self.form), len(self.exports), len(self.code))]
        for name, offset in self.exports.items():
            text = name.encode()
            parts.append(struct.pack(f"<H{len(text)}sQ", len(text), text, offset))
        return b"".join([*parts, self.code])

    @staticmethod
    def from_bytes(data: bytes) -> Blob:
        """Parse a serialized blob; raises `ModelFileError` for anything but the exact format."""
        if len(data) < _HEAD.size:
            raise _broken("it ends inside its head")
        magic, form, count, size = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise _broken("it does not begin as one")
        exports: dict[str, int] = {}
        at = _HEAD.size
        for _ in range(count):
            if at + 2 > len(data):
                raise _broken("it ends inside the table of exports")
            (length,) = struct.unpack_from("<H", data, at)
            if at + 10 + length > len(data):
                raise _broken("it ends inside the table of exports")
            try:
                name = data[at + 2 : at + 2 + length].decode()
            except UnicodeDecodeError:
                raise _broken("the name of an export is not UTF-8") from None
            (offset,) = struct.unpack_from("<Q", data, at + 2 + length)
            if name in exports or offset >= size:
                raise _broken(f"export `{name}` is there twice or lies outside the code")
            exports[name] = offset
            at += 10 + length
        if len(data) - at != size:
            raise _broken(f"{size} bytes of code are announced, {len(data) - at} are there")
        return Blob(data[at:], exports, _form_name(form))

    def __repr__(self) -> str:
        return f"<Blob of {len(self.code)} bytes ({self.form}), exports {', '.join(self.exports)}>"


def _form_number(form: str) -> int:
    if form in FORMS:
        return FORMS.index(form)
    if len(form) != 4 or not (form.isascii() and form.isalnum()):
        raise InternalError(f"the form of a blob has four letters: `{form}`")
    return int.from_bytes(form.encode(), "little")


def _form_name(number: int) -> str:
    if number < len(FORMS):
        return FORMS[number]
    letters = number.to_bytes(4, "little")
    if not letters.isalnum():
        raise _broken(f"its form {number} is unknown")
    return letters.decode("ascii")


class Loaded:
    """A blob mapped into executable memory; it stays mapped as long as this object lives."""

    __slots__ = ("_exports", "_pages", "base")

    def __init__(self, pages: object, base: int, exports: dict[str, int]) -> None:
        self._pages = pages
        self._exports = exports
        self.base = base

    def address(self, name: str) -> int:
        """Return the address of an exported function; raises an InternalError if there is none of this name."""
        if name not in self._exports:
            raise InternalError(f"the program exports no `{name}`", facts=[f"it exports: {', '.join(self._exports)}"])
        return self.base + self._exports[name]

    def __contains__(self, name: str) -> bool:
        return name in self._exports


def load(blob: Blob) -> Loaded:
    """Map a blob of machine code into executable memory; raises a ModelFileError for forms other than `flat`."""
    if blob.form != "flat":
        raise _broken(f"it is not machine code that can be mapped, but of the form `{blob.form}`")
    size = max(1, len(blob.code))
    size += -size % mmap.PAGESIZE
    if sys.platform == "win32":
        pages, base = _map_windows(blob.code, size)
    elif sys.platform == "darwin" and platform.machine() == "arm64":
        pages, base = _map_apple_silicon(blob.code, size)
    else:
        pages, base = _map_posix(blob.code, size)
    return Loaded(pages, base, dict(blob.exports))


def _broken(reason: str) -> ModelFileError:
    return ModelFileError(f"this is not a usable code blob: {reason}")


def _refused(reason: str) -> InternalError:
    return InternalError(
        f"the system refused executable memory: {reason}",
        facts=["Pliant maps machine code as the system's loader does: written first, made executable after"],
    )


if sys.platform == "win32":

    class _WindowsPages:
        """Pages of VirtualAlloc, freed with the last reference to this object."""

        def __init__(self, base: int) -> None:
            self.base = base

        def __del__(self) -> None:
            ctypes.windll.kernel32.VirtualFree(ctypes.c_void_p(self.base), ctypes.c_size_t(0), 0x8000)

    def _map_windows(code: bytes, size: int) -> tuple[object, int]:
        kernel32 = ctypes.windll.kernel32
        kernel32.VirtualAlloc.restype = ctypes.c_void_p
        kernel32.GetCurrentProcess.restype = ctypes.c_void_p
        base = kernel32.VirtualAlloc(None, ctypes.c_size_t(size), 0x3000, 0x04)  # commit and reserve, read and write
        if not base:
            raise _refused("VirtualAlloc failed")
        pages = _WindowsPages(base)
        ctypes.memmove(base, code, len(code))
        old = ctypes.c_uint32()
        if not kernel32.VirtualProtect(ctypes.c_void_p(base), ctypes.c_size_t(size), 0x20, ctypes.byref(old)):
            raise _refused("VirtualProtect failed")
        process = ctypes.c_void_p(kernel32.GetCurrentProcess())
        kernel32.FlushInstructionCache(process, ctypes.c_void_p(base), ctypes.c_size_t(size))
        return pages, base

else:

    def _map_posix(code: bytes, size: int) -> tuple[object, int]:
        """Map private pages, write them, then make them read-execute (on ARM, mprotect also syncs the instruction cache on Linux).

        Returns the owner of the mapping and its address; raises an InternalError if the system refuses.
        """
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        pages[: len(code)] = code
        held = ctypes.c_char.from_buffer(pages)  # keeps the mapping open, and knows its address
        base = ctypes.addressof(held)
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        if protect(base, size, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
            raise _refused(f"mprotect failed with error {ctypes.get_errno()}")
        return held, base

    def _map_apple_silicon(code: bytes, size: int) -> tuple[object, int]:
        """Map MAP_JIT pages, the only way to executable memory there: this thread can write them only while it cannot execute them.

        Returns the owner of the mapping and its address; raises an InternalError if the system refuses.
        """
        map_jit = 0x0800
        access = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        try:
            pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | map_jit, prot=access)
        except OSError as e:
            raise _refused(str(e)) from None
        system = ctypes.CDLL(None)
        held = ctypes.c_char.from_buffer(pages)
        base = ctypes.addressof(held)
        system.pthread_jit_write_protect_np(0)
        try:
            ctypes.memmove(base, code, len(code))
        finally:
            system.pthread_jit_write_protect_np(1)
        system.sys_icache_invalidate(ctypes.c_void_p(base), ctypes.c_size_t(size))
        return held, base
