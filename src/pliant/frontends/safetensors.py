"""Reads safetensors files: the length of the header, a JSON header, and the tensor data, which is memory-mapped and not copied.

    weights = load_safetensors("model.safetensors")       # a mapping from names to read-only numpy arrays
    weights["embeddings.word_embeddings.weight"]

Files are not trusted: the header size is bounded, every field is checked, and each tensor must be inside the file, have the size of its
shape, and overlap no other. Violations raise a `ModelFileError` that names the tensor. A tensor is copied on access only if its data is
not aligned for numpy, or on a big-endian machine.
"""

from __future__ import annotations

import json
import mmap
import os
import stat
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..dtype import ALL, DType
from ..support.errors import ModelFileError

Array = np.ndarray[Any, Any]

LIMIT = 100_000_000  # maximal size of a header in bytes, the same as in the reference implementation
_DTYPES = {
    "BOOL": "bool",
    "I8": "i8",
    "I16": "i16",
    "I32": "i32",
    "I64": "i64",
    "U8": "u8",
    "U16": "u16",
    "U32": "u32",
    "U64": "u64",
    "F16": "f16",
    "BF16": "bf16",
    "F32": "f32",
    "F64": "f64",
    "F8_E4M3": "f8e4m3fn",
    "F8_E5M2": "f8e5m2",
}


class Stored(NamedTuple):
    """A record of where a tensor is in a safetensors file: dtype, shape, and byte range."""

    dtype: DType
    shape: tuple[int, ...]
    begin: int  # byte offset from the start of the file
    end: int


class Weights(Mapping[str, Array]):
    """The tensors of a file by name, as read-only arrays over the mapped file; copies of those that are not aligned in it."""

    def __init__(self, path: str, tensors: dict[str, Stored], metadata: dict[str, str], data: memoryview) -> None:
        self.path = path
        self.stored = tensors
        self.metadata = metadata
        self._data = data

    def __getitem__(self, name: str) -> Array:
        stored = self.stored[name]
        dtype = stored.dtype.numpy()
        little = np.frombuffer(self._data[stored.begin : stored.end], dtype.newbyteorder("<") if dtype.kind in "iuf" else dtype)
        array = little.reshape(stored.shape)
        if not array.flags.aligned or (sys.byteorder == "big" and dtype.itemsize > 1):
            array = array.astype(dtype)
        array.setflags(write=False)
        return array

    def raw(self, name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Returns the bytes of a tensor, u8[bytes], as a view of the mapped file; a copy if they are not aligned in it."""
        stored = self.stored[name]
        found = np.frombuffer(self._data, np.uint8, stored.end - stored.begin, stored.begin)
        return found if found.ctypes.data % max(1, stored.dtype.itemsize) == 0 else found.copy()

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def __repr__(self) -> str:
        return f"<{len(self)} tensors of {self.path}>"


def load_safetensors(path: str | os.PathLike[str]) -> Weights:
    """Maps a safetensors file and returns its tensors; raises a ModelFileError if the file is malformed."""
    file = os.fspath(path)
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):  # opening a pipe would wait for its writer
            raise ModelFileError(f"cannot read {file}: it is not a regular file")
        with open(file, "rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            if size < 8:
                raise _broken(file, f"it has {size} bytes, its head alone has 8")
            data = memoryview(mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ))
    except OSError as problem:
        raise ModelFileError(f"cannot read {file}: {problem.strerror or problem}") from None
    tensors, metadata = _read_header(file, data)
    return Weights(file, tensors, metadata, data)


def _read_header(file: str, data: memoryview) -> tuple[dict[str, Stored], dict[str, str]]:
    """Parses the header; returns the locations of the tensors, checked, and the metadata. Raises ModelFileError if it is malformed."""
    (length,) = struct.unpack_from("<Q", data)
    if length > LIMIT:
        raise _broken(file, f"its header is said to have {length} bytes, at most {LIMIT} are read")
    if length > len(data) - 8:
        raise _broken(file, f"its header is said to have {length} bytes, the file has {len(data) - 8} more")
    header = _parse(file, bytes(data[8 : 8 + length]))
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _broken(file, "its metadata is not a table of texts")
    tensors = {name: _tensor(file, name, entry, 8 + length, len(data)) for name, entry in header.items()}
    _check_cover(file, tensors, 8 + length, len(data))
    return tensors, metadata


def _parse(file: str, text: bytes) -> dict[str, Any]:
    """Parses the JSON header; raises ModelFileError for duplicate names, deep nesting, long numbers, and for what is no JSON object."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            raise ValueError("a name is there twice")
        return table

    try:
        header = json.loads(text.decode(), object_pairs_hook=once, parse_int=_integer)
    except RecursionError:
        raise _broken(file, "its header is nested too deep") from None
    except ValueError as problem:
        raise _broken(file, f"its header is not JSON: {problem}") from None
    if not isinstance(header, dict):
        raise _broken(file, "its header is not a JSON object")
    return header


def _integer(text: str) -> int:
    """Parses an integer of the header; raises ValueError for long ones, because `int` takes quadratic time in the number of digits."""
    if len(text) > 20:
        raise ValueError("a number of more than 20 digits")
    return int(text)


def _tensor(file: str, name: str, entry: Any, start: int, size: int) -> Stored:
    """Returns the location of a tensor from its header entry; raises ModelFileError if the entry does not fit the file."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _broken(file, f"tensor `{_shown(name)}` is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise _broken(file, f"tensor `{_shown(name)}` has the unknown type {_shown(str(dtype))}", f"known types: {', '.join(_DTYPES)}")
    if not _whole_numbers(shape) or len(shape) > 32:
        raise _broken(file, f"tensor `{_shown(name)}` has a shape that is no short list of whole numbers")
    if not _whole_numbers(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= size - start:
        raise _broken(file, f"tensor `{_shown(name)}` does not lie inside of the file: {_shown(str(offsets))}")
    element = ALL[_DTYPES[dtype]]
    expected = element.itemsize
    for n in shape:
        expected *= n
        if expected > size:
            break
    if 0 in shape:
        expected = 0
    if offsets[1] - offsets[0] != expected:
        raise _broken(file, f"tensor `{_shown(name)}` of shape {_shown(str(shape))} has {offsets[1] - offsets[0]} bytes")
    return Stored(element, tuple(shape), start + offsets[0], start + offsets[1])


def _whole_numbers(value: Any) -> bool:
    """True for a list of integers in 0..2**63 - 1."""
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)


def _check_cover(file: str, tensors: dict[str, Stored], start: int, size: int) -> None:
    """Raises ModelFileError unless the tensors are adjacent and fill the file: no overlap, and no hidden bytes."""
    at = start
    for name, stored in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if stored.begin != at:
            what = "overlaps another one" if stored.begin < at else "leaves a gap before it"
            raise _broken(file, f"tensor `{_shown(name)}` {what}")
        at = stored.end
    if at != size:
        raise _broken(file, f"{size - at} bytes at its end belong to no tensor")


def _shown(text: str) -> str:
    """Returns a string of the file for messages: escaped to ASCII, without quotes, and cut to 80 characters without a mark."""
    return ascii(text)[1:-1][:80]


def _broken(file: str, reason: str, fact: str = "") -> ModelFileError:
    """Returns the error for a malformed file."""
    return ModelFileError(f"{file} is no usable safetensors file: {reason}", facts=[fact] if fact else [])
