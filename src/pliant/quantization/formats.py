"""Tensor types of model files as data: the contents of a block and the position of each bit. The numbers are those of GGUF.

A plain type is a row of numbers of one dtype. A quantized type is a row of blocks of `length` elements in `size` bytes. Element `i` of
group `g` has the value, in f32 and with each step rounded,

    value[i] = (scale * scales[g]) * codes[i]  +  sign * (minimum * minimums[g])

where parts that a format does not have are left out. `codes`, `scales` and `minimums` are `Packed`: small integers whose bits are at one
or more places of the block. A place (`Bits`) covers consecutive numbers in runs: `run` bytes hold a number each at the first shift, the
same bytes hold the next `run` numbers at the next shift, and after `steps` shifts the following bytes continue.

    byte of number j  =  offset + j // (run * steps) * run + j % run
    shift             =  shift + width * (j // run % steps)

Dequantization and the quantized kernels read the same records; no other code knows a format.

    >>> FORMATS[3].name, FORMATS[3].length, FORMATS[3].size
    ('Q4_1', 32, 20)
    >>> FORMATS[3].codes.places(17)          # code 17: the high half of byte 5
    [Place(byte=5, shift=4, width=4, into=0)]
"""

from __future__ import annotations

from typing import NamedTuple

from .. import dtype
from ..dtype import DType
from ..support.record import dataclass


class Place(NamedTuple):
    """A record of `width` bits of a byte of a block, from bit `shift` up, and of the bit of the number where they go."""

    byte: int
    shift: int
    width: int
    into: int


