"""Data types: names, widths, ranges, and the mapping from the spellings of Python, numpy and torch.

Compute types have arithmetic. Storage types exist only inside buffers, packed, and are widened on load: i4 and i2 to i8, u4 and u2 to u8,
the small floats to f32, all exactly.

A store to a storage type equals ml_dtypes' cast from i8, u8 or f32. Integers keep their low bits. Floats are rounded to nearest even,
denormals included. A result that is too large becomes

    f8e5m2, f8e4m3    infinity          f8e4m3fn    NaN (it has no infinity)          f4e2m1    the largest number, 6
    f8e5m2fnuz, f8e4m3fnuz    NaN (neither has infinity, nor a negative zero, whose code 0x80 is NaN)

NaN is stored as one code, the positive quiet NaN (0x7e, 0x7c, 0x7f); f4e2m1, which has none, gets -0.0. The elements of f8e8m0 are the
powers of two from 2^-127 to 2^127 and NaN (0xff). Numbers are rounded to the nearest of them, ties up, and those between the two least up
as well; smaller ones become 2^-127; zero, negative and too large numbers become NaN.

Elements smaller than a byte are packed from the low bits up. An array of them is passed as bytes (u8) whose last dim is packed: `n`
elements are `n * bits / 8` bytes, a whole number. (ml_dtypes uses a byte for each element: `pack` and `unpack` convert.)

    >>> dtype("float32") is f32, f32.bits, str(f32)
    (True, 32, 'f32')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


class DType:
    """A data type; one object for each, compared by identity, printed as `f32`."""

    __slots__ = ("bits", "code", "kind", "long_name", "name", "storage")

    def __init__(self, name: str, kind: str, bits: int, long_name: str, code: int, *, storage: bool = False) -> None:
        self.name = name
        self.kind = kind  # "b" bool, "i" signed, "u" unsigned, "f" float
        self.bits = bits
        self.long_name = long_name
        self.code = code  # a stable number for files
        self.storage = storage

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return (dtype, (self.name,))

    @property
    def is_float(self) -> bool:
        """True for every floating-point type."""
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in "iu"

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory; 1 for types smaller than a byte, which are packed."""
        return max(1, self.bits // 8)

    @property
    def per_byte(self) -> int:
        """The number of elements in a byte; 1 for types of a byte or more."""
        return max(1, 8 // self.bits)

    def array_dtype(self) -> np.dtype[Any]:
        """The numpy dtype of arrays of this type; packed bytes for types smaller than a byte."""
        return u8.numpy() if self.bits < 8 else self.numpy()

    def array_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the numpy array that holds elements of the given shape; the last dim counts bytes if elements are packed."""
        return tuple(shape) if self.bits >= 8 or not shape else (*shape[:-1], -(-shape[-1] // self.per_byte))

    @property
    def min(self) -> int:
        """The smallest value of an integer type."""
        return -(1 << (self.bits - 1)) if self.kind == "i" else 0

    @property
    def max(self) -> int:
        """The largest value of an integer type."""
        return (1 << (self.bits - (self.kind == "i"))) - 1

    def wrap(self, value: int) -> int:
        """`value` modulo 2^bits, in this integer type's range, as overflow wraps it."""
        value &= (1 << self.bits) - 1
        return value - (1 << self.bits) if self.kind == "i" and value >> (self.bits - 1) else value

    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype of one element (bf16 and the small floats need ml_dtypes)."""
        import numpy as np

        try:
            return np.dtype(self.long_name)
        except TypeError:
            import ml_dtypes

            element: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.long_name))
            return element


# Name, kind, bits, long name, storage. The position is the code in files: append only.
_FIELDS = [
    ("bool", "b", 8, "bool", False),
    ("i8", "i", 8, "int8", False),
    ("i16", "i", 16, "int16", False),
    ("i32", "i", 32, "int32", False),
    ("i64", "i", 64, "int64", False),
    ("u8", "u", 8, "uint8", False),
    ("u16", "u", 16, "uint16", False),
    ("u32", "u", 32, "uint32", False),
    ("u64", "u", 64, "uint64", False),
    ("f16", "f", 16, "float16", False),
    ("bf16", "f", 16, "bfloat16", False),
    ("f32", "f", 32, "float32", False),
    ("f64", "f", 64, "float64", False),
    ("i4", "i", 4, "int4", True),
    ("u4", "u", 4, "uint4", True),
    ("i2", "i", 2, "int2", True),
    ("u2", "u", 2, "uint2", True),
    ("f8e4m3", "f", 8, "float8_e4m3", True),
    ("f8e4m3fn", "f", 8, "float8_e4m3fn", True),
    ("f8e5m2", "f", 8, "float8_e5m2", True),
    ("f4e2m1", "f", 4, "float4_e2m1fn", True),
    ("f8e4m3fnuz", "f", 8, "float8_e4m3fnuz", True),
    ("f8e5m2fnuz", "f", 8, "float8_e5m2fnuz", True),
    ("f8e8m0", "f", 8, "float8_e8m0fnu", True),
]

ALL: dict[str, DType] = {
    name: DType(name, kind, bits, long_name, code, storage=storage) for code, (name, kind, bits, long_name, storage) in enumerate(_FIELDS)
}
_LONG = {d.long_name: d for d in ALL.values()}

bool_ = ALL["bool"]
i8, i16, i32, i64 = ALL["i8"], ALL["i16"], ALL["i32"], ALL["i64"]
u8, u16, u32, u64 = ALL["u8"], ALL["u16"], ALL["u32"], ALL["u64"]
f16, bf16, f32, f64 = ALL["f16"], ALL["bf16"], ALL["f32"], ALL["f64"]


def dtype(spelling: object) -> DType:
    """The data type meant by `f32`, "f32", "float32", np.float32 or torch.float32; raises an error for anything else."""
    if isinstance(spelling, DType):
        return spelling
    name = spelling if isinstance(spelling, str) else _name_of(spelling)
    match = ALL.get(name) or _LONG.get(name)
    if match is None:
        from .support.errors import Error
        from .support.resolve import near

        raise Error(f"`{name}` is not a data type", facts=["data types: " + ", ".join(ALL)], help=near(name, [*ALL, *_LONG]))
    return match


def _name_of(spelling: object) -> str:
    """Returns the name of a data type from a type object of Python, numpy or torch."""
    if spelling is bool:
        return "bool"
    text = getattr(spelling, "name", None) or getattr(spelling, "__name__", None) or str(spelling)
    return str(text).removeprefix("torch.").rstrip("_")


def pack(array: Any, spelling: object) -> np.ndarray[Any, Any]:
    """Packs an array of i4, u4, i2, u2 or f4e2m1 (one element per byte, as ml_dtypes stores them, or numbers) into bytes.

    Raises a ShapeError if the last dim is no multiple of the number of elements in a byte.
    """
    import numpy as np

    to = dtype(spelling)
    per = to.per_byte
    codes = np.ascontiguousarray(np.asarray(array).astype(to.numpy())).view(np.uint8) & ((1 << to.bits) - 1)
    if not codes.ndim or codes.shape[-1] % per:
        from .support.errors import ShapeError

        raise ShapeError(f"the last dim of an array of {to} is packed: it must be a multiple of {per}", facts=[f"shape {codes.shape}"])
    parts = codes.reshape(*codes.shape[:-1], codes.shape[-1] // per, per) << (np.arange(per, dtype=np.uint8) * to.bits)
    return np.asarray(np.bitwise_or.reduce(parts, axis=-1), np.uint8)


def unpack(packed: np.ndarray[Any, Any], spelling: object) -> np.ndarray[Any, Any]:
    """Unpacks bytes into an array of ml_dtypes' type, one element per byte; the last dim grows by the number of elements in a byte."""
    import numpy as np

    stored = dtype(spelling)
    per, last = stored.per_byte, packed.shape[-1] * stored.per_byte
    codes = (packed[..., None] >> (np.arange(per, dtype=np.uint8) * stored.bits)) & ((1 << stored.bits) - 1)
    return np.ascontiguousarray(codes.reshape(*packed.shape[:-1], last)).view(stored.numpy())
