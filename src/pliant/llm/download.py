"""Downloads a file: resumable, verified by checksum, and visible under its name only when it is complete.

Bytes go to `NAME.part` next to the target. A download that was stopped, even by kill -9 or a power cut, resumes from there. When the
checksum is right the file is renamed, so others see all of it or nothing. A lock keeps two processes from downloading the same file.

    download(url, Path("model.gguf"), sha256="…", size=98362432, progress=print)
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..support.errors import Error
from .http import Broken, DownloadError, request, shown

Progress = Callable[[str], None]
_CHUNK = 1 << 18  # bytes read at a time: small enough for steady progress reports
_TRIES = 3  # attempts without progress before giving up; an attempt that receives bytes starts the count again


def download(
    url: str, target: Path, *, sha256: str | None, size: int | None, token: str | None = None, progress: Progress | None = None
) -> Path:
    """Downloads a file unless it exists, and returns its path; raises DownloadError if the result does not have the checksum and size.

    An interrupted download is resumed. Raises an Error if the disk has not enough free space.
    """
    say = progress or (lambda text: None)

    def fetch() -> None:
        part = target.with_name(target.name + ".part")
        if size is None:
            part.unlink(missing_ok=True)  # without a size, a resumed file cannot be checked for completeness
        _check_room(target, (size or 0) - _size(part))
        resumed = _size(part) > 0
        _fetch(url, part, size, token, say)
        if resumed and not _is_right(part, sha256, size):  # the old part may belong to another version, or be corrupt
            part.unlink()
            _fetch(url, part, size, token, say)
        _check(part, url, sha256, size)
        keep(part, target)

    return fetch_once(target, target.exists, fetch, say)


def fetch_once(target: Path, is_here: Callable[[], bool], fetch: Callable[[], None], say: Progress) -> Path:
    """Calls `fetch` unless `is_here` is true, under the lock of `target`; returns `target`.

    It asks again once it has the lock: another process may have fetched the file meanwhile.
    """
    if is_here():
        return target
    make_folder(target.parent)
    with locked(target, say):
        if not is_here():  # another process may have fetched it while this one waited for the lock
            fetch()
    return target


def keep(part: Path, target: Path) -> None:
    """Renames a complete file to its final name, with fsync of file and folder, so that it survives a power cut."""
    with open(part, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(part, target)
    if sys.platform != "win32":
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def make_folder(folder: Path) -> None:
    """Creates the folder for model files, if it is missing; raises an Error that says how to choose another one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise Error(f"`{folder}` cannot be written: {problem.strerror}", help="set PLIANT_CACHE to a folder that can be written") from None


@contextmanager
def locked(target: Path, say: Progress) -> Iterator[None]:
    """Context manager: holds an exclusive lock on `target`; other processes wait. The system releases it if the process dies.

    On Windows nothing is locked.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with open(target.with_name(target.name + ".lock"), "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"waiting for another process that fetches {target.name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def checksum(path: Path) -> str:
    """Returns the sha256 of a file as hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(url: str, part: Path, size: int | None, token: str | None, say: Progress) -> None:
    """Downloads into `part` until it has its full size, resuming with as many connections as it takes.

    Raises Broken after `_TRIES` attempts without progress.
    """
    failed = 0
    while size is None or _size(part) < size:
        had = _size(part)
        try:
            _receive(url, part, had, size, token, say)
            if size is None:
                return
            if _size(part) == had:
                raise Broken(f"`{shown(url)}` ends after {had} of {size} bytes")
        except Broken:
            failed = 1 if _size(part) > had else failed + 1
            if failed >= _TRIES:
                raise
            time.sleep(0.2 * 2**failed)


def _receive(url: str, part: Path, had: int, size: int | None, token: str | None, say: Progress) -> None:
    """Receives one response into `part`, appending if the server resumes at byte `had`; raises Broken if it ends early."""
    name, said = part.name.removesuffix(".part"), 0.0
    with request(url, token=token, start=had) as answer:
        resumed = answer.status == 206 and _begins_at(answer.headers.get("Content-Range", ""), had)
        with open(part, "ab" if resumed else "wb") as file:
            done = had if resumed else 0
            while chunk := answer.read1(_CHUNK):
                done += len(chunk)
                if size is not None and done > size:
                    file.truncate(0)
                    raise DownloadError(f"`{shown(url)}` is larger than the {size} bytes that were announced")
                file.write(chunk)
                if done == size or time.monotonic() > said + 0.1:
                    said = time.monotonic()
                    say(f"{name}: {done / 1e6:.1f}" + (f" of {size / 1e6:.1f} MB" if size else " MB"))
    if getattr(answer, "length", None):
        raise Broken(f"`{shown(url)}` broke off after {done} bytes")


def _begins_at(content_range: str, start: int) -> bool:
    return content_range.strip().startswith(f"bytes {start}-")


def _is_right(part: Path, sha256: str | None, size: int | None) -> bool:
    return (size is None or _size(part) == size) and (sha256 is None or checksum(part) == sha256)


def _check(part: Path, url: str, sha256: str | None, size: int | None) -> None:
    """Raises DownloadError, and removes the file, if its size or checksum is wrong."""
    if not _is_right(part, sha256, size):
        with suppress(OSError):
            part.unlink()
        raise DownloadError(
            f"what came from `{shown(url)}` is not the file that was asked for",
            facts=[f"its checksum (sha256) is not {sha256}"],
            help="it was removed; try again, and if it happens again, somebody has changed the file",
        )


def _check_room(target: Path, needed: int) -> None:
    """Raises Error if the disk has not enough free space."""
    free = shutil.disk_usage(target.parent).free
    if needed > free:
        raise Error(
            f"there is no room for `{target.name}`: {needed / 1e6:.0f} MB are needed in `{target.parent}`, {free / 1e6:.0f} MB are free",
            help="set PLIANT_CACHE to a folder on another disk, or `pliant models rm` what is not needed",
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
