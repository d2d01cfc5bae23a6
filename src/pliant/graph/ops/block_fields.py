"""The fields of block formats (`quantization/formats.py`) as expressions: the codes, scales and minimums in the bytes of a block.

at = partial(read, 0, row, block)                             # at(byte) reads one byte of the block
factor_value(format.scale, g, at) * code_value(format.codes, k, at)
"""

from __future__ import annotations

from typing import Any

from ...dtype import DType, f16, f32, i32, i64, u8, u16, u32
from ...quantization.formats import BY_NAME, Bits, Factor, Format, Packed
from ...support.errors import Error
from ...sym.expr import BitAnd, Bitcast, BitOr, BitXor, Cast, Const, Eq, Expr, Lt, Max, Min, Select, Shl, Shr


def format_of(name: str) -> Format:
    """The block format with this name; raises an Error if there is none."""
    format = BY_NAME.get(name)
    if format is None or format.codes is None:
        names = ", ".join(f.name for f in BY_NAME.values() if f.codes is not None)
        raise Error(f"there is no block format `{name}`", help=f"one of {names}")
    return format


def group_of(format: Format) -> int:
    """Returns the number of elements of a block that share a scale."""
    assert format.scale is not None
    return format.length // (format.scale.groups.count if format.scale.groups is not None else 1)


def half_bytes(format: Format) -> bool:
    """True if two packed codes share a byte: codes of at most 4 bits that are not looked up in a table."""
    assert format.codes is not None
    return format.codes.width <= 4 and not format.codes.table


def zero_of(format: Format) -> int:
    """The zero point of packed codes, which are unsigned: value = (code - zero) * scale."""
    codes = format.codes
    assert codes is not None
    return 128 if codes.signed or codes.table else codes.bias


def packed_dtype(factor: Factor) -> DType:
    """The dtype of packed scales or minimums: f16 if the file stores them as such, else f32."""
    return f16 if factor.groups is None and factor.dtype is f16 else f32


# Decoding the bytes of a block, as expressions. `at(byte)` reads one byte of it.


def byte_const(value: int) -> Expr:
    """Returns a literal of type u8."""
    return Const(value, u8)


def _bits(part: Bits, number: Expr, at: Any) -> Expr:
    j = number - part.first
    byte = part.offset + j // (part.run * part.steps) * part.run + j % part.run
    shift = Cast(u8, part.shift + part.width * (j // part.run % part.steps))
    return Shl(BitAnd(Shr(at(byte), shift), byte_const((1 << part.width) - 1)), byte_const(part.into))


def _code(packed: Packed, number: Expr, at: Any) -> Expr:
    """Returns code `number` of a block as u8, joined from its bit fields, before a lookup table or a sign is applied."""
    parts = [p for p in packed.bits if p.count == packed.count]
    split = [p for p in packed.bits if p.count != packed.count]
    bits: Expr = byte_const(0)
    for p in parts:
        bits = BitOr(bits, _bits(p, number, at)) if p.into or bits is not byte_const(0) else _bits(p, number, at)
    for p in split:
        inside = Select(Lt(number, Const(p.first, i64)), byte_const(0), _bits(p, _least(number, p.first), at))
        if p.first == 0:
            inside = Select(Lt(number, Const(p.count, i64)), _bits(p, _most(number, p.count - 1), at), byte_const(0))
        bits = BitOr(bits, inside)
    return bits


def _least(e: Expr, low: int) -> Expr:
    return Max(e, Const(low, i64))


def _most(e: Expr, high: int) -> Expr:
    return Select(Lt(Const(high, i64), e), Const(high, i64), e)


def unsigned_code(packed: Packed, number: Expr, at: Any) -> Expr:
    """Returns code `number` of a block as it is packed: u8, larger than its value by `zero_of`.

    Codes of a lookup table give the table's value plus 128; signed codes get their highest bit flipped.
    """
    bits = _code(packed, number, at)
    if packed.table:
        code: Expr = byte_const(packed.table[0] + 128)
        for n, value in enumerate(packed.table[1:], 1):
            code = Select(Eq(bits, byte_const(n)), byte_const(value + 128), code)
        return code
    return BitXor(bits, byte_const(128)) if packed.signed else bits


def code_value(packed: Packed, number: Expr, at: Any) -> Expr:
    """Returns the value of code `number` of a block as an f32 expression, without the scale."""
    if packed.table or packed.signed:
        return Cast(f32, Cast(i32, unsigned_code(packed, number, at)) - 128)
    return Cast(f32, Cast(i32, _code(packed, number, at)) - packed.bias)


def factor_value(factor: Factor, group: Expr, at: Any) -> Expr:
    """Returns the scale or minimum of a group as an expression.

    A float is as stored, an exponent (u8) gives its power of two in f32. If the groups have codes, the result is this times the code of the
    group, in f32. `at` gives the byte at an offset.
    """
    size = factor.dtype.itemsize
    if factor.dtype is u8:  # an exponent
        e = Cast(u32, at(Const(factor.offset, i64)))
        small = Shl(Const(0x00200000, u32), Min(e, Const(1, u32)))
        power = Bitcast(f32, Select(Lt(e, Const(2, u32)), small, Shl(Max(e, Const(1, u32)) - 1, Const(23, u32))))
        return power if factor.groups is None else power * code_value(factor.groups, group, at)
    whole = u16 if size == 2 else u32
    bits: Expr = Cast(whole, at(Const(factor.offset, i64)))
    for k in range(1, size):
        bits = BitOr(bits, Shl(Cast(whole, at(Const(factor.offset + k, i64))), Const(8 * k, whole)))
    stored = Bitcast(factor.dtype, bits)
    return stored if factor.groups is None else Cast(f32, stored) * code_value(factor.groups, group, at)
