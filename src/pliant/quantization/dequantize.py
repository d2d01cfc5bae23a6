"""Dequantization: from the bytes of a quantized tensor to f32, by the records of `formats.py`.

Each step is rounded to f32 in the order that `formats.py` states, so that the values equal those of every other reader, bit for bit.

    dequantize(BY_NAME["Q4_1"], np.zeros((576, 360), np.uint8))       # -> f32[576, 576]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.errors import ModelFileError, UnsupportedError
from .formats import FORMATS, Bits, Factor, Format, Packed

_ELEMENTS = 1 << 20  # elements decoded at a time, so that temporaries take only a few MB


def dequantize(format: Format, data: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Returns the f32 values of rows of bytes; the last dim of `data` counts bytes, that of the result elements.

    Raises UnsupportedError for a format that cannot be decoded, ModelFileError if rows are not whole blocks.
    """
    if not format.known:
        raise unread(format)
    if data.dtype != np.uint8 or data.ndim == 0 or data.shape[-1] % format.size:
        raise ModelFileError(
            f"rows of {data.shape[-1] if data.ndim else 0} bytes are not whole blocks of {format.name} ({format.size} bytes)"
        )
    rows = np.ascontiguousarray(data).reshape(-1, format.size)
    out = np.empty((len(rows), format.length), np.float32)
    step = _ELEMENTS // format.length
    for start in range(0, len(rows), step):
        out[start : start + step] = _values(format, rows[start : start + step])
    return out.reshape(*data.shape[:-1], data.shape[-1] // format.size * format.length)


def unread(format: Format, tensor: str = "") -> UnsupportedError:
    """Returns the error for a tensor type that cannot be decoded."""
    known = ", ".join(f.name for f in FORMATS.values() if f.known)
    whose = f"tensor `{tensor}` is" if tensor else "a tensor is"
    return UnsupportedError(f"gguf: {whose} of type {format.name}, which is not supported", facts=[f"supported types: {known}"])


def unpack(packed: Packed, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The small integers of each block as f32[blocks, packed.count] (f32 holds all of them exactly)."""
    codes = np.zeros((len(blocks), packed.count), np.uint8)
    for part in packed.bits:
        codes[:, part.first : part.first + part.count] |= _bits(part, blocks) << np.uint8(part.into)
    if packed.table:
        return np.asarray(packed.table, np.float32)[codes]
    numbers = codes.view(np.int8) if packed.signed else codes
    return numbers.astype(np.float32) - np.float32(packed.bias)


def _bits(part: Bits, blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns the bits of one part of all codes: u8[blocks, part.count]."""
    raw = blocks[:, part.offset : part.offset + part.size].reshape(len(blocks), -1, 1, part.run)
    shifts = (part.shift + part.width * np.arange(part.steps, dtype=np.uint8)).astype(np.uint8).reshape(1, 1, -1, 1)
    mask = np.uint8((1 << part.width) - 1)
    values: NDArray[np.uint8] = ((raw >> shifts) & mask).reshape(len(blocks), part.count)
    return values


def _values(format: Format, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Dequantizes blocks to f32, one row of values for each."""
    if format.element is not None:
        return _floats(format.element.name, blocks)
    assert format.codes is not None and format.scale is not None
    codes = unpack(format.codes, blocks)
    with np.errstate(all="ignore"):  # a hostile scale may be infinite or NaN; then so is the value, as in other readers
        scaled = _times(codes, format.scale, blocks)
        if format.minimum is None:
            return scaled
        minimum = _factor(format.minimum, blocks)  # [blocks, groups]
        grouped = scaled.reshape(*minimum.shape, -1)
        return (grouped + minimum[..., None] if format.sign > 0 else grouped - minimum[..., None]).reshape(scaled.shape)


def _times(codes: NDArray[np.float32], factor: Factor, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Returns the codes times the scale of their group."""
    scale = _factor(factor, blocks)  # [blocks, groups]
    result: NDArray[np.float32] = (scale[..., None] * codes.reshape(*scale.shape, -1)).reshape(codes.shape)
    return result


def _factor(factor: Factor, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The factor of each group: f32[blocks, groups]; a single group if there are no group integers."""
    raw = blocks[:, factor.offset : factor.offset + factor.dtype.itemsize]
    scale = _floats(factor.dtype.name, np.ascontiguousarray(raw))
    return scale if factor.groups is None else scale * unpack(factor.groups, blocks)


def exponents(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Returns the powers of two 2^(e - 128) that bytes e stand for, in f32; the two smallest are subnormal."""
    wide = raw.astype(np.uint32)
    return np.where(wide < 2, np.uint32(0x00200000) << wide, (wide - 1) << np.uint32(23)).astype(np.uint32).view(np.float32)


def _floats(name: str, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Returns the raw bytes of each block as numbers of a plain type (f16, bf16, i8, …), converted to f32.

    Numbers of type u8 are exponents: powers of two.
    """
    if name == "u8":
        return exponents(raw)
    if name == "bf16":
        return (raw.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    kinds: dict[str, Any] = {"f16": "<f2", "f32": "<f4", "f64": "<f8", "i8": "i1", "i16": "<i2", "i32": "<i4", "i64": "<i8"}
    with np.errstate(all="ignore"):
        numbers: NDArray[np.float32] = raw.view(kinds[name]).astype(np.float32)
    return numbers
