"""Data types: their names, widths, ranges, and how Python's, numpy's and torch's spellings map to them.

Compute types are those that arithmetic is defined on; storage types exist only inside buffers,
packed, and are widened on load.

    >>> dtype("float32") is f32, f32.bits, str(f32)
    (True, 32, 'f32')
"""

from __future__ import annotations

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
        self.code = code  # stable number, for files
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
        """Bytes of one element in memory (compute types only: storage types are packed)."""
        return max(1, self.bits // 8)

    @property
    def min(self) -> int:
        """The smallest integer value."""
        return -(1 << (self.bits - 1)) if self.kind == "i" else 0

    @property
    def max(self) -> int:
        """The largest integer value."""
        return (1 << (self.bits - (self.kind == "i"))) - 1

    def wrap(self, value: int) -> int:
        """`value` modulo 2^bits, in this integer type's range: what overflow gives."""
        value &= (1 << self.bits) - 1
        return value - (1 << self.bits) if self.kind == "i" and value >> (self.bits - 1) else value

    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype of one element (bf16 and the like need ml_dtypes)."""
        import numpy as np

        try:
            return np.dtype(self.long_name)
        except TypeError:
            import ml_dtypes

            found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.long_name))
            return found


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
]

ALL: dict[str, DType] = {
    name: DType(name, kind, bits, long_name, code, storage=storage)
    for code, (name, kind, bits, long_name, storage) in enumerate(_FIELDS)
}
_LONG = {d.long_name: d for d in ALL.values()}

bool_ = ALL["bool"]
i8, i16, i32, i64 = ALL["i8"], ALL["i16"], ALL["i32"], ALL["i64"]
u8, u16, u32, u64 = ALL["u8"], ALL["u16"], ALL["u32"], ALL["u64"]
f16, bf16, f32, f64 = ALL["f16"], ALL["bf16"], ALL["f32"], ALL["f64"]


def dtype(spelling: object) -> DType:
    """The data type meant by `f32`, "f32", "float32", np.float32 or torch.float32."""
    if isinstance(spelling, DType):
        return spelling
    name = spelling if isinstance(spelling, str) else _name_of(spelling)
    found = ALL.get(name) or _LONG.get(name)
    if found is None:
        from .support.errors import Error

        raise Error(f"`{name}` is not a data type", facts=["data types: " + ", ".join(ALL)])
    return found


def _name_of(spelling: object) -> str:
    if spelling is bool:
        return "bool"
    text = getattr(spelling, "name", None) or getattr(spelling, "__name__", None) or str(spelling)
    return str(text).removeprefix("torch.").rstrip("_")