@dataclass(frozen=True, slots=True)
class Bits:
    """A record of where some bits of the numbers `first .. first + count` of a block are: byte offset, width, and order."""

    offset: int
    width: int
    run: int
    count: int
    steps: int = 1
    shift: int = 0
    first: int = 0
    into: int = 0

    def place(self, number: int) -> Place:
        """Returns the byte and bit position of these bits of number `number` of the block."""
        j = number - self.first
        byte = self.offset + j // (self.run * self.steps) * self.run + j % self.run
        return Place(byte, self.shift + self.width * (j // self.run % self.steps), self.width, self.into)

    @property
    def size(self) -> int:
        """The number of bytes from `offset` on that hold these bits."""
        return self.count // self.steps


@dataclass(frozen=True, slots=True)
class Packed:
    """A description of small integers packed in a block: a code means `table[code]`, or `code - bias` without a table."""

    count: int
    bits: tuple[Bits, ...]
    bias: int = 0
    signed: bool = False
    table: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """The number of bits of a code, all parts together."""
        return max(part.into + part.width for part in self.bits)

    def places(self, number: int) -> list[Place]:
        """Returns the byte and bit positions of all parts of number `number` of the block, low bits first."""
        return [part.place(number) for part in self.bits if part.first <= number < part.first + part.count]


@dataclass(frozen=True, slots=True)
class Factor:
    """A record of a scale in a block: a float at byte `offset`, times a small integer for each group of elements if there are `groups`.

    Of the type u8 it is an exponent: the byte e stands for 2^(e - 128).
    """

    offset: int
    groups: Packed | None = None
    dtype: DType = dtype.f16


@dataclass(frozen=True, slots=True)
class Format:
    """A tensor type of model files: its number, its name, and a block's contents: an `element`, or `codes` and their `scale`."""

    number: int
    name: str
    length: int
    size: int
    element: DType | None = None
    codes: Packed | None = None
    scale: Factor | None = None
    minimum: Factor | None = None
    sign: int = 1

    @property
    def known(self) -> bool:
        """False for types that cannot be decoded: only their name and size are known."""
        return self.element is not None or self.codes is not None


def _plain(number: int, name: str, element: DType) -> Format:
    """Returns the format of a tensor type without blocks: one element of a dtype."""
    return Format(number, name, 1, element.itemsize, element=element)


def _halves(offset: int, count: int, run: int) -> Bits:
    """Codes of 4 bits: `run` bytes hold `run` codes in their low halves, then `run` codes in their high halves."""
    return Bits(offset, 4, run, count, steps=2)


def _scales_of_six(low: int, other: int) -> Packed:
    """Describes where eight 6-bit numbers are in a block: the first four are the low 6 bits of the four bytes at `low`.

    The other four have their high 2 bits in the top bits of those bytes, and their low 4 bits in the bytes 12 to 15, from bit `other` up.
    """
    return Packed(8, (Bits(low, 6, 4, 4), Bits(12, 4, 4, 4, shift=other, first=4), Bits(low, 2, 4, 4, shift=6, first=4, into=4)))


# The 6-bit scales and minimums of Q4_K and Q5_K.
_SIX_SCALE, _SIX_MINIMUM = Factor(0, _scales_of_six(4, 0)), Factor(2, _scales_of_six(8, 4))
_CURVE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)  # the 16 levels of IQ4
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # twice the floats of 4 bits: sign, 2 of exponent, 1 of mantissa
_FIFTH = Bits(2, 1, 1, 32, steps=8, into=4)  # the fifth bit of 32 codes: bit i of the 4 bytes at 2

_KNOWN = [
    _plain(0, "F32", dtype.f32),
    _plain(1, "F16", dtype.f16),
    _plain(30, "BF16", dtype.bf16),
    _plain(28, "F64", dtype.f64),
    _plain(24, "I8", dtype.i8),
    _plain(25, "I16", dtype.i16),
    _plain(26, "I32", dtype.i32),
    _plain(27, "I64", dtype.i64),
    Format(2, "Q4_0", 32, 18, codes=Packed(32, (_halves(2, 32, 16),), bias=8), scale=Factor(0)),
    Format(3, "Q4_1", 32, 20, codes=Packed(32, (_halves(4, 32, 16),)), scale=Factor(0), minimum=Factor(2)),
    Format(6, "Q5_0", 32, 22, codes=Packed(32, (_halves(6, 32, 16), _FIFTH), bias=16), scale=Factor(0)),
    Format(
        7,
        "Q5_1",
        32,
        24,
        codes=Packed(32, (_halves(8, 32, 16), Bits(4, 1, 1, 32, steps=8, into=4))),
        scale=Factor(0),
        minimum=Factor(2),
    ),
    Format(8, "Q8_0", 32, 34, codes=Packed(32, (Bits(2, 8, 32, 32),), signed=True), scale=Factor(0)),
    Format(
        10,
        "Q2_K",
        256,
        84,
        codes=Packed(256, (Bits(16, 2, 32, 256, steps=4),)),
        scale=Factor(80, Packed(16, (Bits(0, 4, 16, 16),))),
        minimum=Factor(82, Packed(16, (Bits(0, 4, 16, 16, shift=4),))),
        sign=-1,
    ),
    Format(
        11,
        "Q3_K",
        256,
        110,
        codes=Packed(256, (Bits(32, 2, 32, 256, steps=4), Bits(0, 1, 32, 256, steps=8, into=2)), bias=4),
        scale=Factor(108, Packed(16, (Bits(96, 4, 8, 16, steps=2), Bits(104, 2, 4, 16, steps=4, into=4)), bias=32)),
    ),
    Format(12, "Q4_K", 256, 144, codes=Packed(256, (_halves(16, 256, 32),)), scale=_SIX_SCALE, minimum=_SIX_MINIMUM, sign=-1),
    Format(
        13,
        "Q5_K",
        256,
        176,
        codes=Packed(256, (_halves(48, 256, 32), Bits(16, 1, 32, 256, steps=8, into=4))),
        scale=_SIX_SCALE,
        minimum=_SIX_MINIMUM,
        sign=-1,
    ),
    Format(
        14,
        "Q6_K",
        256,
        210,
        codes=Packed(256, (_halves(0, 256, 64), Bits(128, 2, 32, 256, steps=4, into=4)), bias=32),
        scale=Factor(208, Packed(16, (Bits(192, 8, 16, 16),), signed=True)),
    ),
    Format(39, "MXFP4", 32, 17, codes=Packed(32, (_halves(1, 32, 16),), table=_E2M1), scale=Factor(0, dtype=dtype.u8)),
    Format(20, "IQ4_NL", 32, 18, codes=Packed(32, (_halves(2, 32, 16),), table=_CURVE), scale=Factor(0)),
    Format(
        23,
        "IQ4_XS",
        256,
        136,
        codes=Packed(256, (_halves(8, 256, 16),), table=_CURVE),
        scale=Factor(0, Packed(8, (Bits(4, 4, 1, 8, steps=2), Bits(2, 2, 1, 8, steps=4, into=4)), bias=32)),
    ),
]

# Types that a file may contain and Pliant cannot decode: the name for the message, the size so that the rest of the file can be checked.
_UNREAD = [
    Format(16, "IQ2_XXS", 256, 66),
    Format(17, "IQ2_XS", 256, 74),
    Format(18, "IQ3_XXS", 256, 98),
    Format(19, "IQ1_S", 256, 50),
    Format(21, "IQ3_S", 256, 110),
    Format(22, "IQ2_S", 256, 82),
    Format(29, "IQ1_M", 256, 56),
    Format(34, "TQ1_0", 256, 54),
    Format(35, "TQ2_0", 256, 66),
    Format(40, "NVFP4", 64, 36),
    Format(41, "Q1_0", 128, 18),
]

# Types that files no longer contain, or never did.
RETIRED = {
    4: "Q4_2",
    5: "Q4_3",
    9: "Q8_1",
    15: "Q8_K",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}


def _plain_codes(number: int, bits: int, length: int, zeros: bool) -> Format:
    """Consecutive codes with an f32 scale, as MatMulNBits stores them.

    Without `zeros` the codes are offset by half their range; with `zeros` each block has an f32 minimum.
    """
    code_bytes = length * bits // 8
    codes = Packed(length, (Bits(0, bits, 1, length, steps=8 // bits),), bias=0 if zeros else 1 << (bits - 1))
    size = code_bytes + (8 if zeros else 4)
    minimum = Factor(code_bytes + 4, dtype=dtype.f32) if zeros else None
    name = f"U{bits}_{length}{'_M' if zeros else ''}"
    return Format(number, name, length, size, codes=codes, scale=Factor(code_bytes, dtype=dtype.f32), minimum=minimum)


# Types that no GGUF file contains: blocks as in com.microsoft's MatMulNBits. Their numbers are Pliant's own, outside of GGUF's range.
BLOCK_SIZES = (16, 32, 64, 128, 256)
_OURS = [
    _plain_codes(1000 + 2 * (bits * 1000 + length) + zeros, bits, length, bool(zeros))
    for bits in (4, 8)
    for length in BLOCK_SIZES
    for zeros in (0, 1)
]

FORMATS: dict[int, Format] = {f.number: f for f in sorted(_KNOWN + _UNREAD, key=lambda f: f.number)}
BY_NAME: dict[str, Format] = {f.name: f for f in (*FORMATS.values(), *_OURS)}
