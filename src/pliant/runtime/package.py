"""A package: what compilation produces and what caches and artifacts hold, a code blob and its interface.

    data = Package(blob, interface).to_bytes()
    Package.from_bytes(data).interface.inputs

Bytes (little endian): magic, size of the interface u64, size of the blob u64, the interface as JSON in UTF-8, the blob.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..support.errors import ModelFileError
from .blob import Blob
from .interface import Interface

_MAGIC = b"PLPACK\x00\x01"
_HEAD = struct.Struct("<8sQQ")
ENTRIES = ("prepare", "size", "run")


class Package(NamedTuple):
    """A compiled program: exports `prepare`, `size` and `run`, and is described by its interface."""

    blob: Blob
    interface: Interface

    def to_bytes(self) -> bytes:
        """The package as bytes that `from_bytes` accepts."""
        metadata, blob = self.interface.to_json().encode(), self.blob.to_bytes()
        return _HEAD.pack(_MAGIC, len(metadata), len(blob)) + metadata + blob

    @staticmethod
    def from_bytes(data: bytes) -> Package:
        """The package that `data` holds; anything but the exact form is a `ModelFileError`."""
        if len(data) < _HEAD.size:
            raise _broken("it ends inside its head")
        magic, metadata, size = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise _broken("it does not begin as one")
        if metadata + size != len(data) - _HEAD.size:
            raise _broken(f"{metadata + size} bytes are announced, {len(data) - _HEAD.size} are there")
        middle = _HEAD.size + metadata
        try:
            text = data[_HEAD.size : middle].decode()
        except UnicodeDecodeError:
            raise _broken("its metadata is not UTF-8") from None
        blob = Blob.from_bytes(data[middle:])
        if missing := [name for name in ENTRIES if name not in blob.exports]:
            raise _broken(f"its code exports no `{missing[0]}`")
        return Package(blob, Interface.from_json(text))


def _broken(reason: str) -> ModelFileError:
    return ModelFileError(f"this is not a usable package: {reason}")
