"""The meaning of quantized blocks, against the `gguf` package bit for bit, and against the records read one element at a time."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from numpy.typing import NDArray

from counts import count
from pliant import UnsupportedError
from pliant.quantization.dequantize import dequantize
from pliant.quantization.formats import FORMATS, Factor, Format, Packed

KNOWN = [f for f in FORMATS.values() if f.known]
QUANTISED = [f for f in KNOWN if f.codes is not None]


def blocks(format: Format, number: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng((seed, format.number)).integers(0, 256, (number, format.size), np.uint8)


def same_bits(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    """Equal bit for bit; which NaN a NaN is does not count."""
    return bool(np.all((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))))


@pytest.mark.parametrize("format", [f for f in KNOWN if f.codes or f.name in ("F32", "F16", "BF16")], ids=lambda f: f.name)
def test_random_blocks_are_those_of_the_gguf_package(format: Format) -> None:
    gguf = pytest.importorskip("gguf")
    data = blocks(format, count(10_000, 1_000_000), 1)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(data, gguf.GGMLQuantizationType(format.number))
    assert same_bits(dequantize(format, data), np.ascontiguousarray(expected, np.float32))


@pytest.mark.parametrize("format", [f for f in KNOWN if f.element is not None and f.name != "BF16"], ids=lambda f: f.name)
def test_plain_types_are_numpys(format: Format) -> None:
    assert format.element is not None
    data = blocks(format, 500, 2)
    with np.errstate(all="ignore"):
        assert same_bits(dequantize(format, data), data.view(format.element.numpy()).astype(np.float32))


def number(packed: Packed, block: bytes, i: int) -> int:
    """A small integer of a block, bit by bit as the record says."""
    code = sum(((block[p.byte] >> p.shift) & ((1 << p.width) - 1)) << p.into for p in packed.places(i))
    if packed.table:
        return packed.table[code]
    return (code - 256 if packed.signed and code > 127 else code) - packed.bias


def factor(what: Factor, block: bytes, group: int) -> np.float32:
    if what.dtype.name == "u8":  # an exponent
        return np.float32(np.ldexp(1.0, block[what.offset] - 128))
    scale = np.float32(struct.unpack_from("<e", block, what.offset)[0])
    return scale if what.groups is None else scale * np.float32(number(what.groups, block, group))


@pytest.mark.parametrize("format", QUANTISED, ids=lambda f: f.name)
def test_records_say_where_each_bit_lies(format: Format) -> None:
    assert format.codes is not None and format.scale is not None
    data = blocks(format, 3, 3)
    values = dequantize(format, data)
    for raw, row in zip(data, values, strict=True):
        block = raw.tobytes()
        for i in range(format.length):
            groups = format.scale.groups.count if format.scale.groups else 1
            group = i * groups // format.length
            with np.errstate(all="ignore"):
                value = factor(format.scale, block, group) * np.float32(number(format.codes, block, i))
                if format.minimum is not None:
                    value = value + np.float32(format.sign) * factor(format.minimum, block, group)
            assert np.array_equal(value, row[i], equal_nan=True), (format.name, i)


@pytest.mark.parametrize("format", QUANTISED, ids=lambda f: f.name)
def test_every_bit_of_a_block_is_used_once(format: Format) -> None:
    used = np.zeros(format.size * 8, int)
    for packed in (format.codes, format.scale and format.scale.groups, format.minimum and format.minimum.groups):
        for i in range(packed.count if packed else 0):
            assert packed
            for p in packed.places(i):
                used[p.byte * 8 + p.shift : p.byte * 8 + p.shift + p.width] += 1
    for part in (format.scale, format.minimum):
        if part:
            used[part.offset * 8 : (part.offset + part.dtype.itemsize) * 8] += 1
    assert used.tolist() == [1] * len(used)


def test_rows_keep_their_shape() -> None:
    q8 = FORMATS[8]
    assert dequantize(q8, np.zeros((3, 5, 68), np.uint8)).shape == (3, 5, 64)
    with pytest.raises(ValueError, match="whole blocks of Q8_0"):
        dequantize(q8, np.zeros((2, 33), np.uint8))
    with pytest.raises(UnsupportedError, match="IQ1_S"):
        dequantize(FORMATS[19], np.zeros((1, 50), np.uint8))
