"""Memory: where buffers are, and reading and writing their elements, one or a group of lanes.

A group of lanes whose elements follow each other is one vector access, backwards a reversed one, all the same element a
broadcast, anything else a gather or scatter: the part of the address that all lanes share is a pointer, what differs an index
for each lane, of 32 bits where the size of the buffer proves that enough (machines gather twice as many then). Buffers of scope
`register` are rows of values: leading indices are constants where they are used, the last is a constant or the lanes from a
constant on, so that LLVM turns each group into registers. Elements of less than a byte are in `llvm_packed.py`; in a register
buffer each has a byte of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dtype import bool_, i32, i64, u8
from ..loop.buffer import Buffer, Load
from ..loop.stmt import View
from ..support.errors import InternalError, UnsupportedError
from ..sym.expr import Expr, Var, free_vars, product
from ..sym.poly import Poly, add, constant, multiply, to_expr, without
from .llvm_build import Declarations
from .llvm_expr import Expressions
from .llvm_storage import decode, encode
from .llvm_types import WORKSPACE_ALIGN, Val, memory_type, overload


@dataclass(slots=True)
class Row:
    """The last axis of a register buffer at constant leading indices: its name in the text, and how many elements are used."""

    name: str
    element: str
    size: int


@dataclass(frozen=True, slots=True)
class Lanes:
    """A vector loop at work: its variable, a stand-in for the value of the first lane, and the number of lanes."""

    var: Var
    first: Var
    count: int


class Memory(Expressions):
    """Emits loads and stores."""

    def __init__(self, declarations: Declarations) -> None:
        super().__init__(declarations)
        self.pointers: dict[Buffer, str] = {}
        self.roots: dict[Buffer, Buffer] = {}  # of views: the buffer whose memory they are
        self.rows: dict[tuple[Buffer, tuple[int, ...]], Row] = {}
        self.vector: Lanes | None = None

    def value_of(self, var: Var) -> Val:
        if self.vector is None or var is not self.vector.var:
            return super().value_of(var)
        found: Val | None = self.recall(("lanes", var))
        if found is None:
            count = self.vector.count
            steps = Val("<" + ", ".join(f"i64 {n}" for n in range(count)) + ">", i64, count)
            first = super().value_of(self.vector.first)
            found = steps if first.ref == "0" else self.binary("add", first, steps)
            self.remember(("lanes", var), found, (var,))
        return found

    def pointer(self, buffer: Buffer) -> str:
        """Where a buffer begins."""
        found = self.pointers.get(buffer)
        return found if found is not None else self.capture_buffer(buffer)

    def capture_buffer(self, buffer: Buffer) -> str:
        """The pointer of a buffer from outside of this function (outlined bodies ask their parent)."""
        raise InternalError(f"buffer `{buffer.name}` has no memory where it is used")

    # Addresses.

    def lane_stride(self, p: Poly) -> int | None:
        """By how many elements an address grows from lane to lane; 0 when it is the same for all, None when it is no constant."""
        stride = 0
        for m, c in p.items():
            if not any(self.is_varying(a) for a in m):
                continue
            if self.vector is None or m != (self.vector.var,):
                return None
            stride = c
        return stride

    def first_lane(self, p: Poly) -> Poly:
        """The polynomial at the first lane."""
        if self.vector is None:
            return p
        stride = p.get((self.vector.var,), 0)
        if not stride:
            return p
        rest = {m: c for m, c in p.items() if m != (self.vector.var,)}
        number = self.numbers.get(self.vector.first)
        first: Poly = {(self.vector.first,): stride} if number is None else constant(stride * number)
        return add(rest, first)

    def address(self, buffer: Buffer, p: Poly) -> str:
        """The address of the element number `p`, the constant part last."""
        element = memory_type(buffer.dtype)
        rest = p.get((), 0)
        pointer = self.pointer(buffer)
        moving = {m: c for m, c in p.items() if m}
        if moving:
            pointer = self.raw(f"getelementptr {element}, ptr {pointer}, i64 {self.emit_poly(moving).ref}")
        return self.raw(f"getelementptr {element}, ptr {pointer}, i64 {rest}") if rest else pointer

    def _pointers(self, buffer: Buffer, p: Poly) -> str:
        """An address for each lane."""
        shared: Poly = {}
        slope: Poly = {}  # by how much the address grows from lane to lane
        moving: Poly = {}
        for m, c in p.items():
            rest = None if self.vector is None else without(m, (self.vector.var,))
            if not any(self.is_varying(a) for a in m):
                shared[m] = c
            elif rest is not None and not any(self.is_varying(a) for a in rest):
                slope[rest] = c
            else:
                moving[m] = c
        if slope and self.vector is not None:
            number = self.numbers.get(self.vector.first)
            shared = add(shared, multiply(slope, {(self.vector.first,): 1} if number is None else constant(number)))
        index = self._lane_offsets(slope, moving)
        if self._is_small(buffer, shared):
            index = self._narrowed(index)
        return self.raw(f"getelementptr {memory_type(buffer.dtype)}, ptr {self.address(buffer, shared)}, {index.typed}")

    def _lane_offsets(self, slope: Poly, moving: Poly) -> Val:
        """The number of elements from the shared address to that of each lane."""
        found = self.emit_poly(moving) if moving else None
        if not slope:
            assert found is not None
            return self.splat(found, self.lanes)
        if not any(slope):  # a constant
            steps = Val("<" + ", ".join(f"i64 {slope[()] * n}" for n in range(self.lanes)) + ">", i64, self.lanes)
        else:
            count = Val("<" + ", ".join(f"i64 {n}" for n in range(self.lanes)) + ">", i64, self.lanes)
            steps = self.binary("mul", self.emit_poly(slope), count)
        return steps if found is None else self.binary("add", found, steps)

    def _is_small(self, buffer: Buffer, shared: Poly) -> bool:
        """Whether offsets from a shared address surely fit 32 bits; elements outside of the buffer are not touched."""
        if buffer.strides is not None:
            return False
        size = self.range_of(product(buffer.shape))[1]
        low, high = self.range_of(to_expr(shared, i64))
        return max(size, high, -low) * self.lanes < 2**30

    def _narrowed(self, index: Val) -> Val:
        if index.ref.startswith("<"):
            return Val(index.ref.replace("i64 ", "i32 "), i32, index.lanes)
        return self.convert("trunc", index, i32)

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
        return self._from_memory(buffer, self.gather(buffer, self._pointers(buffer, p)), self.lanes)

    def load_packed(self, buffer: Buffer, p: Poly) -> Val:
        """The value of elements that share bytes; see `llvm_packed.py`."""
        raise NotImplementedError

    def store_packed(self, buffer: Buffer, p: Poly, value: Val) -> None:
        """Write elements that share bytes; see `llvm_packed.py`."""
        raise NotImplementedError

    def _read(self, buffer: Buffer, pointer: str, lanes: int) -> Val:
        type_name, align = memory_type(buffer.dtype, lanes), buffer.dtype.itemsize
        if lanes and self.mask is not None:
            name = f"llvm.masked.load.{overload(type_name)}.p0"
            self.declarations.declare(name, type_name, f"ptr, i32, <{lanes} x i1>, {type_name}")
            text = f"call {type_name} @{name}(ptr {pointer}, i32 {align}, {self.mask.typed}, {type_name} zeroinitializer)"
        else:
            text = f"load {type_name}, ptr {pointer}, align {align}"
        return self._from_memory(buffer, self.raw(text), lanes)

    def gather(self, buffer: Buffer, pointers: str) -> str:
        """What is in memory at the pointers of all active lanes."""
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
        if buffer.dtype.storage:
            return decode(self, Val(ref, u8, lanes), buffer.dtype)
        return Val(ref, buffer.dtype, lanes)

    def _to_memory(self, buffer: Buffer, v: Val) -> Val:
        if buffer.dtype.storage:
            return encode(self, v, buffer.dtype)
        return self.convert("zext", v, u8) if v.dtype is bool_ else v

    def _reversed(self, v: Val) -> Val:
        order = ", ".join(f"i32 {n}" for n in reversed(range(v.lanes)))
        return self.value(f"shufflevector {v.typed}, {v.type} poison, <{v.lanes} x i32> <{order}>", v.dtype, v.lanes)

    def _reversed_mask(self) -> Val | None:
        return None if self.mask is None else self._reversed(self.mask)

    # Writing.

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Val) -> None:
        """Write a value, or the active lanes of one."""
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
            self._scatter(buffer, self._pointers(buffer, p), value)

    def _write(self, buffer: Buffer, pointer: str, value: Val) -> None:
        stored, align = self._to_memory(buffer, value), buffer.dtype.itemsize
        if value.lanes and self.mask is not None:
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
        """Leading indices, first element and lanes (0 for one element) of an access to a register buffer, None if it has none."""
        lead: list[int] = []
        for index in indices[:-1]:
            number = self.number_of(index)
            if number is None:
                return None
            lead.append(number)
        p = self.poly(indices[-1]) if indices else {}
        stride = self.lane_stride(p)
        first = self.first_lane(p)
        if stride not in (0, 1) or any(first):  # `any` of the monomials: some are not the constant
            return None
        return tuple(lead), first.get((), 0), self.lanes if stride else 0

    def _register(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[str, int]:
        place = self.register_place(buffer, indices)
        if place is None:
            where = f"`{', '.join(map(str, indices))}`"
            raise UnsupportedError(
                f"register buffer `{buffer.name}` is indexed by {where}, which is no constant once loops are unrolled",
                facts=["loop variables in it: " + ", ".join(sorted({v.name for i in indices for v in free_vars(i)}))],
                help='unroll these loops, vectorise the one over the last axis, or give the buffer the scope "stack"',
            )
        lead, first, lanes = place
        row = self.rows.get((buffer, lead))
        if row is None:
            row = self.rows[buffer, lead] = Row(f"%r{len(self.rows)}", memory_type(buffer.dtype), 0)
        row.size = max(row.size, first + max(1, lanes))
        pointer = self.raw(f"getelementptr {row.element}, ptr {row.name}, i64 {first}") if first else row.name
        return pointer, lanes

    def _load_register(self, e: Load) -> Val:
        pointer, lanes = self._register(e.buffer, e.indices)
        ref = self.raw(f"load {memory_type(e.buffer.dtype, lanes)}, ptr {pointer}, align {e.buffer.dtype.itemsize}")
        return self._from_memory(e.buffer, ref, lanes)

    def _store_register(self, buffer: Buffer, indices: tuple[Expr, ...], value: Val) -> None:
        pointer, lanes = self._register(buffer, indices)
        stored = self._to_memory(buffer, self.splat(value, lanes) if lanes else value)
        if lanes and self.mask is not None:
            old = self.raw(f"load {stored.type}, ptr {pointer}, align {buffer.dtype.itemsize}")
            stored = self.select(self.mask, stored, Val(old, stored.dtype, lanes))
        self.line(f"store {stored.typed}, ptr {pointer}, align {buffer.dtype.itemsize}")

    def register_lines(self) -> list[str]:
        """The allocations of the rows of register buffers."""
        return [f"  {row.name} = alloca [{row.size} x {row.element}], align 64" for row in self.rows.values()]

    # Names for memory.

    def allocate_stack(self, buffer: Buffer) -> None:
        """Memory of the frame for a buffer of constant size."""
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
        """Name a part of a buffer's memory."""
        if s.source.scope == "register":
            raise UnsupportedError(f"`{s.buffer.name}` is a view of register buffer `{s.source.name}`, which has no memory").at(s.span)
        p = self.flat(s.start, s.source.element_strides())
        self.pointers[s.buffer] = self.address(s.source, p)
        self.roots[s.buffer] = self.roots.get(s.source, s.source)
