"""`Package`, the result of a compilation, which caches and artifacts store: a code blob and its interface.

    data = Package(blob, interface).to_bytes()
    Package.from_bytes(data).interface.inputs

If literals are to be packed or precomputed once instead of at every call, there is a second package inside, `load`: a
program without arguments whose outputs are further literals of the first one (runtime/loading.py).

Bytes (little endian): magic, sizes (u64) of the interface, the blob and the package inside (0: none), then these, the interface as JSON
in UTF-8.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..support.errors import ModelFileError
from .blob import Blob
from .interface import Interface

_MAGIC = b"PLPACK\x00\x02"
_HEAD = struct.Struct("<8sQQQ")
ENTRIES = ("prepare", "size", "run")


class Package(NamedTuple):
    """A compiled program as data: machine code that exports `prepare`, `size` and `run`, and its interface."""

    blob: Blob
    interface: Interface
    load: Package | None = None

    def to_bytes(self) -> bytes:
        """Serialize the package; `from_bytes` reads it."""
        metadata, blob = self.interface.to_json().encode(), self.blob.to_bytes()
        load = b"" if self.load is None else self.load.to_bytes()
        return _HEAD.pack(_MAGIC, len(metadata), len(blob), len(load)) + metadata + blob + load

    @staticmethod
    def from_bytes(data: bytes, nested: bool = False) -> Package:
        """Parse a serialized package; raises `ModelFileError` for anything but the exact format.

        A `nested` one may not have another inside.
        """
        if len(data) < _HEAD.size:
            raise _broken("it ends inside its head")
        magic, metadata, size, load = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise _broken("it does not begin as one")
        if metadata + size + load != len(data) - _HEAD.size:
            raise _broken(f"{metadata + size + load} bytes are announced, {len(data) - _HEAD.size} are there")
        middle = _HEAD.size + metadata
        try:
            text = data[_HEAD.size : middle].decode()
        except UnicodeDecodeError:
            raise _broken("its metadata is not UTF-8") from None
        blob = Blob.from_bytes(data[middle : middle + size])
        if missing := [name for name in ENTRIES if name not in blob.exports]:
            raise _broken(f"its code exports no `{missing[0]}`")
        if load and nested:
            raise _broken("the package inside has one inside itself")
        inner = Package.from_bytes(data[middle + size :], nested=True) if load else None
        if inner is not None and inner.interface.inputs:
            raise _broken("the package inside takes arguments")
        return Package(blob, Interface.from_json(text), inner)


def _broken(reason: str) -> ModelFileError:
    return ModelFileError(f"this is not a usable package: {reason}")
