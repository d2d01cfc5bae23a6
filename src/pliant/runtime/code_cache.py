"""The code cache on disk: a bounded, content-addressed store of compiled code, shared between processes.

A file is named by the hash of its key. It holds the whole key, so that a hash collision is a miss, and a checksum, so that a
truncated or changed file is a miss too (and is removed). Files are written under a temporary name and renamed: a reader in
another process sees all of a file or none. When the folder grows over its limit, the least recently used files are removed.

    code_cache.put(b"what was compiled, for which machine", payload)
    code_cache.get(b"what was compiled, for which machine")     # -> payload, or None

If the folder cannot be written, the process warns once and runs without the cache. No other disk problem reaches the caller.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import sys
import time
import warnings
from pathlib import Path

LIMIT = 512 << 20  # bytes on disk
_MAGIC = b"PLCACHE\x01"
_HEAD = struct.Struct("<8sQQ32s")  # magic, bytes of key, bytes of payload, sha256 of both
_FRESH = 3600.0  # seconds: a use within them does not update the time of use, and a temporary file this young may still be written
_warned = False
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


class Cache:
    """A folder of compiled code with checksums and a size limit, shared between processes."""

    def __init__(self, folder: Path | None, limit: int = LIMIT) -> None:
        self.folder = folder
        self.limit = limit
        self._unchecked: int | None = None  # bytes put since the folder was last scanned; None: never scanned

    def get(self, key: bytes) -> bytes | None:
        """Return the payload stored under `key` and mark it as used; None if there is none or it is damaged. A damaged file is removed."""
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        payload = _open(data, key)
        if payload is None:
            if not _is_sound(data):
                with contextlib.suppress(OSError):
                    path.unlink()
            return None
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _FRESH:
                os.utime(path)
        return payload

    def put(self, key: bytes, payload: bytes) -> None:
        """Store `payload` under `key`, and evict old files if the cache has become too large.

        Warns once per process if the folder cannot be written.
        """
        if self.folder is None:
            _warn("there is no home folder")
            return
        import tempfile  # slow to import, and needed by writers only

        head = _HEAD.pack(_MAGIC, len(key), len(payload), hashlib.sha256(key + payload).digest())
        temporary = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, temporary = tempfile.mkstemp(prefix="put-", suffix=".tmp", dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(head + key + payload)
            os.replace(temporary, self._path(key))
        except OSError as e:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            if not os.path.exists(self._path(key)):  # on Windows a file that is being read cannot be replaced; it has the same content
                _warn(str(e))
            return
        self._bound(len(head) + len(key) + len(payload))

    def files(self) -> list[Path]:
        """Return the files of the cache, least recently used first."""
        return [path for _, _, path in self._scan()]

    def size(self) -> int:
        """Return the total size of the cache's files in bytes."""
        return sum(size for _, size, _ in self._scan())

    def clear(self) -> None:
        """Remove every file of the cache."""
        for path in self.files():
            with contextlib.suppress(OSError):
                path.unlink()

    def _path(self, key: bytes) -> Path:
        assert self.folder is not None
        return self.folder / f"{hashlib.sha256(key).hexdigest()}.code"

    def _bound(self, added: int) -> None:
        """Evict least recently used files down to 9/10 of the limit; scans the folder once per 1/16 of the limit put by this process."""
        if self._unchecked is not None and self._unchecked + added < self.limit // 16:
            self._unchecked += added
            return
        self._unchecked = 0
        files = self._scan(remove_stale=True)
        total = sum(size for _, size, _ in files)
        if total <= self.limit:
            return
        for _, size, path in files:
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size
            if total <= self.limit * 9 // 10:
                return

    def _scan(self, remove_stale: bool = False) -> list[tuple[float, int, Path]]:
        """Return (time of use, size, path) of each file, oldest first; `remove_stale` removes temporary files of killed processes."""
        files: list[tuple[float, int, Path]] = []
        if self.folder is None:
            return files
        try:
            entries = list(os.scandir(self.folder))
        except OSError:
            return files
        for entry in entries:
            try:
                status = entry.stat()
            except OSError:
                continue  # another process removed it
            if entry.name.endswith(".code"):
                files.append((status.st_mtime, status.st_size, Path(entry.path)))
            elif remove_stale and entry.name.endswith(".tmp") and time.time() - status.st_mtime > _FRESH:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
        return sorted(files)


def folder() -> Path | None:
    """Return Pliant's cache folder: `PLIANT_CACHE`, else the platform's cache folder; None without a home folder."""
    chosen = os.environ.get("PLIANT_CACHE")
    if chosen:
        return Path(chosen)
    try:
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA")
            return (Path(base) if base else Path.home() / "AppData" / "Local") / "pliant" / "cache"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "pliant"
        base = os.environ.get("XDG_CACHE_HOME")
        return (Path(base) if base else Path.home() / ".cache") / "pliant"
    except RuntimeError:
        return None


_default: tuple[Path | None, Cache] | None = None


def default() -> Cache:
    """Return the process's code cache; follows changes of `PLIANT_CACHE`."""
    global _default
    base = folder()
    if _default is None or _default[0] != base:
        _default = (base, Cache(base / "code" if base is not None else None))
    return _default[1]


def get(key: bytes) -> bytes | None:
    """Return the payload stored under `key` in the process's code cache, or None."""
    return default().get(key)


def put(key: bytes, payload: bytes) -> None:
    """Store `payload` under `key` in the process's code cache; warns once if it cannot be written."""
    default().put(key, payload)


def _open(data: bytes, key: bytes) -> bytes | None:
    """Return the payload of a file, or None if the file is damaged or was put under another key."""
    if not _is_sound(data):
        return None
    _, key_size, _, _ = _HEAD.unpack_from(data)
    end = _HEAD.size + key_size
    return data[end:] if data[_HEAD.size : end] == key else None


def _is_sound(data: bytes) -> bool:
    if len(data) < _HEAD.size:
        return False
    magic, key_size, payload_size, checksum = _HEAD.unpack_from(data)
    if magic != _MAGIC or key_size + payload_size != len(data) - _HEAD.size:
        return False
    return bool(hashlib.sha256(data[_HEAD.size :]).digest() == checksum)


def _warn(reason: str) -> None:
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"compiled code is not kept for the next run: {reason}; set PLIANT_CACHE to a folder that can be written",
        RuntimeWarning,
        stacklevel=_callers() + 1,
    )


def _callers() -> int:
    """Return the number of stack frames up to the innermost one outside of Pliant, so that a warning names the user's line."""
    frame, count = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, count = frame.f_back, count + 1
    return count - 1
