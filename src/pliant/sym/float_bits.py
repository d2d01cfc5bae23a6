"""Bit patterns of floats: rounding a Python float to f16, bf16, f32 or f64, and back."""

from __future__ import annotations

import math
import struct

from ..dtype import DType

_PACK = {16: "<e", 32: "<f", 64: "<d"}  # codes of `struct` by width


def float_bits(value: float, dtype: DType) -> int:
    """The bit pattern of `value` rounded to the float type `dtype`; overflow gives infinity, and every NaN the same bits."""
    if math.isnan(value):
        value = math.nan
    if dtype.name == "bf16":
        bits = int.from_bytes(_pack_f32(value), "little")
        return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 if not math.isnan(value) else 0x7FC0
    if dtype.bits == 32:
        return int.from_bytes(_pack_f32(value), "little")
    try:
        return int.from_bytes(struct.pack(_PACK[dtype.bits], value), "little")
    except OverflowError:  # f16
        return int.from_bytes(struct.pack("<e", math.copysign(math.inf, value)), "little")


def _pack_f32(value: float) -> bytes:
    """The bytes of an f32; overflow gives infinity."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def bits_float(bits: int, dtype: DType) -> float:
    """The value of a bit pattern of the float type `dtype`."""
    if dtype.name == "bf16":
        return float(struct.unpack("<f", (bits << 16).to_bytes(4, "little"))[0])
    return float(struct.unpack(_PACK[dtype.bits], bits.to_bytes(dtype.bits // 8, "little"))[0])
