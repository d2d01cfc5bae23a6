"""The exception classes of Pliant, and how errors are rendered.

An error has four parts: *what* happened (one line, lower case, no final stop), *where* (places in the user's source, each with a note
beside its caret), *facts* (what was found, what was expected), *help* (a way out). The text is rendered on demand, because a search may
raise thousands of errors that are never shown.

    error: `x` has 3 columns where `n x 4` is expected
      --> model.py:12
       | y = layer(x)
       |           ^ this argument
    fact: dim 1 of `x` is 3, the signature says 4
    help: transpose `x`, or declare the dim with `dim("m")`
"""

from __future__ import annotations

from collections.abc import Sequence

from .source import Span


def counted(number: int, noun: str, several: str = "") -> str:
    """Returns the number with its noun: `1 dim`, `2 dims`; `several` is the plural of a noun that does not take an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {several or noun + 's'}"


def is_are(number: int) -> str:
    """Returns the verb for a number of things: "is" for one, else "are"."""
    return "is" if number == 1 else "are"


class Error(Exception):
    """Base of all errors of Pliant: what, where, facts, help."""

    def __init__(
        self,
        what: str,
        *,
        where: Span | None = None,
        note: str = "",
        notes: Sequence[tuple[Span, str]] = (),
        facts: Sequence[str] = (),
        help: str = "",
    ) -> None:
        super().__init__(what)
        self.what = what
        self.places: list[tuple[Span, str]] = ([(where, note)] if where else []) + list(notes)
        self.facts = list(facts)
        self.help = help

    @property
    def where(self) -> Span | None:
        """The first source location of the error, or None."""
        return self.places[0][0] if self.places else None

    def at(self, where: Span | None, note: str = "") -> Error:
        """Locates this error at `where` unless it has a location already; returns the error itself."""
        if where is not None and not self.places:
            self.places.append((where, note))
        return self

    def __str__(self) -> str:
        lines = [self.what]
        lines += [span.render(note) for span, note in self.places]
        lines += [f"fact: {fact}" for fact in self.facts]
        if self.help:
            lines.append(f"help: {self.help}")
        return "\n".join(lines)


class ShapeError(Error, ValueError):
    """Raised for a shape, a dtype or a dim that violates the program's contract."""


class ArgumentError(Error, TypeError):
    """Raised for a call with a wrong number, name or type of arguments."""


class CallError(ShapeError, ArgumentError):
    """Raised for a call of a compiled program with a wrong number or name of arguments."""


class OutputFileError(Error, OSError):
    """Raised if a file that a user asked for cannot be written."""


class UnsupportedError(Error, NotImplementedError):
    """Raised for a valid request that Pliant does not support."""


class ModelFileError(Error, ValueError):
    """Raised for a file (model, cache, artifact) that is broken or hostile."""


class ScheduleError(Error):
    """Raised by a schedule primitive that would change the meaning of the program."""


class InternalError(Error):
    """Raised if an invariant of Pliant itself is broken; please report it."""

    def __str__(self) -> str:
        return super().__str__() + "\nhelp: this is a defect of Pliant, not of your program; please report it with this text"


class CancelledError(Error):
    """Raised if a call was canceled before its end."""


class OutOfMemoryError(Error, MemoryError):
    """Raised if the system or the caller's allocator refused an allocation."""
