"""LLVM code generation for memory accesses: loads and stores of scalars and of lanes.

Lanes with stride 1 are one vector access, with stride -1 a reversed one, with stride 0 a broadcast, with stride 2 two vector loads and a
shuffle, anything else a gather or scatter. Buffers of scope `register` are rows of values. Their leading indices must be constants, and
the last one a constant or lanes that begin at a constant, so that LLVM promotes each row to registers; or one leading index is the lane
(a transposed access: `llvm_transpose.py`). Sub-byte elements are in `llvm_subbyte.py`; in a register buffer each has its own byte.
"""

from __future__ import annotations

from ..dtype import bool_, u8
from ..loop.buffer import Buffer, Load, loaded_dtype
from ..loop.stmt import View
from ..support.errors import UnsupportedError
from ..support.record import dataclass
from ..sym.expr import Expr, free_vars
from ..sym.poly import Poly, add
from .llvm_address import Addresses
from .llvm_build import Declarations, places
from .llvm_storage import code_of
from .llvm_transpose import across, column
from .llvm_types import WORKSPACE_ALIGN, Val, memory_type, overload


@dataclass(slots=True)
class Row:
    """A row of a register buffer (its last axis at constant leading indices): its LLVM name, and the number of elements used."""

    name: str
    element: str
    size: int


