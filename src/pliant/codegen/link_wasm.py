"""A small wasm linker: joins LLVM's relocatable objects into a runnable module without imports.

The objects import their memory, stack pointer and function table; the module owns and exports them:

    memory          [0, stack_bytes) the stack, growing down so that overflow traps; then constants; then free
    table           slot 0 is null, then the functions whose address is taken; an embedder grows it and adds its own
    __heap_base     the first address that belongs to the embedder, a multiple of 64

    module = link_wasm(emit_object(ir_text, target("wasm+simd128")), ["run"])
    blob = link_blob(objects, ["prepare", "size", "run"])    # the same as a blob, whose exports are offsets of function bodies

Objects may call functions of each other, by name. Equal function types are not merged, since wasm compares the types of indirect calls
by structure.

Numbers are those of the WebAssembly binary format and of its "Linking" tool convention.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from ..loop.buffer import MOST_STACK
from ..runtime.blob import Blob
from ..support.errors import InternalError
from ..support.record import dataclass

MAGIC = b"\0asm\x01\0\0\0"
_PAGE = 65536
PAGES = 65536  # the most that a 32-bit memory has
_LOCAL, _UNDEFINED, _EXPLICIT_NAME = 0x02, 0x10, 0x40  # flags of symbols
STACK = 2 * MOST_STACK  # a kernel with the largest stack that it may have, and its callers
_STACK_POINTER, _FUNCTION_TABLE = "__stack_pointer", "__indirect_function_table"


class Section(IntEnum):
    """Section numbers of the wasm binary format."""

    CUSTOM, TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT = range(8)
    ELEMENT, CODE, DATA = 9, 10, 11


class _Kind(IntEnum):
    """Symbol kinds of the wasm linking convention."""

    FUNCTION, DATA, GLOBAL, SECTION, TAG, TABLE = range(6)


@dataclass(frozen=True, slots=True)
class _Symbol:
    kind: int
    name: str
    defined: bool
    index: int  # of the function, global, table or data segment
    offset: int  # into the segment
    local: bool = False  # not visible to other objects


@dataclass(frozen=True, slots=True)
class _Segment:
    name: str
    alignment: int
    begin: int  # offset of its bytes in the data section
    size: int


@dataclass(frozen=True, slots=True)
class _Relocation:
    kind: int
    offset: int
    index: int
    addend: int


class Reader:
    """Reads the encodings of wasm (LEB128, vectors, names) with bounds checks."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def __bool__(self) -> bool:
        return self.at < len(self.data)

    def byte(self) -> int:
        return self.bytes(1)[0]

    def bytes(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise _broken("something ends after its section")
        self.at += count
        return self.data[self.at - count : self.at]

    def unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise _broken("a number is too long")

    def signed(self) -> int:
        start = self.at
        value = self.unsigned()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) else value

    def text(self) -> str:
        return self.bytes(self.unsigned()).decode("utf-8", "replace")

    def sized(self) -> Reader:
        return Reader(self.bytes(self.unsigned()))


