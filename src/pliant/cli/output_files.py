"""Files that commands write: their places are checked before any work is done, and they appear whole or not at all.

check_place("out.npz", ".npz")          # before the model is compiled
with written("out.npz") as temporary:   # renamed at the end
    numpy.savez(temporary, …)
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import Usage
from .facts import not_writable


def check_place(path: str, suffix: str = "") -> None:
    """Raises Usage if no file can be written there, or if its name does not end in `suffix`."""
    file = Path(path)
    if suffix and file.suffix != suffix:
        raise Usage(f"`{path}` is no {suffix} file", f"write {file.name}{suffix}")
    if file.is_dir():
        raise Usage(f"`{path}` is a folder", "give the name of a file")
    if not file.parent.is_dir():
        raise Usage(f"there is no folder `{file.parent}`", f"mkdir -p {file.parent}")
    reason = "" if file.exists() and not file.is_file() else not_writable(file.parent)  # a device, such as /dev/null, is written as it is
    if reason:
        raise Usage(f"`{path}` cannot be written: {reason}")


@contextmanager
def written(path: str) -> Iterator[str]:
    """Gives a temporary name in the same folder, with the same ending, and renames that file at the end."""
    target = Path(path)
    if target.exists() and not target.is_file():
        yield path
        return
    handle, temporary = tempfile.mkstemp(target.suffix, target.stem + ".", target.parent)
    os.close(handle)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
