"""Memory of interpreted loop programs: the run-time values of buffers.

A `Memory` is a dtype, a shape and strides (in elements) over raw bytes. Compute types are numpy arrays over those bytes (so views alias
their source, also across dtypes and without alignment). Storage types are unpacked on load and packed on store: elements smaller than a
byte are packed from the low bits up. Fresh memory is poison: NaN for floats, bytes 0xAB otherwise.

    >>> m = allocate("t", u4, (3,)); m.array[1] = 9; int(m.array[1])
    9
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..dtype import DType, u8
from ..support.errors import Error, ShapeError

Ints = tuple[int, ...]
POISON = 0xAB  # a byte pattern that is no plausible result


class Memory:
    """A buffer of the interpreter at run time; `array` reads and writes its elements by numpy indexing."""

    __slots__ = ("array", "bit", "dtype", "keep", "name", "raw", "shape", "strides")

    def __init__(self, name: str, dtype: DType, shape: Ints, strides: Ints, raw: Any, bit: int, keep: Any = None) -> None:
        self.name, self.dtype, self.shape, self.strides = name, dtype, shape, strides
        self.raw = raw  # bytes, as a one-dimensional numpy array
        self.bit = bit  # the offset of the first element, in bits from the start of `raw`
        self.keep = keep  # the object that owns the bytes
        self.array: Any
        if dtype.bits < 8:
            self.array = _Packed(self)
        else:
            plain = self.box(shape, strides, 0)
            self.array = _Widened(plain) if dtype.storage else plain

    def box(self, shape: Ints, strides: Ints, start: int) -> np.ndarray[Any, Any]:
        """Returns the elements as a numpy array with other extents, in place; strides and start count elements. Not for sub-byte types."""
        size = self.dtype.itemsize
        return np.ndarray(shape, self.dtype.numpy(), self.raw, self.bit // 8 + start * size, tuple(s * size for s in strides))

    def poison(self) -> None:
        """Overwrites every element with a pattern for undefined memory: NaN for floats, POISON bytes for integers.

        Elements smaller than a byte become 1.5 or 5.
        """
        if self.dtype.bits < 8:
            for index in np.ndindex(self.shape):
                self.array[index] = 5 if self.dtype.kind != "f" else np.float32(1.5)
        elif self.dtype.is_float:
            self.array[...] = np.nan
        else:
            size = self.dtype.itemsize
            pattern = np.frombuffer(bytes([POISON]) * size, self.dtype.numpy())
            self.array[...] = pattern[0]

    def view(self, name: str, dtype: DType, start: Ints, shape: Ints, strides: Ints) -> Memory:
        """Returns a view from the element `start` on, with another dtype, shape and strides.

        Raises an error if it leaves the memory, or does not start at a whole byte.
        """
        bit = self.bit + sum(i * s for i, s in zip(start, self.strides, strict=True)) * self.dtype.bits
        low, high = _reach(shape, strides)
        if 0 not in shape and (bit + low * dtype.bits < 0 or bit + (high + 1) * dtype.bits > self.raw.size * 8):
            raise Error(
                f"view `{name}` leaves the memory of `{self.name}`",
                facts=[
                    f"`{name}` needs bits {bit + low * dtype.bits}..{bit + (high + 1) * dtype.bits} of {self.raw.size * 8}",
                    f"it has shape {list(shape)}, strides {list(strides)}, and starts at {list(start)} of `{self.name}`",
                ],
            )
        if bit % 8 and 0 not in shape:
            raise Error(f"view `{name}` does not start at a whole byte of `{self.name}`", facts=[f"it starts at bit {bit}"])
        if 0 in shape:
            bit = 0
        return Memory(name, dtype, shape, strides, self.raw, bit, self.keep)


class _Widened:
    """An array interface to memory of byte-sized storage floats: elements are read and written as f32."""

    __slots__ = ("plain",)

    def __init__(self, plain: np.ndarray[Any, Any]) -> None:
        self.plain = plain

    def __getitem__(self, index: Any) -> Any:
        return self.plain[index].astype(np.float32)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.plain[index] = narrowed(value, self.plain.dtype)


class _Packed:
    """An array interface to memory of sub-byte elements: they are read and written as i8, u8 or f32."""

    __slots__ = ("bit", "dtype", "raw", "strides", "table")

    def __init__(self, memory: Memory) -> None:
        self.table: np.ndarray[Any, Any]
        self.dtype, self.raw, self.bit, self.strides = memory.dtype, memory.raw, memory.bit, memory.strides
        codes = np.arange(1 << memory.dtype.bits, dtype=np.uint8)
        if memory.dtype.kind == "f":
            self.table = codes.view(memory.dtype.numpy()).astype(np.float32)
        elif memory.dtype.kind == "i":
            half = 1 << (memory.dtype.bits - 1)
            self.table = ((codes.astype(np.int16) ^ half) - half).astype(np.int8)
        else:
            self.table = codes

    def _place(self, index: Any) -> tuple[Any, Any]:
        """Returns the byte, and the bit in it, at which an element begins."""
        index = index if isinstance(index, tuple) else (index,)
        bit = sum((i * s for i, s in zip(index, self.strides, strict=True)), 0) * self.dtype.bits + self.bit
        return bit >> 3, bit & 7

    def __getitem__(self, index: Any) -> Any:
        byte, shift = self._place(index)
        return self.table[(self.raw[byte] >> np.asarray(shift, np.uint8)) & np.uint8((1 << self.dtype.bits) - 1)]

    def __setitem__(self, index: Any, value: Any) -> None:
        byte, shift = self._place(index)
        if self.dtype.kind == "f":
            code = narrowed(value, self.dtype.numpy()).view(np.uint8)
        else:
            code = np.asarray(value).astype(np.uint8)
        mask = (1 << self.dtype.bits) - 1
        byte, shift, code = np.broadcast_arrays(byte, shift, code)
        for b, s, c in zip(byte.ravel().tolist(), shift.ravel().tolist(), code.ravel().tolist(), strict=True):
            self.raw[b] = (int(self.raw[b]) & ~(mask << s) & 0xFF) | ((c & mask) << s)


def narrowed(value: Any, to: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Converts f32 to a small float type by ml_dtypes; NaN becomes the type's single NaN, without a sign."""
    value = np.asarray(value, np.float32)
    return np.where(np.isnan(value), np.float32(np.nan), value).astype(to)


