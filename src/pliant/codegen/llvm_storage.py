"""Storage types in registers: the codes of i4, u4, i2, u2, the 8-bit floats and f4, decoded to compute types and encoded again.

A code is a `u8` value (of any number of lanes) in whose low bits the element is. What the codes mean, and how storing rounds, is in
`dtype.py`. `expand` and `squeeze` go between the bytes of packed elements and codes, one for each element.

    decode(b, code, f8e4m3fn)        # <8 x i8> -> <8 x float>
"""

from __future__ import annotations

from typing import NamedTuple

from ..dtype import ALL, DType, f32, i8, u8, u32
from .llvm_float import Floats
from .llvm_types import Val, float_literal

_NAN = 0x7FC00000


class Format(NamedTuple):
    """How a small float is made: `large` is the code that overflow gives, `nan` the one of NaN, which may be that of -0.0."""

    mantissa: int
    bias: int
    large: int
    nan: int
    infinity: bool  # whether the highest exponent is infinity and NaN


FORMATS = {
    ALL["f8e5m2"]: Format(2, 15, 0x7C, 0x7E, True),
    ALL["f8e4m3"]: Format(3, 7, 0x78, 0x7C, True),
    ALL["f8e4m3fn"]: Format(3, 7, 0x7F, 0x7F, False),
    ALL["f4e2m1"]: Format(1, 1, 0x7, 0x8, False),
    ALL["f8e5m2fnuz"]: Format(2, 16, 0x80, 0x80, False),
    ALL["f8e4m3fnuz"]: Format(3, 8, 0x80, 0x80, False),
}
POWERS = ALL["f8e8m0"]


def decode(b: Floats, code: Val, stored: DType) -> Val:
    """The value of codes, whose bits above the element are 0."""
    if stored is POWERS:
        return _decode_power(b, code)
    if stored in FORMATS:
        return _decode_float(b, code, stored, FORMATS[stored])
    if stored.kind == "u":
        return code
    up = Val(str(8 - stored.bits), i8)
    return b.binary("ashr", b.binary("shl", Val(code.ref, i8, code.lanes), up), up)


def encode(b: Floats, value: Val, stored: DType) -> Val:
    """The codes of values; bits above the element are 0."""
    if stored is POWERS:
        return _encode_power(b, value)
    if stored in FORMATS:
        return _encode_float(b, value, stored, FORMATS[stored])
    return b.binary("and", Val(value.ref, u8, value.lanes), _u8((1 << stored.bits) - 1))


def _u8(number: int) -> Val:
    return Val(str(number), u8)


def _u32(number: int) -> Val:
    return Val(str(number % 2**32), u32)


def _decode_float(b: Floats, code: Val, stored: DType, f: Format) -> Val:
    top = 1 << (stored.bits - 1)
    x = b.convert("zext", code, u32)
    magnitude = b.binary("shl", b.binary("and", x, _u32(top - 1)), _u32(23 - f.mantissa))
    normal = b.binary("add", magnitude, _u32((127 - f.bias) << 23))
    # A denormal becomes a number by giving it an exponent and subtracting that again.
    raised = b.convert("bitcast", b.binary("add", magnitude, _u32((128 - f.bias) << 23)), f32)
    small = b.convert("bitcast", b.binary("fsub", raised, Val(float_literal(2.0 ** (1 - f.bias)), f32)), u32)
    bits = b.select(b.compare("icmp ult", magnitude, _u32(1 << 23)), small, normal)
    if f.infinity:
        special = b.binary("add", magnitude, _u32((255 << 23) - (f.large << (23 - f.mantissa))))
        bits = b.select(b.compare("icmp uge", magnitude, _u32(f.large << (23 - f.mantissa))), special, bits)
    elif f.nan < top:
        bits = b.select(b.compare("icmp eq", magnitude, _u32(f.nan << (23 - f.mantissa))), _u32(_NAN), bits)
    elif _has_no_negative_zero(stored, f):
        bits = b.select(b.compare("icmp eq", x, _u32(f.nan)), _u32(_NAN), bits)
    sign = b.binary("shl", b.binary("and", x, _u32(top)), _u32(32 - stored.bits))
    return b.convert("bitcast", b.binary("or", bits, sign), f32)


def _encode_float(b: Floats, value: Val, stored: DType, f: Format) -> Val:
    bits = b.convert("bitcast", value, u32)
    magnitude = b.binary("and", bits, _u32(0x7FFFFFFF))
    # Below the least normal number the addition of a power of two rounds at the right bit.
    magic = 2.0 ** (1 - f.bias - f.mantissa + 23)
    sum_ = b.binary("fadd", b.convert("bitcast", magnitude, f32), Val(float_literal(magic), f32))
    small = b.binary("sub", b.convert("bitcast", sum_, u32), _u32((1 - f.bias - f.mantissa + 23 + 127) << 23))
    odd = b.binary("and", b.binary("lshr", magnitude, _u32(23 - f.mantissa)), _u32(1))
    rounding = _u32(((f.bias - 127) << 23) + (1 << (22 - f.mantissa)) - 1)
    shifted = b.binary("add", b.binary("add", magnitude, rounding), odd)
    normal = b.intrinsic("umin", [b.binary("lshr", shifted, _u32(23 - f.mantissa)), _u32(f.large)])
    code = b.select(b.compare("icmp ult", magnitude, _u32((128 - f.bias) << 23)), small, normal)
    sign = b.binary("and", b.binary("lshr", bits, _u32(32 - stored.bits)), _u32(1 << (stored.bits - 1)))
    if _has_no_negative_zero(stored, f):
        sign = b.select(b.compare("icmp eq", code, _u32(0)), _u32(0), sign)
    nan = b.compare("icmp ugt", magnitude, _u32(0x7F800000))
    return b.convert("trunc", b.select(nan, _u32(f.nan), b.binary("or", code, sign)), u8)


def _has_no_negative_zero(stored: DType, f: Format) -> bool:
    """Whether the code of -0.0 is that of NaN; of f4e2m1 it is what NaN becomes, and still -0.0."""
    return stored.bits == 8 and f.nan == 0x80


def _decode_power(b: Floats, code: Val) -> Val:
    """2^(code - 127), the least of which is denormal in f32; 255 is NaN."""
    x = b.convert("zext", code, u32)
    bits = b.select(b.compare("icmp eq", x, _u32(0)), _u32(1 << 22), b.binary("shl", x, _u32(23)))
    return b.convert("bitcast", b.select(b.compare("icmp eq", x, _u32(255)), _u32(_NAN), bits), f32)


def _encode_power(b: Floats, value: Val) -> Val:
    """The exponent of the nearest power of two, the larger one from the middle on, and of anything above the least one."""
    bits = b.convert("bitcast", value, u32)
    nearest = b.binary("lshr", b.binary("add", bits, _u32(1 << 22)), _u32(23))
    code = b.select(b.compare("icmp ult", bits, _u32((1 << 22) + 1)), _u32(0), nearest)
    positive = b.compare("icmp ult", b.binary("sub", bits, _u32(1)), _u32(0x7F7FFFFF))  # not zero, infinite, NaN or negative
    return b.convert("trunc", b.select(positive, code, _u32(255)), u8)


# Bytes and the elements in them.


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
