"""Codes below a byte in registers: between the bytes in memory and one u8 for each element.

Only u4 and u2 are left of the storage types (`loop/passes/decode_storage.py`). A code is a `u8` value (of any number of lanes), whose bits
above the element are 0 once it is loaded.
"""

from __future__ import annotations

from ..dtype import DType, u8
from .llvm_float import Floats
from .llvm_types import Val


def code_of(b: Floats, value: Val, stored: DType) -> Val:
    """The low bits of values, as many as an element has."""
    return b.binary("and", Val(value.ref, u8, value.lanes), _u8((1 << stored.bits) - 1))


def _u8(number: int) -> Val:
    return Val(str(number), u8)


def expand(b: Floats, packed: Val, stored: DType) -> Val:
    """The codes of the elements in a row of bytes."""
    per = stored.per_byte
    lanes = packed.lanes * per
    order = ", ".join(f"i32 {n // per}" for n in range(lanes))
    spread = b.value(f"shufflevector {packed.typed}, {packed.type} poison, <{lanes} x i32> <{order}>", u8, lanes)
    shifts = ", ".join(f"i8 {n % per * stored.bits}" for n in range(lanes))
    return at_shift(b, spread, Val(f"<{shifts}>", u8, lanes), stored)


def at_shift(b: Floats, byte: Val, shift: Val, stored: DType) -> Val:
    """The code that begins at bit `shift` of a byte."""
    return b.binary("and", b.binary("lshr", byte, shift), _u8((1 << stored.bits) - 1))


def squeeze(b: Floats, codes: Val, stored: DType) -> Val:
    """The bytes of a row of codes."""
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
    """The byte `old` with a code at bit `shift`."""
    hole = b.binary("shl", _u8((1 << stored.bits) - 1), shift)
    kept = b.binary("and", old, b.binary("xor", hole, _u8(255)))
    return b.binary("or", kept, b.binary("shl", code, shift))
