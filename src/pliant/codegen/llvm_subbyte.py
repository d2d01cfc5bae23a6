"""LLVM code generation for loads and stores of sub-byte elements (u4, u2), several of which share a byte.

The offset of an element from the start of its buffer is a polynomial. Terms that are whole bytes go into the address; the rest selects the
bit. Lanes with stride 1 that begin at a whole byte are one vector access to bytes. Other lanes gather a byte each, and store one after the
other, since two of them may share a byte. A store keeps the other elements of its byte.
"""

from __future__ import annotations

from typing import NamedTuple

from ..dtype import DType, i64, u8
from ..loop.buffer import Buffer
from ..loop.stmt import View
from ..sym.expr import Const, Eq, Expr, FloorMod, product
from ..sym.poly import Poly
from .llvm_memory import Memory
from .llvm_storage import at_shift, code_of, expand, merged, squeeze
from .llvm_types import Val


class Split(NamedTuple):
    """A sub-byte element's offset in three sums: of whole bytes, of elements that provably are whole bytes, and of other elements."""

    whole: Poly
    proven: Poly
    rest: Poly
    element: int  # index in its byte, if there is no rest

    @property
    def aligned(self) -> bool:
        """True if the offset is the first element of a byte."""
        return not self.rest and not self.element


class Packed(Memory):
    """Emits loads and stores of sub-byte elements."""

    def split(self, p: Poly, stored: DType) -> Split:
        """Split a sub-byte element's offset into whole bytes and the element in its byte."""
        per = stored.per_byte
        whole: Poly = {}
        proven: Poly = {}
        rest: Poly = {}
        for m, c in p.items():
            if m and c % per == 0:
                whole[m] = c // per
            elif m:
                (proven if self._divides(per, m, c) else rest)[m] = c
        number = p.get((), 0)
        if rest:
            return Split(whole, proven, {**rest, (): number} if number else rest, 0)
        if number // per:
            whole[()] = number // per
        return Split(whole, proven, rest, number % per)

    def _divides(self, per: int, m: tuple[Expr, ...], c: int) -> bool:
        return self.proves(Eq(FloorMod(product(m) * c, Const(per, i64)), Const(0, i64)))

    def _place(self, buffer: Buffer, parts: Split) -> tuple[str, Val]:
        """Emit the address of the byte (a vector of them for lanes), and the bit in it at which the element begins."""
        stored = buffer.dtype
        up = Val(str(stored.per_byte.bit_length() - 1), i64)
        index = self.emit_poly(parts.whole)
        shift = Val(str(parts.element * stored.bits), u8)
        if parts.proven:
            index = self.binary("add", index, self.binary("ashr exact", self.emit_poly(parts.proven), up))
        if parts.rest:
            number = self.emit_poly(parts.rest)
            index = self.binary("add", index, self.binary("ashr", number, up))
            element = self.binary("and", self.convert("trunc", number, u8), Val(str(stored.per_byte - 1), u8))
            shift = self.binary("mul", element, Val(str(stored.bits), u8))
        return self.raw(f"getelementptr i8, ptr {self.pointer(buffer)}, {index.typed}"), shift

    def _row(self, stride: int | None, p: Poly, stored: DType) -> Split | None:
        """Return the offset of the first lane if the lanes fill whole bytes from there on, else None."""
        if stride != 1 or self.mask is not None or self.lanes % stored.per_byte:
            return None
        parts = self.split(self.first_lane(p), stored)
        return parts if parts.aligned else None

    def load_packed(self, buffer: Buffer, p: Poly) -> Val:
        stored, stride = buffer.dtype, self.lane_stride(p)
        row = self._row(stride, p, stored)
        if row is not None:
            count = self.lanes // stored.per_byte
            packed = self.value(f"load <{count} x i8>, ptr {self._place(buffer, row)[0]}, align 1", u8, count)
            return expand(self, packed, stored)
        pointer, shift = self._place(buffer, self.split(p, stored))
        if stride == 0:
            byte = self.value(f"load i8, ptr {pointer}, align 1", u8)
        else:
            byte = Val(self.gather(buffer, pointer), u8, self.lanes)
        return at_shift(self, byte, shift, stored)

    def store_packed(self, buffer: Buffer, p: Poly, value: Val) -> None:
        stored, stride = buffer.dtype, self.lane_stride(p)
        code = code_of(self, value, stored)
        row = self._row(stride, p, stored)
        if row is not None:
            packed = squeeze(self, self.splat(code, self.lanes), stored)
            self.line(f"store {packed.typed}, ptr {self._place(buffer, row)[0]}, align 1")
            return
        pointer, shift = self._place(buffer, self.split(p, stored))
        if stride == 0:
            self._put(pointer, code, shift, stored)
        else:
            self._put_lanes(pointer, code, shift, stored)

    def _put(self, pointer: str, code: Val, shift: Val, stored: DType) -> None:
        """Store one sub-byte element by a read-modify-write of its byte."""
        old = self.value(f"load i8, ptr {pointer}, align 1", u8)
        self.line(f"store {merged(self, old, code, shift, stored).typed}, ptr {pointer}, align 1")

    def _put_lanes(self, pointers: str, code: Val, shift: Val, stored: DType) -> None:
        """Store the active lanes of sub-byte elements in a loop, one after the other, since they may share bytes."""
        top, write, latch, done = (self.new_label(hint) for hint in ("lane", "write", "latch", "done"))
        before, following = self.label, self.name()
        self.branch(top)
        self.start_block(top)
        lane = self.value(f"phi i64 [ 0, %{before} ], [ {following}, %{latch} ]", i64)
        if self.mask is not None:
            self.branch_if(self._lane_of(self.mask, lane), write, latch)
        else:
            self.branch(write)
        self.start_block(write)
        pointer = self.raw(f"extractelement <{self.lanes} x ptr> {pointers}, {lane.typed}")
        self._put(pointer, self._lane_of(code, lane), self._lane_of(shift, lane), stored)
        self.branch(latch)
        self.start_block(latch)
        self.line(f"{following} = add i64 {lane.ref}, 1")
        self.branch_if(self.compare("icmp ult", Val(following, i64), Val(str(self.lanes), i64)), top, done)
        self.start_block(done)

    def _lane_of(self, v: Val, lane: Val) -> Val:
        return self.value(f"extractelement {v.typed}, {lane.typed}", v.dtype) if v.lanes else v

    def view(self, s: View) -> None:
        if s.source.dtype.bits >= 8 or s.source.scope == "register":
            super().view(s)
            return
        p = self.flat(s.start, s.source.element_strides())
        self.pointers[s.buffer] = self._place(s.source, self.split(p, s.source.dtype))[0]  # views begin at whole bytes
