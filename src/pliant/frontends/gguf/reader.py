"""Opens GGUF models by mmap: typed access to metadata, and tensors whose data is paged in on first access.

    file = open_gguf("model-00001-of-00003.gguf")        # opens all parts of a split model, from the same folder
    file.architecture                                    # "llama"
    file.integer("llama.block_count", low=1, high=1024)  # raises a ModelFileError if missing, of another type or out of range
    w = file.tensors["blk.0.attn_q.weight"]
    w.shape, w.format.name, w.data                       # (576, 576), "Q4_1", u8[576, 360], a view of the mapped file

Shapes have the outermost dim first, as in numpy; the file stores them reversed. A file must not be truncated while it is open.
"""

from __future__ import annotations

import copy
import mmap
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from ...quantization.dequantize import dequantize, unread
from ...quantization.formats import Format
from ...support.errors import ModelFileError
from ...support.record import dataclass
from .parse import MAX_TENSORS, Buffer, Parsed, Value, parse, shown

MAX_PARTS = 1024  # limits the number of files that a hostile file name makes us look for
# The file name of a part of a split model: `model-00001-of-00003.gguf`.
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class GgufTensor:
    """A tensor of the file; `data` is a read-only view of the mapped file, with its last dim in bytes."""

    name: str
    format: Format
    shape: tuple[int, ...]
    data: NDArray[np.uint8]

    @property
    def size(self) -> int:
        """The size of the tensor's data in the file, in bytes."""
        return int(self.data.nbytes)

    def array(self) -> NDArray[Any]:
        """Returns the elements of an unquantized tensor as a view (bf16 as u16); raises TypeError for a quantized one."""
        element = self.format.element
        if element is None:
            raise TypeError(f"tensor `{self.name}` is quantized ({self.format.name}); `dequantized()` has its values")
        kind = np.dtype(np.uint16) if element.name == "bf16" else element.numpy()
        return self.data.view(kind.newbyteorder("<")).reshape(self.shape)

    def dequantized(self) -> NDArray[np.float32]:
        """Returns the tensor's values, dequantized, as a new f32 array; raises UnsupportedError for formats that cannot be decoded."""
        if not self.format.known:
            raise unread(self.format, self.name)
        return dequantize(self.format, self.data).reshape(self.shape)


class Stamp(NamedTuple):
    """The identity of a file without its contents: real path, size and modification time."""

    path: str
    size: int
    changed: int  # nanoseconds


