"""Unpacks and packs sub-byte codes (u4, u2): between bytes as in memory and one u8 per element in registers.

The pass `loop/passes/decode_storage.py` leaves only these two storage types. A code is a `u8` value (scalar or vector) whose bits
above the element are 0 once it is loaded.
"""

from __future__ import annotations

from ..dtype import DType, u8
from .llvm_float import Floats
from .llvm_types import Val


def code_of(b: Floats, value: Val, stored: DType) -> Val:
    """Emit the low bits of a value that a sub-byte element stores."""
    return b.binary("and", Val(value.ref, u8, value.lanes), _u8((1 << stored.bits) - 1))


def _u8(number: int) -> Val:
    return Val(str(number), u8)


def expand(b: Floats, packed: Val, stored: DType) -> Val:
    """Emit the unpacking of a vector of bytes to a vector of sub-byte codes, one byte each."""
    per = stored.per_byte
    lanes = packed.lanes * per
    order = ", ".join(f"i32 {n // per}" for n in range(lanes))
    spread = b.value(f"shufflevector {packed.typed}, {packed.type} poison, <{lanes} x i32> <{order}>", u8, lanes)
    shifts = ", ".join(f"i8 {n % per * stored.bits}" for n in range(lanes))
    return at_shift(b, spread, Val(f"<{shifts}>", u8, lanes), stored)


def at_shift(b: Floats, byte: Val, shift: Val, stored: DType) -> Val:
    """Emit the extraction of the sub-byte code that begins at bit `shift` of a byte."""
    return b.binary("and", b.binary("lshr", byte, shift), _u8((1 << stored.bits) - 1))


def squeeze(b: Floats, codes: Val, stored: DType) -> Val:
    """Emit the packing of a vector of sub-byte codes, one byte each, to a vector of bytes."""
    per = stored.per_byte
    count = codes.lanes // per
    total: Val | None = None
    for part in range(per):
        order = ", ".join(f"i32 {n * per + part}" for n in range(count))
        picked = b.value(f"shufflevector {codes.typed}, {codes.type} poison, <{count} x i32> <{order}>", u8, count)
        moved = b.binary("shl", picked, _u8(part * stored.bits)) if part else picked
        total = moved if total is None else b.binary("or", total, moved)
    assert total is not None
    return total


def merged(b: Floats, old: Val, code: Val, shift: Val, stored: DType) -> Val:
    """Emit the byte `old` with a sub-byte code inserted at bit `shift`."""
    hole = b.binary("shl", _u8((1 << stored.bits) - 1), shift)
    others = b.binary("and", old, b.binary("xor", hole, _u8(255)))
    return b.binary("or", others, b.binary("shl", code, shift))
