"""Converts TensorProtos to numpy arrays; compares every declared size with the data before it allocates memory.

    array = read_tensor(proto, "weight", folder)       # a read-only view if the data is stored as bytes

Sub-byte elements become ml_dtypes arrays, which have one element per byte.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from ...dtype import DType
from ...support.errors import ModelFileError, UnsupportedError
from .dtypes import dtype_of, type_name
from .external import Folder

Array = np.ndarray[Any, Any]
MOST_BYTES = 1 << 36  # limit of one tensor (64 GiB), so that a hostile shape cannot make us allocate without bound

# The TensorProto field that lists the elements, by dtype; all other dtypes are listed in int32_data.
_FIELDS = {"f32": "float_data", "f64": "double_data", "i64": "int64_data", "u32": "uint64_data", "u64": "uint64_data"}


def read_tensor(proto: Any, what: str, folder: Folder | None = None) -> Array:
    """Returns the array of a TensorProto; `what` names it in errors.

    Raises ModelFileError if type, shape or data are invalid, UnsupportedError if they are not supported.
    """
    dtype = dtype_of(proto.data_type)
    if dtype is None:
        kind = type_name(proto.data_type)
        if proto.data_type == 0 or kind.startswith("type "):
            raise ModelFileError(f"onnx: {what} has the data type {proto.data_type}, which does not exist")
        raise UnsupportedError(f"onnx: {what} holds {kind}, which is not supported")
    shape = tuple(int(n) for n in proto.dims)
    count = elements(shape, dtype, what)
    if proto.HasField("segment"):
        raise UnsupportedError(f"onnx: {what} is stored in segments, which is not supported")
    if proto.data_location == 1:
        if folder is None:
            raise ModelFileError(f"onnx: {what} is in another file, and there is no folder to look in", help="give from_onnx a path")
        return _decoded(folder.read(proto, what, -(-count * dtype.bits // 8)), dtype, shape, what)
    if proto.HasField("raw_data"):
        return _decoded(proto.raw_data, dtype, shape, what)
    return _listed(proto, dtype, shape, count, what)


def with_data(message: Any, folder: Folder | None) -> None:
    """Puts the data that a model has in other files into its tensors, wherever in the message they are."""
    todo = [message]
    while todo:
        at = todo.pop()
        if at.DESCRIPTOR.name == "TensorProto":
            if at.data_location == 1:
                at.raw_data = read_bytes(at, f'tensor "{at.name}"', folder)
                at.ClearField("data_location")
                at.ClearField("external_data")
            continue
        for field, value in at.ListFields():
            if field.type == field.TYPE_MESSAGE:
                todo += [value] if hasattr(value, "ListFields") else list(value)


def read_bytes(proto: Any, what: str, folder: Folder | None) -> bytes:
    """Returns the data of a tensor whose data is in another file; raises ModelFileError if its type is unknown or it is not there."""
    dtype = dtype_of(proto.data_type)
    if dtype is None or folder is None:
        raise ModelFileError(f"onnx: {what} is in another file, and cannot be read from there")
    count = elements(tuple(int(n) for n in proto.dims), dtype, what)
    return bytes(folder.read(proto, what, -(-count * dtype.bits // 8)))


def elements(shape: tuple[int, ...], dtype: DType, what: str) -> int:
    """Returns the number of elements of a shape; raises ModelFileError if a dim is negative or the tensor is too large."""
    if any(n < 0 for n in shape):
        raise ModelFileError(f"onnx: {what} has the shape {shape}")
    count = math.prod(shape)
    if count * dtype.bits > MOST_BYTES * 8:
        raise ModelFileError(f"onnx: {what} has the shape {shape}: {count} elements are more than a file may hold")
    return count


def _decoded(data: Any, dtype: DType, shape: tuple[int, ...], what: str) -> Array:
    """Returns the array of elements that are stored as little-endian bytes; raises if their size is wrong."""
    count = math.prod(shape)
    size = -(-count * dtype.bits // 8)
    if len(data) != size:
        raise ModelFileError(f"onnx: {what} has {len(data)} bytes, {size} are expected for {dtype} of shape {shape}")
    if dtype.bits < 8:
        return _unpacked(np.frombuffer(data, np.uint8), dtype, count).reshape(shape)
    kind = np.dtype(np.uint8) if dtype.name == "bool" else dtype.numpy()
    array = np.frombuffer(data, kind)
    if sys.byteorder == "big" and dtype.itemsize > 1:
        array = array.byteswap()
    if dtype.name == "bool":
        array = array != 0
    return array.reshape(shape)


def _unpacked(codes: Array, dtype: DType, count: int) -> Array:
    """Returns packed sub-byte elements, low bits first, as one element per byte."""
    per = dtype.per_byte
    spread = (codes[:, None] >> (np.arange(per, dtype=np.uint8) * dtype.bits)) & ((1 << dtype.bits) - 1)
    flat = np.ascontiguousarray(spread.reshape(-1)[:count])
    if dtype.kind == "i":  # sign extension: ml_dtypes expects the sign in the high bits of the byte too
        flat = ((flat ^ (1 << (dtype.bits - 1))) - np.uint8(1 << (dtype.bits - 1))).astype(np.uint8)
    return flat.view(np.int8 if dtype.kind == "i" else np.uint8).astype(dtype.numpy()) if dtype.is_int else flat.view(dtype.numpy())


def _listed(proto: Any, dtype: DType, shape: tuple[int, ...], count: int, what: str) -> Array:
    """Returns the array of elements that are stored one by one in a typed field; raises if their number is wrong."""
    field = _FIELDS.get(dtype.name, "int32_data")
    data = getattr(proto, field)
    stored = -(-count // dtype.per_byte)
    if len(data) != stored:
        raise ModelFileError(f"onnx: {what} has {len(data)} elements in {field}, {stored} are expected for {dtype} of shape {shape}")
    wide = np.asarray(
        data, {"float_data": np.float32, "double_data": np.float64}.get(field, np.int64 if field != "uint64_data" else np.uint64)
    )
    if dtype.bits < 8:
        return _unpacked(wide.astype(np.uint8), dtype, count).reshape(shape)
    if dtype.is_float and field == "int32_data":  # floats of 8 and 16 bits are stored as bit patterns
        return np.ascontiguousarray(wide.astype(np.uint8 if dtype.bits == 8 else np.uint16)).view(dtype.numpy()).reshape(shape)
    return wide.astype(dtype.numpy()).reshape(shape)