class _Object:
    """A parsed wasm object file: sections, symbols, relocations, imports."""

    def __init__(self, data: bytes) -> None:
        if data[:8] != MAGIC:
            raise _broken("it is no wasm module")
        self.sections: dict[int, bytes] = {}
        self.symbols: list[_Symbol] = []
        self.relocations: dict[int, list[_Relocation]] = {}
        self.imports: dict[int, list[str]] = {_Kind.FUNCTION: [], _Kind.GLOBAL: [], _Kind.TABLE: []}
        self._segment_names: list[tuple[str, int]] = []
        order: list[int] = []
        reader = Reader(data)
        reader.at = len(MAGIC)
        while reader:
            order.append(reader.byte())
            section = reader.sized()
            if order[-1] == Section.CUSTOM:
                self._custom(section, order)
            else:
                self.sections[order[-1]] = section.data
                if order[-1] == Section.IMPORT:
                    self._read_imports(section)
        self.segments = self._read_segments()

    def count(self, section: Section) -> int:
        """Return the number of entries in the vector of a section."""
        return Reader(self.sections.get(section, b"\0")).unsigned()

    def function_types(self) -> list[int]:
        """Return the type index of each function that the object defines, in the object's numbering."""
        reader = Reader(self.sections.get(Section.FUNCTION, b"\0"))
        return [reader.unsigned() for _ in range(reader.unsigned())]

    def _custom(self, section: Reader, order: list[int]) -> None:
        name = section.text()
        if name == "linking":
            if section.unsigned() != 2:
                raise _broken("its linking section is of another version")
            while section:
                kind, part = section.byte(), section.sized()
                if kind == 5:  # names of segments
                    for _ in range(part.unsigned()):
                        self._segment_names.append((part.text(), 1 << min(part.unsigned(), 16)))
                        part.unsigned()
                elif kind == 8:
                    self.symbols = [self._read_symbol(part) for _ in range(part.unsigned())]
        elif name in ("reloc.CODE", "reloc.DATA"):
            where = section.unsigned()
            if where >= len(order):
                raise _broken("relocations come before what they patch")
            self.relocations[order[where]] = [_read_relocation(section) for _ in range(section.unsigned())]

    def _read_imports(self, section: Reader) -> None:
        for _ in range(section.unsigned()):
            section.text()
            name, kind = section.text(), section.byte()
            if kind == 0:  # function: type
                section.unsigned()
                self.imports[_Kind.FUNCTION].append(name)
            elif kind in (1, 2):  # table: element type, limits; memory: limits
                if kind == 1:
                    section.byte()
                    self.imports[_Kind.TABLE].append(name)
                has_maximum = section.unsigned() & 1
                section.unsigned()
                if has_maximum:
                    section.unsigned()
            elif kind == 3:  # global: type, mutability
                section.bytes(2)
                self.imports[_Kind.GLOBAL].append(name)
            else:
                raise _broken(f"it imports `{name}` of kind {kind}")

    def _read_symbol(self, part: Reader) -> _Symbol:
        kind, flags = part.byte(), part.unsigned()
        defined, local = not flags & _UNDEFINED, bool(flags & _LOCAL)
        if kind == _Kind.DATA:
            name = part.text()
            index, offset = (part.unsigned(), part.unsigned()) if defined else (-1, 0)
            if defined:
                part.unsigned()  # its size
            return _Symbol(kind, name, defined, index, offset, local)
        index = part.unsigned()
        if kind == _Kind.SECTION:
            return _Symbol(kind, "", True, index, 0)
        if defined or flags & _EXPLICIT_NAME:
            return _Symbol(kind, part.text(), defined, index, 0, local)
        names = self.imports.get(kind, [])
        if index >= len(names):
            raise _broken(f"a symbol stands for import {index} of {len(names)}")
        return _Symbol(kind, names[index], defined, index, 0)

    def _read_segments(self) -> list[_Segment]:
        reader = Reader(self.sections.get(Section.DATA, b"\0"))
        segments: list[_Segment] = []
        if reader.unsigned() != len(self._segment_names):
            raise _broken("not every segment has a name")
        for name, alignment in self._segment_names:
            if reader.byte() != 0 or reader.byte() != 0x41:  # active, of memory 0; i32.const
                raise _broken(f"segment {name} is of an unknown kind")
            reader.signed()
            if reader.byte() != 0x0B:
                raise _broken(f"segment {name} has no plain address")
            size = reader.unsigned()
            segments.append(_Segment(name, alignment, reader.at, size))
            reader.bytes(size)
        return segments


class _Layout:
    """The numbering of the linked wasm module: the types, functions and data segments of each object, one object after the other."""

    def __init__(self, objects: Sequence[_Object], stack_bytes: int) -> None:
        self.objects = objects
        self.slots: dict[int, int] = {}  # function of the module -> slot in the table
        self.type_base, self.function_base = [], []
        types = functions = 0
        for obj in objects:
            self.type_base.append(types)
            self.function_base.append(functions)
            types += obj.count(Section.TYPE)
            functions += obj.count(Section.FUNCTION)
        self.defined = {
            s.name: (n, s) for n, obj in enumerate(objects) for s in obj.symbols if s.kind == _Kind.FUNCTION and s.defined and not s.local
        }
        self.addresses, self.heap_base = _place([obj.segments for obj in objects], stack_bytes)

    def function(self, n: int, symbol: _Symbol) -> int:
        """Return the module's index of the function that a symbol of object `n` refers to, which another object may define.

        A symbol that `n` does not define must be in `self.defined`. Raises an InternalError if its index is no function of its object.
        """
        if not symbol.defined:
            n, symbol = self.defined[symbol.name]
        own = symbol.index - len(self.objects[n].imports[_Kind.FUNCTION])
        if not 0 <= own < self.objects[n].count(Section.FUNCTION):
            raise _broken(f"`{symbol.name}` is function {own} of {self.objects[n].count(Section.FUNCTION)}")
        return self.function_base[n] + own

    def slot(self, function: int) -> int:
        """Return the slot of a function in the table; assigns one at the first request."""
        return self.slots.setdefault(function, len(self.slots) + 1)


