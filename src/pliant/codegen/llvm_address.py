"""Address computation: pointers of buffers, and addresses of elements for scalars and for the lanes of a vector.

The offset of an element is a polynomial. For lanes it is split: the part that all lanes share becomes a pointer, the part that
differs an index per lane. The index has 32 bits if the buffer's size proves that they suffice, because machines then gather twice as many.
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
    """A record of the vector loop being emitted: its variable, a variable for the value of its first lane, and the number of lanes."""

    var: Var
    first: Var
    count: int


class Parts(NamedTuple):
    """An element's offset as three polynomials: the part that all lanes share, the stride from lane to lane, and other varying terms."""

    shared: Poly
    slope: Poly
    moving: Poly


class Addresses(Expressions):
    """Emits the addresses of buffer elements, for scalars and for lanes."""

    def __init__(self, declarations: Declarations) -> None:
        super().__init__(declarations)
        self.pointers: dict[Buffer, str] = {}
        self.vector: Lanes | None = None

    def value_of(self, var: Var) -> Val:
        if self.vector is None or var is not self.vector.var:
            return super().value_of(var)
        lanes: Val | None = self.recall(("lanes", var))
        if lanes is None:
            count = self.vector.count
            steps = Val("<" + ", ".join(f"i64 {n}" for n in range(count)) + ">", i64, count)
            first = super().value_of(self.vector.first)
            lanes = steps if first.ref == "0" else self.binary("add", first, steps)
            self.remember(("lanes", var), lanes, (var,))
        return lanes

    def pointer(self, buffer: Buffer) -> str:
        """Return the pointer to the begin of a buffer."""
        known = self.pointers.get(buffer)
        return known if known is not None else self.capture_buffer(buffer)

    def capture_buffer(self, buffer: Buffer) -> str:
        """Return the pointer of a buffer at its first use; the body of a parallel loop makes it a parameter, others raise an error."""
        raise InternalError(f"buffer `{buffer.name}` has no memory where it is used")

    # Addresses.

    def lane_stride(self, p: Poly) -> int | None:
        """Return the stride from lane to lane in elements: 0 if the address is uniform, None if the stride is not a constant."""
        stride = 0
        for m, c in p.items():
            if not any(self.is_varying(a) for a in m):
                continue
            if self.vector is None or m != (self.vector.var,):
                return None
            stride = c
        return stride

    def first_lane(self, p: Poly) -> Poly:
        """Return an index polynomial with the vector loop's variable replaced by its value in the first lane.

        Replaces only the linear term, so the result has a meaning only if `lane_stride` of the polynomial is not None.
        """
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
        """Emit the address of element `p`; adds the constant part last, so that LLVM folds it into the addressing mode."""
        element = memory_type(buffer.dtype)
        rest = p.get((), 0)
        pointer = self.pointer(buffer)
        moving = {m: c for m, c in p.items() if m}
        if moving:
            pointer = self.raw(f"getelementptr {element}, ptr {pointer}, i64 {self.emit_poly(moving).ref}")
        return self.raw(f"getelementptr {element}, ptr {pointer}, i64 {rest}") if rest else pointer

    def parts_of(self, p: Poly) -> Parts:
        """Split the offset of an element into what lanes share, which is the first lane's part, the stride between lanes, and the rest."""
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
        """Emit a vector of addresses, one per lane."""
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
        """True if the lanes' offsets from the shared address provably fit into 32 bits, given that every access is inside of the buffer."""
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
                if same != p:  # the varying part is the index, which is inside of the buffer, minus the uniform part
                    bound += size * (1 + self._size(to_expr(same, i64)))
        return bound < 2**31

    def _size(self, e: Expr) -> int:
        low, high = self.range_of(e)
        return max(-low, high)

    def each_lane(self, buffer: Buffer, parts: Parts) -> list[str] | None:
        """Emit scalar addresses of strided lanes, for machines that would split a gather anyway.

        None if lanes are masked or not strided, and with AVX-512 for elements of 4 bytes and more.
        """
        if parts.moving or self.mask is not None or ("avx512f" in self.target.features and buffer.dtype.itemsize >= 4):
            return None
        pointers = [self.address(buffer, parts.shared)]
        slope = self.emit_poly(parts.slope)
        element = memory_type(buffer.dtype)
        for n in range(1, self.lanes):
            before, step = (pointers[0], n * int(slope.ref)) if slope.is_literal else (pointers[-1], slope.ref)
            pointers.append(self.raw(f"getelementptr {element}, ptr {before}, i64 {step}"))
        return pointers
