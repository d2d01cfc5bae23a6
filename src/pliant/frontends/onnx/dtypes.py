"""Maps ONNX element types to Pliant dtypes.

Programs have no strings and no complex numbers: these types are in UNSUPPORTED, and the importer reports the value that has one.
"""

from __future__ import annotations

from ...dtype import ALL, DType

# Number in the file -> (dtype, name in schemas).
NUMBERS: dict[int, tuple[str, str]] = {
    1: ("f32", "float"),
    2: ("u8", "uint8"),
    3: ("i8", "int8"),
    4: ("u16", "uint16"),
    5: ("i16", "int16"),
    6: ("i32", "int32"),
    7: ("i64", "int64"),
    9: ("bool", "bool"),
    10: ("f16", "float16"),
    11: ("f64", "double"),
    12: ("u32", "uint32"),
    13: ("u64", "uint64"),
    16: ("bf16", "bfloat16"),
    17: ("f8e4m3fn", "float8e4m3fn"),
    18: ("f8e4m3fnuz", "float8e4m3fnuz"),
    19: ("f8e5m2", "float8e5m2"),
    20: ("f8e5m2fnuz", "float8e5m2fnuz"),
    21: ("u4", "uint4"),
    22: ("i4", "int4"),
    23: ("f4e2m1", "float4e2m1"),
    24: ("f8e8m0", "float8e8m0"),
    25: ("u2", "uint2"),
    26: ("i2", "int2"),
}
UNSUPPORTED = {8: "string", 14: "complex64", 15: "complex128"}
_NUMBER = {name: number for number, (name, _) in NUMBERS.items()}
_SCHEMA = dict(NUMBERS.values())


def dtype_of(number: int) -> DType | None:
    """Returns the dtype of an ONNX type number, or None if it is not supported."""
    names = NUMBERS.get(number)
    return None if names is None else ALL[names[0]]


def number_of(dtype: DType) -> int:
    """Returns the ONNX type number of a dtype."""
    return _NUMBER[dtype.name]


def schema_name(dtype: DType) -> str:
    """Returns the name of a tensor type in ONNX schemas: `tensor(float)`."""
    return f"tensor({_SCHEMA.get(dtype.name, dtype.name)})"


def type_name(number: int) -> str:
    """Returns the ONNX name of any type number, including those that are not supported."""
    names = NUMBERS.get(number)
    return names[1] if names else UNSUPPORTED.get(number, f"type {number}")