class GgufFile:
    """The metadata and tensors of a model, from one file or from all parts of a split one."""

    stamps: tuple[Stamp, ...] = ()  # one per file, taken when it was opened; empty for bytes in memory
    adjacent_pairs = True  # llama's queries and keys have RoPE pairs as adjacent elements; in other forms of files they may be halves

    def __init__(self, name: str, version: int, metadata: dict[str, Value], tensors: dict[str, GgufTensor]) -> None:
        self.name = name
        self.version = version
        self.metadata: Mapping[str, Value] = metadata
        self.tensors: Mapping[str, GgufTensor] = tensors
        self.read: set[str] = set()  # the names of the tensors that `tensor` has returned

    @property
    def architecture(self) -> str:
        """The model architecture: `llama`, `qwen2`, …"""
        return self.text("general.architecture")

    def text(self, key: str, *default: str) -> str:
        """Returns the string under `key`, or the default; raises ModelFileError if there is neither, or the value has another type."""
        value = self._find(key, *default)
        return value if isinstance(value, str) else self._refuse(key, value, "a string")

    def integer(self, key: str, *default: int, low: int = 0, high: int = (1 << 31) - 1) -> int:
        """Returns the integer under `key`, or the default; raises like `text`, and if it is not in low..high."""
        value = self._find(key, *default)
        if isinstance(value, bool) or not isinstance(value, int):
            self._refuse(key, value, "an integer")
        if not low <= value <= high:
            raise ModelFileError(f"gguf: `{key}` is {value}, outside of {low}..{high}", facts=[f"file `{self.name}`"])
        return value

    def number(self, key: str, *default: float) -> float:
        """Returns the number under `key`, or the default; raises like `text`, and if it is not finite."""
        value = self._find(key, *default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            self._refuse(key, value, "a finite number")
        return float(value)

    def flag(self, key: str, *default: bool) -> bool:
        """Returns the bool under the metadata key, or the default; raises like `text`."""
        value = self._find(key, *default)
        return value if isinstance(value, bool) else self._refuse(key, value, "a bool")

    def strings(self, key: str, *default: list[str]) -> list[str]:
        """Returns the list of strings under the metadata key, or the default; raises like `text`."""
        value = self._find(key, *default)
        return value if isinstance(value, list) else self._refuse(key, value, "an array of strings")

    def numbers(self, key: str, *default: NDArray[Any]) -> NDArray[Any]:
        """Returns the array of numbers under the metadata key, or the default; raises like `text`."""
        value = self._find(key, *default)
        return value if isinstance(value, np.ndarray) else self._refuse(key, value, "an array of numbers")

    def tensor(self, name: str, shape: Sequence[int] | None = None) -> GgufTensor:
        """Returns the tensor of that name, and records that it was read; raises ModelFileError if it is missing or has another shape."""
        stored = self.tensors.get(name)
        if stored is None:
            raise ModelFileError(f"gguf: there is no tensor `{name}`", facts=[f"file `{self.name}`"])
        if shape is not None and stored.shape != tuple(shape):
            raise ModelFileError(
                f"gguf: tensor `{name}` has the shape {stored.shape}, where {tuple(shape)} is expected", facts=[f"file `{self.name}`"]
            )
        self.read.add(name)
        return stored

    def replaced(self, metadata: dict[str, Value], tensors: dict[str, GgufTensor]) -> GgufFile:
        """Returns a copy with other contents; it shares the record of tensors that were read with this file."""
        other = copy.copy(self)
        other.metadata, other.tensors = metadata, tensors
        return other

    def _find(self, key: str, *default: Any) -> Any:
        """Returns the value under the metadata key, or the default; raises if there is neither."""
        if key in self.metadata:
            return self.metadata[key]
        if default:
            return default[0]
        raise ModelFileError(f"gguf: the metadata has no `{key}`", facts=[f"file `{self.name}`"])

    def _refuse(self, key: str, value: object, wanted: str) -> NoReturn:
        """Raises the error for a metadata value of an unexpected type."""
        raise ModelFileError(f"gguf: `{key}` is not {wanted}", facts=[f"file `{self.name}`", f"found: {shown(repr(value))}"])


def open_gguf(path: str | os.PathLike[str]) -> GgufFile:
    """Opens a model; `path` may be any part of a split one. Raises a ModelFileError if a part is missing or malformed."""
    first = Path(path)
    name = _PART.fullmatch(first.name)
    if name is None:
        data, stamp = _map(first)
        model = from_bytes(data, str(path))
        model.stamps = (stamp,)
        return model
    parts = [
        first.with_name(f"{name['stem']}-{i:05}-of-{name['count']}.gguf") for i in range(1, min(int(name["count"]), MAX_PARTS + 1) + 1)
    ]
    if not 1 <= len(parts) <= MAX_PARTS or not 1 <= int(name["number"]) <= len(parts):
        raise ModelFileError(f"gguf: `{shown(first.name)}` is no part of a split model: 1 to {MAX_PARTS} parts are allowed")
    if missing := [part for part in parts if not part.exists()]:
        raise ModelFileError(
            f"gguf: part `{shown(missing[0].name)}` of a split model is missing",
            facts=[f"{len(parts)} parts are needed in `{first.parent}`"],
        )
    mapped = [(part, *_map(part)) for part in parts]
    model = _join([(part, data) for part, data, _ in mapped])
    model.stamps = tuple(stamp for _, _, stamp in mapped)
    return model


def from_bytes(data: Buffer, name: str) -> GgufFile:
    """Parses a model from the bytes of a single file; raises ModelFileError if it is malformed, or only one part of a split model."""
    parsed = parse(data, name)
    if _count(parsed, "split.count", 1) > 1:
        raise ModelFileError(
            f"gguf: `{shown(name)}` is one part of a split model under another name",
            help="the parts must be named `…-00001-of-00003.gguf`",
        )
    return GgufFile(name, parsed.version, parsed.metadata, _tensors(parsed, data))


def from_parts(files: list[tuple[Path, Buffer]]) -> GgufFile:
    """Parses a model from the names and bytes of all its files; raises ModelFileError if they are malformed or do not fit together."""
    if len(files) == 1:
        return from_bytes(files[0][1], str(files[0][0]))
    if not files:
        raise ModelFileError("gguf: a model has at least one file")
    return _join(files)


def _join(files: list[tuple[Path, Buffer]]) -> GgufFile:
    """Joins the parts of a split model: the metadata of the first, the tensors of all.

    Raises ModelFileError if parts do not fit together.
    """
    tensors: dict[str, GgufTensor] = {}
    parsed = [parse(data, str(path)) for path, data in files]
    for i, ((path, data), part) in enumerate(zip(files, parsed, strict=True)):
        if _count(part, "split.count", 1) != len(files) or _count(part, "split.no", 0) != i:
            raise ModelFileError(f"gguf: `{shown(path.name)}` does not say that it is part {i + 1} of {len(files)}")
        of_part = _tensors(part, data)
        if both := next((name for name in of_part if name in tensors), None):
            raise ModelFileError(f"gguf: tensor `{shown(both)}` is in two parts of a split model")
        tensors |= of_part
    total = _count(parsed[0], "split.tensors.count", len(tensors))
    if total != len(tensors) or total > MAX_TENSORS:
        raise ModelFileError(f"gguf: the parts of a split model have {len(tensors)} tensors, where {total} are announced")
    return GgufFile(str(files[0][0]), parsed[0].version, parsed[0].metadata, tensors)


def _count(part: Parsed, key: str, default: int) -> int:
    """The integer under `key` of a part's metadata, or the default; -1, which matches nothing, if it is not an integer."""
    value = part.metadata.get(key, default)
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _tensors(parsed: Parsed, data: Buffer) -> dict[str, GgufTensor]:
    """Returns the tensors of a parsed file by name, as views of its bytes."""
    raw = np.frombuffer(data, np.uint8)
    return {
        e.name: GgufTensor(e.name, e.format, e.shape, raw[e.start : e.start + e.size].reshape(*e.shape[:-1], -1)) for e in parsed.entries
    }


def stamp_of(path: Path, status: os.stat_result) -> Stamp:
    """Returns the identity of a file: real path, size and modification time."""
    return Stamp(os.path.realpath(path), status.st_size, status.st_mtime_ns)


def _map(path: Path) -> tuple[Buffer, Stamp]:
    """Maps a regular file into memory; returns its bytes and its identity (path, size, time).

    Raises ModelFileError if it cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its writer
            raise ModelFileError(f"gguf: `{shown(str(path))}` is not a regular file")
        with open(path, "rb") as file:
            stamp = stamp_of(path, os.fstat(file.fileno()))
            if stamp.size == 0:
                return b"", stamp  # mmap refuses empty files
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), stamp
    except FileNotFoundError:
        raise ModelFileError(f"gguf: there is no file `{shown(str(path))}`") from None
    except OSError as problem:
        raise ModelFileError(f"gguf: `{shown(str(path))}` cannot be read: {problem.strerror}") from None
