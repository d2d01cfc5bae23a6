"""Weight quantization: encodes floats as blocks of a format, the inverse of `dequantize`, for the formats that Pliant quantizes to.

    raw = encode("Q4_1", weight)          # f32[rows, k], k a multiple of 32  ->  u8[rows, k // 32, 20]

Q8_0 has a scale for each block, Q4_1 a scale and a minimum, both stored as f16: the codes are computed with the rounded scale.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..support.errors import Error

BLOCK = 32  # elements of a block in both formats


def encode(format: str, weight: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Quantizes a matrix whose rows are whole blocks to the bytes of a block format, Q8_0 or Q4_1: u8[rows, blocks, bytes].

    Raises an Error for another format or shape.
    """
    if weight.ndim != 2 or weight.shape[1] % BLOCK:
        raise Error(f"a matrix of whole blocks of {BLOCK} is expected, not {weight.shape}")
    blocks = np.ascontiguousarray(weight, np.float32).reshape(len(weight), -1, BLOCK)
    if format == "Q8_0":
        return _q8_0(blocks)
    if format == "Q4_1":
        return _q4_1(blocks)
    raise Error(f"floats are not encoded as {format}", help="as Q8_0 or Q4_1")


def _q8_0(blocks: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Quantizes blocks to the bytes of Q8_0: an f16 scale and 32 signed bytes."""
    scale = _half(np.abs(blocks).max(axis=-1, keepdims=True) / 127)
    codes = np.clip(np.rint(_over(blocks, scale)), -127, 127).astype(np.int8)
    return np.concatenate([_bytes(scale), codes.view(np.uint8)], axis=-1)


def _q4_1(blocks: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Quantizes blocks to the bytes of Q4_1: an f16 scale, an f16 minimum and 32 codes of 4 bits."""
    low, high = blocks.min(axis=-1, keepdims=True), blocks.max(axis=-1, keepdims=True)
    least, scale = _half(low), _half((high - low) / 15)
    codes = np.clip(np.rint(_over(blocks - least.astype(np.float32), scale)), 0, 15).astype(np.uint8)
    half = BLOCK // 2
    return np.concatenate([_bytes(scale), _bytes(least), codes[..., :half] | (codes[..., half:] << 4)], axis=-1)


def _half(x: NDArray[np.float32]) -> NDArray[np.float16]:
    """Returns floats as f16, clamped to its finite range."""
    largest = float(np.finfo(np.float16).max)
    return np.clip(x, -largest, largest).astype(np.float16)


def _over(x: NDArray[np.float32], scale: NDArray[np.float16]) -> NDArray[np.float32]:
    """Returns x / scale, 0 where the scale is 0."""
    wide = scale.astype(np.float32)
    return np.divide(x, wide, out=np.zeros_like(x), where=wide != 0)


def _bytes(x: NDArray[np.float16]) -> NDArray[np.uint8]:
    """Returns the bytes of f16 numbers."""
    raw: NDArray[np.uint8] = np.ascontiguousarray(x).view(np.uint8)
    return raw
