"""Source locations: the `Span` that errors point at.

A span is a file name, a line, a column range and the text of the line, so that an error can be shown with a caret after the source is
gone. Columns count from 0, lines from 1, as in Python's `ast`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .record import dataclass

_PACKAGE = str(Path(__file__).resolve().parent.parent)  # frames below this folder are Pliant's own


@dataclass(frozen=True, slots=True)
class Span:
    """A range of characters on one line of the user's source, with the text of the line."""

    file: str
    line: int
    column: int
    end_column: int
    text: str

    def render(self, note: str = "") -> str:
        """The location as text: file and line, the line itself, and carets under the range."""
        shown = self.text.rstrip()
        indent = len(shown) - len(shown.lstrip())
        width = max(1, min(self.end_column, len(shown)) - self.column)
        caret = " " * max(0, self.column - indent) + "^" * width
        return f"  --> {self.file}:{self.line}\n   | {shown.strip()}\n   | {caret}{' ' + note if note else ''}"


def caller_span() -> Span | None:
    """Returns the innermost line of the Python stack that is outside of Pliant, or None."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    import linecache

    file, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, line).rstrip("\n")
    indent = len(text) - len(text.lstrip())
    return Span(file, line, indent, len(text), text)
