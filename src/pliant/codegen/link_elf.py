"""A small ELF linker: joins LLVM's relocatable objects into a flat, position-independent blob.

The sections that exist at run time are laid out one after the other, code first. Every relocation between them is resolved
PC-relative, so the blob runs wherever it is mapped at a page boundary. The linker refuses what such a blob cannot have:
undefined symbols, writable data, absolute addresses. References through a global offset table (GOT) become direct ones.

    blob = link(emit_object(ir_text, target("llvm:znver3")), ["run"])
    blob.exports["run"]                                   # the offset of `run` in blob.code

Numbers are those of the ELF specification; `relocations.py` resolves the relocations of each processor.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from ..runtime.blob import Blob
from ..support.errors import InternalError
from ..support.record import dataclass
from .relocations import PATCHERS, Place

_SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS, _SHT_REL = 2, 4, 8, 9
_SHF_WRITE, _SHF_ALLOC, _SHF_EXEC = 1, 2, 4
_SHN_UNDEF, _SHN_LORESERVE = 0, 0xFF00
_STB_LOCAL = 0
_CODE_ALIGNMENT = 64  # a cache line


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    section: int
    value: int
    shared: bool = False  # visible to other objects


class _Object:
    """A parsed ELF object file; every offset in it is checked against its size."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if data[:7] != b"\x7fELF\x02\x01\x01" or len(data) < 64:
            raise _broken("it is no little-endian 64-bit ELF")
        kind, self.machine = struct.unpack_from("<HH", data, 16)
        (table,) = struct.unpack_from("<Q", data, 40)
        entry_size, count, names = struct.unpack_from("<HHH", data, 58)
        if kind != 1 or entry_size != 64 or table + 64 * count > len(data) or names >= count:
            raise _broken("its header does not fit the file")
        heads = list(struct.iter_unpack("<IIQQQQIIQQ", data[table : table + 64 * count]))
        strings = self._bytes(heads[names][4], heads[names][5])
        self.sections = [
            _Section(_text(strings, name), kind, flags, offset, size, link, info, max(1, alignment))
            for name, kind, flags, _address, offset, size, link, info, alignment, _entry in heads
        ]
        self.symbols = list(self._read_symbols())

    def content(self, section: _Section) -> bytes:
        """Return the bytes of a section of the object."""
        return self._bytes(section.offset, section.size)

    def relocations(self) -> Iterator[tuple[int, int, int, _Symbol, int]]:
        """Yield each relocation of a section that exists at run time: section, offset, type, symbol, addend.

        Raises an InternalError for a table that is malformed or without addends.
        """
        for section in self.sections:
            if section.type not in (_SHT_REL, _SHT_RELA) or not self._exists(section.info):
                continue
            if section.type == _SHT_REL:
                raise _broken("it has relocations without addends")
            content = self.content(section)
            if len(content) % 24:
                raise _broken(f"table {section.name} has a partial entry")
            for offset, info, addend in struct.iter_unpack("<QQq", content):
                if info >> 32 >= len(self.symbols):
                    raise _broken(f"a relocation names symbol {info >> 32} of {len(self.symbols)}")
                yield section.info, offset, info & 0xFFFFFFFF, self.symbols[info >> 32], addend

    def placed(self) -> list[int]:
        """Return the indices of the sections that are part of the program at run time: code and constants."""
        return [i for i in range(len(self.sections)) if self._exists(i)]

    def _exists(self, index: int) -> bool:
        if not 0 < index < len(self.sections):
            return False
        section = self.sections[index]
        # A loader would register unwind tables, and a blob has none, so they are dropped.
        return bool(section.flags & _SHF_ALLOC and section.size) and section.name != ".eh_frame"

    def _read_symbols(self) -> Iterator[_Symbol]:
        for table in self.sections:
            if table.type != _SHT_SYMTAB:
                continue
            content = self.content(table)
            if table.link >= len(self.sections) or len(content) % 24:
                raise _broken("its symbol table is damaged")
            strings = self.content(self.sections[table.link])
            for name, info, _other, section, value, _size in struct.iter_unpack("<IBBHQQ", content):
                if section < _SHN_LORESERVE and section >= len(self.sections):
                    raise _broken(f"a symbol lies in section {section} of {len(self.sections)}")
                yield _Symbol(_text(strings, name), section, value, info >> 4 != _STB_LOCAL)

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset + size > len(self.data):
            raise _broken("a section ends after the file")
        return self.data[offset : offset + size]


