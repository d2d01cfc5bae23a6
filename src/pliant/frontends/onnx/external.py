"""Reads external data of ONNX models, safely: only from files inside the folder of the model.

A location must be a relative path without `..` and without symbolic links. The file must be a regular file without further hard links
(one could refer to another user's file), and offset and length must be inside it. Each of these has been a vulnerability of an ONNX
reader. The path is opened component by component through file descriptors, so no folder can be exchanged between check and use.
"""

from __future__ import annotations

import mmap
import os
import stat
from typing import Any

from ...support.errors import ModelFileError

_KEYS = {"location", "offset", "length", "checksum", "basepath"}  # the standard's keys; an unknown one is refused


class Folder:
    """The folder of a model file, the only place that external tensor data is read from."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._maps: dict[str, memoryview] = {}

    def read(self, proto: Any, what: str, expected: int) -> memoryview:
        """Returns the bytes of a tensor with external data, a view of the mapped file.

        Raises ModelFileError if their number is not `expected` or the file is not allowed.
        """
        facts = _facts(proto, what)
        data = self._mapped(facts["location"], what)
        offset = _number(facts.get("offset", "0"), "offset", what)
        length = _number(facts["length"], "length", what) if "length" in facts else expected
        if length != expected:
            raise ModelFileError(f"onnx: {what} has {expected} bytes, its external data says {length}")
        if offset + length > len(data):
            raise ModelFileError(
                f"onnx: {what} ends behind the end of {facts['location']!r}", facts=[f"{offset} + {length} of {len(data)} bytes"]
            )
        return data[offset : offset + length]

    def _mapped(self, location: str, what: str) -> memoryview:
        """Returns the bytes of a file of the folder, mapped once."""
        if location not in self._maps:
            handle = _opened(self.path, location, what)
            try:
                size = os.fstat(handle).st_size
                self._maps[location] = memoryview(mmap.mmap(handle, size, access=mmap.ACCESS_READ) if size else b"")
            finally:
                os.close(handle)
        return self._maps[location]


def _facts(proto: Any, what: str) -> dict[str, str]:
    """Returns the key-value pairs of a tensor's external data.

    Raises ModelFileError for unknown or repeated keys, or without a location.
    """
    facts: dict[str, str] = {}
    for entry in proto.external_data:
        if entry.key not in _KEYS or entry.key in facts:
            raise ModelFileError(f"onnx: {what}: external data has the key {entry.key!r}{' twice' if entry.key in facts else ''}")
        facts[entry.key] = entry.value
    if "location" not in facts:
        raise ModelFileError(f"onnx: {what}: external data without a location")
    return facts


def _number(text: str, key: str, what: str) -> int:
    """Parses a nonnegative integer of external data; raises for anything else."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ModelFileError(f"onnx: {what}: the {key} of its external data is {text[:40]!r}")
    return int(text)


def _opened(folder: str, location: str, what: str) -> int:
    """Opens the file component by component below the folder, without following links; returns its descriptor.

    Raises ModelFileError for a path outside of the folder, a file that cannot be opened or is not regular, and a hard link.
    """
    parts = location.replace("\\", "/").split("/")
    if not location or "\0" in location or ":" in location or any(p in ("", ".", "..") for p in parts):
        raise _refused(location, what, "it must be a relative path below the folder of the model")
    nofollow = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    at = os.open(folder or ".", os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | nofollow, dir_fd=at)
            os.close(at)
            at = below
        handle = os.open(parts[-1], os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | nofollow, dir_fd=at)
    except OSError as problem:
        raise _refused(location, what, problem.strerror or "it cannot be opened") from None
    finally:
        os.close(at)
    status = os.fstat(handle)
    reason = (
        "it is no regular file" if not stat.S_ISREG(status.st_mode) else "it has a second name (a hard link)" if status.st_nlink > 1 else ""
    )
    if reason:
        os.close(handle)
        raise _refused(location, what, reason)
    return handle


def _refused(location: str, what: str, why: str) -> ModelFileError:
    """Returns the error for a location that is not allowed."""
    return ModelFileError(f"onnx: the external data of {what} is not read from {location[:200]!r}: {why}")