def link_wasm(objects: bytes | Sequence[bytes], exports: Sequence[str], stack_bytes: int = STACK) -> bytes:
    """Link one or several objects into a module that exports the functions in `exports`, its memory and its table; returns its bytes.

    Raises an InternalError if a function is undefined.
    """
    return link_blob(objects, exports, stack_bytes).code


def link_blob(objects: bytes | Sequence[bytes], exports: Sequence[str], stack_bytes: int = STACK) -> Blob:
    """Return the module of `link_wasm` as a blob of the form `wasm`, with the offset of each exported function's body.

    Raises an InternalError if a function is undefined.
    """
    parsed = [_Object(data) for data in ([objects] if isinstance(objects, bytes) else objects)]
    stack_bytes += -stack_bytes % 16
    layout = _Layout(parsed, stack_bytes)
    if missing := sorted({name for obj in parsed for name in _undefined(obj)} - layout.defined.keys()):
        raise InternalError(
            "generated code calls functions that nobody defines",
            facts=["undefined: " + ", ".join(f"`{name}`" for name in missing)],
        )
    if absent := [name for name in exports if name not in layout.defined]:
        raise InternalError("an exported function is not in the object: " + ", ".join(f"`{n}`" for n in absent))
    bodies: list[bytes] = []
    segments: list[bytes] = []
    for n, obj in enumerate(parsed):
        code, data = bytearray(obj.sections.get(Section.CODE, b"\0")), bytearray(obj.sections.get(Section.DATA, b"\0"))
        for content, section in ((code, Section.CODE), (data, Section.DATA)):
            for relocation in obj.relocations.get(section, []):
                _patch(content, relocation, n, layout)
        bodies += _bodies(bytes(code), obj.count(Section.FUNCTION))
        for s, address in zip(obj.segments, layout.addresses[n], strict=True):
            segments.append(b"\0" + _const(address) + sized(bytes(data[s.begin : s.begin + s.size])))
    numbers = {name: layout.function(*layout.defined[name]) for name in exports}
    exported = [(name, 0, number) for name, number in numbers.items()]
    exported += [("table", 1, 0), ("memory", 2, 0), ("__heap_base", 3, 1)]
    slots = layout.slots
    sections = {
        Section.TYPE: _joined(parsed, Section.TYPE),
        Section.FUNCTION: vector(leb(t + base) for obj, base in zip(parsed, layout.type_base, strict=True) for t in obj.function_types()),
        Section.TABLE: vector([b"\x70\0" + leb(1 + len(slots))]),  # funcref, no maximum
        Section.MEMORY: vector([b"\0" + leb(-(-layout.heap_base // _PAGE))]),
        Section.GLOBAL: vector([b"\x7f\x01" + _const(stack_bytes), b"\x7f\0" + _const(layout.heap_base)]),  # mutable, constant
        Section.EXPORT: vector(sized(name.encode()) + bytes([kind]) + leb(index) for name, kind, index in exported),
        Section.ELEMENT: vector([b"\0" + _const(1) + vector(map(leb, slots))] if slots else []),
        Section.CODE: vector(bodies),
        Section.DATA: vector(segments),
    }
    out, starts = bytearray(MAGIC), [0]
    for number, section_bytes in sections.items():
        out += bytes([number]) + sized(section_bytes)
        if number == Section.CODE:
            at = len(out) - len(section_bytes) + len(leb(len(bodies)))
            starts = [at, *(at := at + len(body) for body in bodies)]
    return Blob(bytes(out), {name: starts[number] for name, number in numbers.items()}, "wasm")


def _joined(objects: Sequence[_Object], section: Section) -> bytes:
    """Concatenate the vectors of one wasm section of all objects."""
    counts = [Reader(obj.sections.get(section, b"\0")) for obj in objects]
    total = sum(reader.unsigned() for reader in counts)
    return leb(total) + b"".join(reader.data[reader.at :] for reader in counts)


def _bodies(code: bytes, count: int) -> list[bytes]:
    """Return the function bodies of a code section, each with its size prefix. Raises an InternalError if there are not `count` of them."""
    reader = Reader(code)
    if reader.unsigned() != count:
        raise _broken("not every function has a body")
    return [sized(reader.sized().data) for _ in range(count)]


def undefined_functions(object_bytes: bytes) -> list[str]:
    """Return the symbols that neither an object nor the linker defines, sorted."""
    return _undefined(_Object(object_bytes))


def _undefined(obj: _Object) -> list[str]:
    return sorted({s.name for s in obj.symbols if not s.defined} - {_STACK_POINTER, _FUNCTION_TABLE})


def _place(objects: Sequence[Sequence[_Segment]], begin: int) -> tuple[list[list[int]], int]:
    """Assign addresses to the data segments from `begin` on; returns them by object, and the first free address, a multiple of 64.

    Raises an InternalError for a segment of writable data.
    """
    addresses: list[list[int]] = []
    for segments in objects:
        addresses.append([])
        for segment in segments:
            if not segment.name.startswith((".rodata", ".data.rel.ro")):
                raise InternalError(
                    f"generated code has writable data, section {segment.name}",
                    facts=["two calls at the same time would share it"],
                )
            begin += -begin % segment.alignment
            addresses[-1].append(begin)
            begin += segment.size
    return addresses, begin + -begin % 64


def _patch(content: bytearray, r: _Relocation, n: int, layout: _Layout) -> None:
    """Write the value of one relocation of object number `n` into its code or data.

    Raises an InternalError for a type of relocation that is not supported.
    """
    obj, addresses = layout.objects[n], layout.addresses[n]
    if r.kind == 6:  # TYPE_INDEX_LEB names a type, not a symbol
        return _write(content, r.offset, _padded(layout.type_base[n] + r.index))
    if r.index >= len(obj.symbols):
        raise _broken(f"a relocation names symbol {r.index} of {len(obj.symbols)}")
    symbol = obj.symbols[r.index]
    match r.kind, symbol.kind:
        case 0, _Kind.FUNCTION:  # FUNCTION_INDEX_LEB
            return _write(content, r.offset, _padded(layout.function(n, symbol)))
        case ((1 | 2), _Kind.FUNCTION):  # TABLE_INDEX_SLEB, _I32
            value = layout.slot(layout.function(n, symbol))
        case ((3 | 4 | 5), _Kind.DATA) if symbol.index < len(addresses):  # MEMORY_ADDR_LEB, _SLEB, _I32
            value = addresses[symbol.index] + symbol.offset + r.addend
        case (7, _Kind.GLOBAL) | (20, _Kind.TABLE):  # GLOBAL_INDEX_LEB, TABLE_NUMBER_LEB: there is one of each
            return _write(content, r.offset, _padded(0))
        case _:
            raise InternalError(f"generated code refers to `{symbol.name}` in a way that is not served (type {r.kind})")
    if r.kind in (2, 5):
        return _write(content, r.offset, (value & 0xFFFFFFFF).to_bytes(4, "little"))
    return _write(content, r.offset, _padded(value, signed=r.kind in (1, 4)))


def _write(content: bytearray, offset: int, value: bytes) -> None:
    if offset + len(value) > len(content):
        raise _broken("a relocation lies outside its section")
    content[offset : offset + len(value)] = value


def _read_relocation(section: Reader) -> _Relocation:
    kind, offset, index = section.byte(), section.unsigned(), section.unsigned()
    return _Relocation(kind, offset, index, section.signed() if kind in (3, 4, 5, 8, 9, 11) else 0)


def _const(value: int) -> bytes:
    """Encode a constant expression: i32.const, the value as signed LEB128, end."""
    return b"\x41" + _padded(value, signed=True) + b"\x0b"


def leb(value: int) -> bytes:
    """Encode a non-negative number as the shortest LEB128."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _padded(value: int, *, signed: bool = False) -> bytes:
    """Encode LEB128 padded to five bytes, as LLVM reserves; with `signed`, an address beyond 2 GiB is sign-extended."""
    value &= 0xFFFFFFFF
    if signed and value >> 31:
        value |= 0x7 << 32
    return bytes([value >> shift & 0x7F | 0x80 for shift in (0, 7, 14, 21)] + [value >> 28 & 0x7F])


def sized(content: bytes) -> bytes:
    return leb(len(content)) + content


def vector(items: Iterable[bytes]) -> bytes:
    items = list(items)
    return leb(len(items)) + b"".join(items)


def _broken(reason: str) -> InternalError:
    return InternalError(f"LLVM's object cannot be read: {reason}")
