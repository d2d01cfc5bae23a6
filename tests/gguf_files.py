"""Tiny GGUF files, made byte by byte, so that each of their fields can be wrong.

write([("general.architecture", text("llama"))], [Tensor("w", (2, 32), 8, bytes(68))]) -> bytes
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_LETTERS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def string(text: str | bytes) -> bytes:
    """A string of a file: its length and its bytes."""
    raw = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def text(value: str | bytes) -> bytes:
    """A value that is a string, with its type before it."""
    return struct.pack("<I", STRING) + string(value)


def number(kind: int, value: float) -> bytes:
    """A value that is a number."""
    return struct.pack(f"<I{_LETTERS[kind]}", kind, value)


def array(kind: int, values: Sequence[float | str | bytes]) -> bytes:
    """A value that is an array."""
    raw = b"".join(string(v) if kind == STRING else struct.pack(f"<{_LETTERS[kind]}", v) for v in values)  # type: ignore[arg-type]
    return struct.pack("<IIQ", ARRAY, kind, len(values)) + raw


@dataclass(frozen=True)
class Tensor:
    """A tensor to write: dims outermost first, the number of its type, its bytes; an offset only to be wrong."""

    name: str
    shape: tuple[int, ...]
    kind: int
    data: bytes
    offset: int | None = None

    def row(self, offset: int) -> bytes:
        """Its row of the table."""
        dims = struct.pack(f"<{len(self.shape)}Q", *reversed(self.shape))
        return string(self.name) + struct.pack("<I", len(self.shape)) + dims + struct.pack("<IQ", self.kind, offset)


def write(
    pairs: Sequence[tuple[str, bytes]] = (),
    tensors: Sequence[Tensor] = (),
    *,
    version: int = 3,
    magic: bytes = b"GGUF",
    alignment: int = 32,
    counts: tuple[int, int] | None = None,
) -> bytes:
    """A file; `counts` replaces the true numbers of tensors and of pairs."""
    head = magic + struct.pack("<IQQ", version, *(counts or (len(tensors), len(pairs))))
    head += b"".join(string(key) + value for key, value in pairs)
    data = b""
    for tensor in tensors:
        head += tensor.row(len(data) if tensor.offset is None else tensor.offset)
        data += tensor.data + bytes(-len(tensor.data) % alignment)
    return head + (bytes(-len(head) % alignment) + data if tensors else b"")