class Memory(Addresses):
    """Emits loads and stores of buffer elements, for scalars and lanes."""

    def __init__(self, declarations: Declarations) -> None:
        super().__init__(declarations)
        self.rows: dict[tuple[Buffer, tuple[int, ...]], Row] = {}
        self.register_writes: dict[Buffer, int] = {}  # number of writes to each register buffer

    # Reading.

    def load(self, e: Load) -> Val:
        buffer = e.buffer
        if buffer.scope == "register":
            return self._load_register(e)
        p = self.flat(e.indices, buffer.element_strides())
        if buffer.dtype.bits < 8:
            return self.load_packed(buffer, p)
        stride = self.lane_stride(p)
        if stride == 0:
            return self._read(buffer, self.address(buffer, p), 0)
        if stride == 1:
            return self._read(buffer, self.address(buffer, self.first_lane(p)), self.lanes)
        if stride == -1:
            last = add(self.first_lane(p), {(): 1 - self.lanes})
            with self.active(self._reversed_mask()):
                return self._reversed(self._read(buffer, self.address(buffer, last), self.lanes))
        if stride == 2 and (self.mask is None or self._masks_rows(buffer)):
            return self._from_memory(buffer, self._every_second(buffer, self.first_lane(p)), self.lanes)
        parts = self.parts_of(p)
        each = self.each_lane(buffer, parts)
        elements = self.gather(buffer, self.pointers_of(buffer, e.indices, parts)) if each is None else self._collect(buffer, each)
        return self._from_memory(buffer, elements, self.lanes)

    def _every_second(self, buffer: Buffer, first: Poly) -> str:
        """Load every second element by two overlapping vector loads, so that nothing behind the last element is read."""
        n, whole = self.lanes, memory_type(buffer.dtype, self.lanes)
        rows = []
        for begin, lanes in ((0, range(n // 2)), (n - 1, range(n // 2, n))):
            taken = {2 * k - begin: k for k in lanes}  # element of this row -> lane
            with self.active(self._spread_mask([taken.get(e) for e in range(n)])):
                rows.append(self._load_row(buffer, self.address(buffer, add(first, {(): begin})), n))
        order = ", ".join(f"i32 {2 * k if 2 * k < n else 2 * k + 1}" for k in range(n))
        return self.raw(f"shufflevector {whole} {rows[0]}, {whole} {rows[1]}, <{n} x i32> <{order}>")

    def _masks_rows(self, buffer: Buffer) -> bool:
        """True if the machine has masked vector loads of these elements."""
        return buffer.dtype.itemsize >= 4 and "avx2" in self.target.features

    def _spread_mask(self, lanes: list[int | None]) -> Val | None:
        """Return the mask of a row, given the lane that reads each element (None: no lane)."""
        if self.mask is None:
            return None
        order = ", ".join(f"i32 {self.lanes if k is None else k}" for k in lanes)
        text = f"shufflevector {self.mask.typed}, {self.mask.type} zeroinitializer, <{self.lanes} x i32> <{order}>"
        return self.value(text, self.mask.dtype, self.lanes)

    def _collect(self, buffer: Buffer, pointers: list[str]) -> str:
        """Emit loads of single elements, one from each pointer, into one vector."""
        element, whole, vector = memory_type(buffer.dtype), memory_type(buffer.dtype, self.lanes), "poison"
        for n, pointer in enumerate(pointers):
            one = self.raw(f"load {element}, ptr {pointer}, align {buffer.dtype.itemsize}")
            vector = self.raw(f"insertelement {whole} {vector}, {element} {one}, i64 {n}")
        return vector

    def load_packed(self, buffer: Buffer, p: Poly) -> Val:
        """Emit a load of sub-byte elements; a subclass implements it (`llvm_subbyte.py`), here it raises NotImplementedError."""
        raise NotImplementedError

    def store_packed(self, buffer: Buffer, p: Poly, value: Val) -> None:
        """Emit a store of sub-byte elements; a subclass implements it (`llvm_subbyte.py`), here it raises NotImplementedError."""
        raise NotImplementedError

    def _read(self, buffer: Buffer, pointer: str, lanes: int) -> Val:
        halves = self.halves(self.mask) if lanes and self.mask is not None else ()
        if halves:
            low, high = self._halved(buffer, pointer, lanes, halves)
            order = f"<{lanes} x i32> {places(0, lanes)}"
            return self.value(f"shufflevector {low.typed}, {high.typed}, {order}", low.dtype, lanes)
        return self._from_memory(buffer, self._load_row(buffer, pointer, lanes), lanes)

    def _load_row(self, buffer: Buffer, pointer: str, lanes: int) -> str:
        """Emit the load of a scalar, or of a vector of contiguous elements; masked if not all lanes are active."""
        type_name, align = memory_type(buffer.dtype, lanes), buffer.dtype.itemsize
        if not lanes or self.mask is None:
            return self.raw(f"load {type_name}, ptr {pointer}, align {align}")
        name = f"llvm.masked.load.{overload(type_name)}.p0"
        self.declarations.declare(name, type_name, f"ptr, i32, <{lanes} x i1>, {type_name}")
        return self.raw(f"call {type_name} @{name}(ptr {pointer}, i32 {align}, {self.mask.typed}, {type_name} zeroinitializer)")

    def _halved(self, buffer: Buffer, pointer: str, lanes: int, masks: tuple[Val, Val]) -> list[Val]:
        """Emit the load of a vector in two halves, each with its own mask."""
        parts = []
        for mask, at in zip(masks, (pointer, self._further(buffer, pointer, lanes // 2)), strict=True):
            with self.active(mask):
                parts.append(self._read(buffer, at, lanes // 2))
        return parts

    def _further(self, buffer: Buffer, pointer: str, elements: int) -> str:
        return self.raw(f"getelementptr {memory_type(buffer.dtype)}, ptr {pointer}, i64 {elements}")

    def gather(self, buffer: Buffer, pointers: str) -> str:
        """Emit a gather: one element from the pointer of each active lane."""
        type_name = memory_type(buffer.dtype, self.lanes)
        name = f"llvm.masked.gather.{overload(type_name)}.v{self.lanes}p0"
        self.declarations.declare(name, type_name, f"<{self.lanes} x ptr>, i32, <{self.lanes} x i1>, {type_name}")
        operands = f"<{self.lanes} x ptr> {pointers}, i32 {buffer.dtype.itemsize}, {self._mask_text()}, {type_name} zeroinitializer"
        return self.raw(f"call {type_name} @{name}({operands})")

    def _mask_text(self) -> str:
        return self.mask.typed if self.mask is not None else f"<{self.lanes} x i1> splat (i1 true)"

    def _from_memory(self, buffer: Buffer, ref: str, lanes: int) -> Val:
        if buffer.dtype is bool_:
            return self.compare("icmp ne", Val(ref, u8, lanes), Val("0", u8))
        return Val(ref, loaded_dtype(buffer.dtype), lanes)

    def _to_memory(self, buffer: Buffer, v: Val) -> Val:
        if buffer.dtype.storage:
            return code_of(self, v, buffer.dtype)
        return self.convert("zext", v, u8) if v.dtype is bool_ else v

    def _reversed(self, v: Val) -> Val:
        order = ", ".join(f"i32 {n}" for n in reversed(range(v.lanes)))
        return self.value(f"shufflevector {v.typed}, {v.type} poison, <{v.lanes} x i32> <{order}>", v.dtype, v.lanes)

    def _reversed_mask(self) -> Val | None:
        return None if self.mask is None else self._reversed(self.mask)

    # Writing.

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Val) -> None:
        """Emit a store of a value, or of its active lanes, to an element of a buffer."""
        self.loads.clear()
        if buffer.scope == "register":
            self._store_register(buffer, indices, value)
            return
        p = self.flat(indices, buffer.element_strides())
        if buffer.dtype.bits < 8:
            self.store_packed(buffer, p, value)
            return
        stride = self.lane_stride(p)
        if stride == 0:
            self._write(buffer, self.address(buffer, p), value)
            return
        value = self.splat(value, self.lanes)
        if stride == 1:
            self._write(buffer, self.address(buffer, self.first_lane(p)), value)
        elif stride == -1:
            last = add(self.first_lane(p), {(): 1 - self.lanes})
            with self.active(self._reversed_mask()):
                self._write(buffer, self.address(buffer, last), self._reversed(value))
        else:
            parts = self.parts_of(p)
            each = self.each_lane(buffer, parts)
            if each is None:
                self._scatter(buffer, self.pointers_of(buffer, indices, parts), value)
            else:
                self._spread(buffer, each, value)

    def _spread(self, buffer: Buffer, pointers: list[str], value: Val) -> None:
        """Emit stores of the lanes of a vector one by one, each to its own pointer."""
        stored = self._to_memory(buffer, value)
        element = memory_type(buffer.dtype)
        for n, pointer in enumerate(pointers):
            one = self.raw(f"extractelement {stored.typed}, i64 {n}")
            self.line(f"store {element} {one}, ptr {pointer}, align {buffer.dtype.itemsize}")

    def _write(self, buffer: Buffer, pointer: str, value: Val) -> None:
        stored, align = self._to_memory(buffer, value), buffer.dtype.itemsize
        halves = self.halves(self.mask) if value.lanes and self.mask is not None else ()
        if halves:
            for mask, part, at in zip(
                halves, (0, value.lanes // 2), (pointer, self._further(buffer, pointer, value.lanes // 2)), strict=True
            ):
                with self.active(mask):
                    self._write(buffer, at, self.part(value, part, value.lanes // 2))
        elif value.lanes and self.mask is not None:
            name = f"llvm.masked.store.{overload(stored.type)}.p0"
            self.declarations.declare(name, "void", f"{stored.type}, ptr, i32, <{value.lanes} x i1>")
            self.line(f"call void @{name}({stored.typed}, ptr {pointer}, i32 {align}, {self.mask.typed})")
        else:
            self.line(f"store {stored.typed}, ptr {pointer}, align {align}")

    def _scatter(self, buffer: Buffer, pointers: str, value: Val) -> None:
        stored = self._to_memory(buffer, value)
        name = f"llvm.masked.scatter.{overload(stored.type)}.v{value.lanes}p0"
        self.declarations.declare(name, "void", f"{stored.type}, <{value.lanes} x ptr>, i32, <{value.lanes} x i1>")
        operands = f"{stored.typed}, <{value.lanes} x ptr> {pointers}, i32 {buffer.dtype.itemsize}, {self._mask_text()}"
        self.line(f"call void @{name}({operands})")

    # Registers.

    def register_place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[tuple[int, ...], int, int] | None:
        """Return leading indices, first element and lanes (0: scalar) of an access to a register buffer; None if they are not constant."""
        lead: list[int] = []
        for index in indices[:-1]:
            number = self.number_of(index)
            if number is None:
                return None
            lead.append(number)
        p = self.poly(indices[-1]) if indices else {}
        stride = self.lane_stride(p)
        first = self.first_lane(p)
        if stride not in (0, 1) or any(first):  # a monomial other than the constant
            return None
        return tuple(lead), first.get((), 0), self.lanes if stride else 0

    def _register(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[str, int]:
        place = self.register_place(buffer, indices)
        if place is None:
            where = f"`{', '.join(map(str, indices))}`"
            raise UnsupportedError(
                f"register buffer `{buffer.name}` is indexed by {where}, which is no constant once loops are unrolled",
                facts=["loop variables in it: " + ", ".join(sorted({v.name for i in indices for v in free_vars(i)}))],
                help='unroll these loops, vectorize the one over the last axis, or give the buffer the scope "stack"',
            )
        lead, first, lanes = place
        return self.register_row(buffer, lead, first, max(1, lanes)), lanes

    def register_row(self, buffer: Buffer, lead: tuple[int, ...], first: int, count: int) -> str:
        """Return a pointer to `count` elements of a register buffer's row from `first` on; the row grows as needed."""
        row = self.rows.get((buffer, lead))
        if row is None:
            row = self.rows[buffer, lead] = Row(f"%r{len(self.rows)}", memory_type(buffer.dtype), 0)
        row.size = max(row.size, first + count)
        return self.raw(f"getelementptr {row.element}, ptr {row.name}, i64 {first}") if first else row.name

    def _load_register(self, e: Load) -> Val:
        place = across(self, e) if self.lanes else None
        if place is not None:
            return self._from_memory(e.buffer, column(self, e.buffer, place), self.lanes)
        pointer, lanes = self._register(e.buffer, e.indices)
        ref = self.raw(f"load {memory_type(e.buffer.dtype, lanes)}, ptr {pointer}, align {e.buffer.dtype.itemsize}")
        return self._from_memory(e.buffer, ref, lanes)

    def _store_register(self, buffer: Buffer, indices: tuple[Expr, ...], value: Val) -> None:
        pointer, lanes = self._register(buffer, indices)
        self.register_writes[buffer] = self.register_writes.get(buffer, 0) + 1
        stored = self._to_memory(buffer, self.splat(value, lanes) if lanes else value)
        if lanes and self.mask is not None:
            old = self.raw(f"load {stored.type}, ptr {pointer}, align {buffer.dtype.itemsize}")
            stored = self.select(self.mask, stored, Val(old, stored.dtype, lanes))
        self.line(f"store {stored.typed}, ptr {pointer}, align {buffer.dtype.itemsize}")

    def register_lines(self) -> list[str]:
        """Return the allocations of the rows of register buffers."""
        return [f"  {row.name} = alloca [{row.size} x {row.element}], align 64" for row in self.rows.values()]

    # Names for memory.

    def allocate_stack(self, buffer: Buffer) -> None:
        """Allocate stack memory for a buffer; raises an error if its size is not constant."""
        size = 1
        for extent in buffer.shape:
            number = self.number_of(extent)
            if number is None:
                raise UnsupportedError(
                    f"stack buffer `{buffer.name}` has the size `{extent}`, which is no constant",
                    help='give it the scope "workspace", or a constant bound as its shape',
                )
            size *= number
        size = -(-max(1, size) // buffer.dtype.per_byte)
        self.pointers[buffer] = self.alloca(f"[{size} x {memory_type(buffer.dtype)}]", WORKSPACE_ALIGN)

    def view(self, s: View) -> None:
        """Compute the pointer of a view into a buffer; raises an error for register buffers, which have no memory."""
        if s.source.scope == "register":
            raise UnsupportedError(f"`{s.buffer.name}` is a view of register buffer `{s.source.name}`, which has no memory").at(s.span)
        p = self.flat(s.start, s.source.element_strides())
        self.pointers[s.buffer] = self.address(s.source, p)