def link(objects: bytes | Sequence[bytes], exports: Sequence[str]) -> Blob:
    """Link one or several objects into a flat blob that exports the functions in `exports`; raises `InternalError` if it cannot."""
    parsed = [_Object(data) for data in ([objects] if isinstance(objects, bytes) else objects)]
    defined = {s.name: (n, s) for n, obj in enumerate(parsed) for s in obj.symbols if s.shared and s.section != _SHN_UNDEF}
    if missing := sorted({name for obj in parsed for name in _undefined(obj)} - defined.keys()):
        raise InternalError(
            "generated code calls functions that nobody defines",
            facts=["undefined: " + ", ".join(f"`{name}`" for name in missing)],
        )
    machines = {obj.machine for obj in parsed}
    if len(machines) != 1 or not machines <= PATCHERS.keys():
        raise _broken(f"it is for machine {', '.join(map(str, sorted(machines)))}, not for x86-64, aarch64 or riscv64")
    code, base = _lay_out(parsed)

    def address(n: int, symbol: _Symbol) -> int:
        if symbol.section == _SHN_UNDEF:
            n, symbol = defined.get(symbol.name, (n, symbol))
        if (n, symbol.section) not in base or symbol.value > parsed[n].sections[symbol.section].size:
            raise InternalError(f"symbol `{symbol.name}` has no place in the blob")
        return base[n, symbol.section] + symbol.value

    places: list[Place] = []
    for n, obj in enumerate(parsed):
        for section, offset, kind, symbol, addend in obj.relocations():
            if offset + 4 > obj.sections[section].size:
                raise _broken(f"a relocation lies outside section {obj.sections[section].name}")
            value = address(n, symbol)
            name = symbol.name or obj.sections[symbol.section].name
            places.append(Place(code, base[n, section] + offset, kind, value, addend, name))
    PATCHERS[machines.pop()](places)
    if absent := [name for name in exports if name not in defined]:
        raise InternalError("an exported function is not in the object: " + ", ".join(f"`{n}`" for n in absent))
    return Blob(bytes(code), {name: address(*defined[name]) for name in exports})


def undefined_symbols(object_bytes: bytes) -> list[str]:
    """Return the names of the undefined symbols of an object file (ELF or wasm), sorted."""
    if object_bytes[:4] == b"\0asm":
        from .link_wasm import undefined_functions

        return undefined_functions(object_bytes)
    return _undefined(_Object(object_bytes))


def _undefined(obj: _Object) -> list[str]:
    return sorted({s.name for s in obj.symbols if s.section == _SHN_UNDEF and s.name})


def _lay_out(objects: Sequence[_Object]) -> tuple[bytearray, dict[tuple[int, int], int]]:
    """Concatenate the sections, code first; returns the bytes, and the offset of each (object, section).

    Raises an InternalError for writable data, and for an alignment above a page.
    """
    code = bytearray()
    base: dict[tuple[int, int], int] = {}
    placed = [(n, index) for n, obj in enumerate(objects) for index in obj.placed()]
    for n, index in sorted(placed, key=lambda at: not objects[at[0]].sections[at[1]].flags & _SHF_EXEC):
        section = objects[n].sections[index]
        if section.flags & _SHF_WRITE or section.type == _SHT_NOBITS:
            raise InternalError(
                f"generated code has writable data, section {section.name}",
                facts=["a blob is read-only; so are pointers in constants, which only a loader could fill in"],
            )
        if section.alignment > 4096 or section.alignment & section.alignment - 1:
            raise _broken(f"section {section.name} is aligned to {section.alignment} bytes")
        # Sections begin at a cache line, so that constants do not share one with the last instructions.
        code += bytes(-len(code) % max(section.alignment, _CODE_ALIGNMENT))
        base[n, index] = len(code)
        code += objects[n].content(section)
    return code, base


def _text(strings: bytes, offset: int) -> str:
    end = strings.find(b"\0", offset)
    if end < 0:
        raise _broken("a name ends after its table")
    return strings[offset:end].decode("utf-8", "replace")


def _broken(reason: str) -> InternalError:
    return InternalError(f"LLVM's object cannot be read: {reason}")
