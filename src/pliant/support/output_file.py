"""Text files that users ask for: written as a whole, or refused in words that say what to do.

check_place("out/report.html")          # before the work: raises OutputFileError if there is no folder `out`
write_text("out/report.html", page)
"""

from __future__ import annotations

import os

from .errors import OutputFileError


def check_place(path: str | os.PathLike[str]) -> None:
    """Raises OutputFileError if the folder of a file does not exist, or if there is a folder of its name."""
    place = os.fspath(path)
    folder = os.path.dirname(place) or "."
    if not os.path.isdir(folder):
        raise OutputFileError(f"cannot write {place}: there is no folder {folder}", help=f"os.makedirs({folder!r})")
    if os.path.isdir(place):
        raise OutputFileError(f"cannot write {place}: it is a folder", help="give the name of a file in it")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text file in UTF-8 as a whole: another process sees all of it, or what was there before.

    Raises OutputFileError if it cannot be written; what was there before is still there then.
    """
    check_place(path)
    target = os.fspath(path)
    special = os.path.exists(target) and not os.path.isfile(target)  # a device, such as /dev/null, is written as it is
    temporary = target if special else f"{target}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        if not special:
            os.replace(temporary, target)
    except OSError as problem:
        raise OutputFileError(f"cannot write {target}: {problem.strerror or problem}") from None
    finally:
        if not special and os.path.exists(temporary):
            os.unlink(temporary)
