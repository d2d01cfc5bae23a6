"""Addresses: the pointers of buffers, and where the elements of lanes are.

The number of an element is a polynomial. For lanes its parts are told from each other: what they share becomes a pointer, what
differs an index for each lane, of 32 bits where the size of the buffer proves that enough (machines gather twice as many then).
"""

from __future__ import annotations

from typing import NamedTuple

from ..dtype import i32, i64
from ..loop.buffer import Buffer
from ..support.errors import InternalError
from ..support.record import dataclass
from ..sym.expr import Expr, Var, product
from ..sym.poly import Poly, add, constant, multiply, to_expr, without
from .llvm_build import Declarations
from .llvm_expr import Expressions
from .llvm_types import Val, memory_type


@dataclass(frozen=True, slots=True)
class Lanes:
    """A vector loop at work: its variable, a stand-in for the value of the first lane, and the number of lanes."""

    var: Var
    first: Var
    count: int


class Parts(NamedTuple):
    """The number of an element for lanes: at the first lane as far as lanes agree, growth from lane to lane, and what else differs."""

    shared: Poly
    slope: Poly
    moving: Poly


class Addresses(Expressions):
    """Finds out where elements are."""

    def __init__(self, declarations: Declarations) -> None:
        super().__init__(declarations)
        self.pointers: dict[Buffer, str] = {}
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
        """The pointer of a buffer that was not met yet: a parameter of a chunk."""
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

    def parts_of(self, p: Poly) -> Parts:
        """What lanes share and what differs in the number of an element."""
        parts = Parts({}, {}, {})
        for m, c in p.items():
            rest = None if self.vector is None else without(m, (self.vector.var,))
            if not any(self.is_varying(a) for a in m):
                parts.shared[m] = c
            elif rest is not None and not any(self.is_varying(a) for a in rest):
                parts.slope[rest] = c
            else:
                parts.moving[m] = c
        if not parts.slope or self.vector is None:
            return parts
        number = self.numbers.get(self.vector.first)
        first = multiply(parts.slope, {(self.vector.first,): 1} if number is None else constant(number))
        return parts._replace(shared=add(parts.shared, first))

    def pointers_of(self, buffer: Buffer, indices: tuple[Expr, ...], parts: Parts) -> str:
        """An address for each lane."""
        narrow = self._is_small(buffer, indices, parts)
        index: Val | None = None
        if parts.moving:
            index = self.splat(self.emit_poly(parts.moving), self.lanes)
            index = self.convert("trunc", index, i32) if narrow else index
        if parts.slope:
            of, name = (i32, "i32") if narrow else (i64, "i64")
            number = parts.slope[()] if not any(parts.slope) else 1
            steps = Val("<" + ", ".join(f"{name} {number * n}" for n in range(self.lanes)) + ">", of, self.lanes)
            if any(parts.slope):
                slope = self.emit_poly(parts.slope)
                steps = self.binary("mul", self.convert("trunc", slope, i32) if narrow else slope, steps)
            index = steps if index is None else self.binary("add", index, steps)
        assert index is not None
        return self.raw(f"getelementptr {memory_type(buffer.dtype)}, ptr {self.address(buffer, parts.shared)}, {index.typed}")

    def _is_small(self, buffer: Buffer, indices: tuple[Expr, ...], parts: Parts) -> bool:
        """Whether offsets from the shared address surely fit 32 bits; elements outside of the buffer are not touched."""
        bound = 0
        if parts.slope:
            bound = self.lanes * self._size(to_expr(parts.slope, i64))
        if parts.moving:
            if buffer.strides is not None:
                return False
            size = self._size(product(buffer.shape))
            for index in indices:
                p = self.poly(index)
                same = {m: c for m, c in p.items() if not any(self.is_varying(a) for a in m)}
                if same != p:  # the lanes' part of an index is the index, which is in the buffer, without the rest
                    bound += size * (1 + self._size(to_expr(same, i64)))
        return bound < 2**31

    def _size(self, e: Expr) -> int:
        low, high = self.range_of(e)
        return max(-low, high)

    def each_lane(self, buffer: Buffer, parts: Parts) -> list[str] | None:
        """Addresses of lanes at equal distances, where the machine would take a gather apart anyway; None elsewhere."""
        if parts.moving or self.mask is not None or ("avx512f" in self.target.features and buffer.dtype.itemsize >= 4):
            return None
        pointers = [self.address(buffer, parts.shared)]
        slope = self.emit_poly(parts.slope)
        element = memory_type(buffer.dtype)
        for n in range(1, self.lanes):
            before, step = (pointers[0], n * int(slope.ref)) if slope.is_literal else (pointers[-1], slope.ref)
            pointers.append(self.raw(f"getelementptr {element}, ptr {before}, i64 {step}"))
        return pointers
