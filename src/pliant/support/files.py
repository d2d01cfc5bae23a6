"""Files that appear as a whole or not at all: written under another name, then renamed."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file; another process sees all of it or what was there before, and after an error that is still there."""
    temporary = Path(f"{os.fspath(path)}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