def _reach(shape: Ints, strides: Ints) -> tuple[int, int]:
    """Returns the lowest and the highest flat element index that a non-empty box touches."""
    steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps)


def contiguous(shape: Ints) -> Ints:
    """Returns the row-major strides of a shape, in elements."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)


def allocate(name: str, dtype: DType, shape: Ints, strides: Ints | None = None) -> Memory:
    """Returns new memory, poisoned with the pattern of undefined contents; raises an error for a negative extent."""
    if min(shape, default=0) < 0:
        raise Error(f"allocation `{name}` has a negative extent", facts=[f"shape {list(shape)}"])
    strides = contiguous(shape) if strides is None else strides
    elements = 0 if 0 in shape else _reach(shape, strides)[1] + 1
    memory = Memory(name, dtype, shape, strides, np.full((elements * dtype.bits + 7) // 8, POISON, np.uint8), 0)
    if dtype.is_float:
        memory.poison()
    return memory


def from_array(name: str, dtype: DType, array: np.ndarray[Any, Any]) -> Memory:
    """Returns the memory of a numpy array, in place. Sub-byte storage types are packed bytes, with a last dim of `n * bits / 8`.

    Raises ShapeError if the array has another dtype (bytes may stand for any storage type), or packed bytes are not contiguous.
    """
    expected = u8.numpy() if dtype.bits < 8 else dtype.numpy()
    if array.dtype != expected and not (dtype.storage and array.dtype == np.uint8):
        mismatch = f"`{name}` is of dtype {array.dtype} where {dtype} is expected"
        raise ShapeError(mismatch, facts=[f"numpy's name of it is {expected}{' (packed bytes)' if dtype.bits < 8 else ''}"])
    per_byte = 8 // dtype.bits if dtype.bits < 8 else 1
    shape = tuple(array.shape)
    strides = tuple(s // array.itemsize for s in array.strides)
    if per_byte > 1:
        if not array.ndim or not array.flags.c_contiguous:
            raise ShapeError(f"`{name}` of packed {dtype} must be contiguous bytes", facts=[f"shape {list(shape)}"])
        shape = (*shape[:-1], shape[-1] * per_byte)
        strides = contiguous(shape)
    raw, first = _bytes_of(array)
    return Memory(name, dtype, shape, strides, raw, first * 8, array)


def _bytes_of(array: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], int]:
    """All bytes that an array spans, as one array, and the offset of its first element in them."""
    if array.size == 0:
        return np.empty(0, np.uint8), 0
    low, high = _reach(array.shape, array.strides)
    address = array.ctypes.data
    memory: Any = (ctypes.c_uint8 * (high - low + array.itemsize)).from_address(address + low)
    return np.frombuffer(memory, np.uint8), -low
