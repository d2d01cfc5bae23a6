"""Files that commands write: their places are checked before any work is done, and they appear whole or not at all.

check_place("out.npz", ".npz")          # before the model is compiled
with written("out.npz") as temporary:   # renamed at the end
    numpy.savez(temporary, …)
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import Usage
from .facts import not_writable


def check_place(path: str, suffix: str = "") -> None:
    """Raises Usage if no file can be written at this path, or if its name does not end in `suffix`; creates nothing.

    A path is refused that is a folder, whose folder does not exist, or whose folder takes no new files. A device such as /dev/null is
    taken.
    """
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
    """Gives a temporary name in the same folder, with the same ending; at the end renames that file to `path`.

    After an exception it removes the temporary file, and a file at `path` stays as it was. A device gets no temporary name: it gives
    `path`.
    """
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


def write_npz(path: str, arrays: Mapping[str, Any]) -> None:
    """Writes arrays of any names to a .npz file; `numpy.savez` takes names such as `file` for its own arguments.

    Raises ValueError for an array of Python objects.
    """
    import numpy as np

    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def json_text(value: Any) -> str:
    """Returns a value as JSON text, with null for numbers that JSON does not have: NaN and infinities, also within dicts and lists."""
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    """Returns a copy of nested dicts and lists with None for each NaN and infinity; tuples become lists."""
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_finite, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _umask() -> int:
    """Returns the process's umask; to read it, it sets it to 0 for a moment."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
