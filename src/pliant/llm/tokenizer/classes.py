r"""Regular expressions with Unicode classes on Python's `re`, which knows no `\p{L}`.

A text is first spelled in a small alphabet: ASCII stays as it is, every other character becomes one private character that stands for its
general category (and for the named sets of the pattern that it is in). One character stays one character, so matches of the spelled text
are matches of the text. A class is then a few ranges, whatever its number of characters, and no table of Unicode is built.

    pattern = Pattern(r"\p{L}+|\p{N}")
    [text[a:b] for a, b in pattern.spans(text := "naïve 42")]        # ["naïve", " ", "4", "2"]

`\s` is Unicode's White_Space, `\p{..}` a category (L, Lu, N, P, S, M, …) or a set given by name; both may stand in brackets.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cached_property

_MEMBERS = {"L": "ultmo", "M": "nce", "N": "dlo", "P": "cdseifo", "S": "mcko", "Z": "slp", "C": "cfson"}
_CATEGORIES = [major + minor for major, minors in _MEMBERS.items() for minor in minors]
_FIRST = 0xE000  # of the private characters
_SETS = 3  # at most, in a pattern
_TOKEN = re.compile(r"\\p\{(\w+)\}|\\([sS])|\\.|\[\^?|\]|.", re.DOTALL)
_SPACE_CATEGORIES = ("Zs", "Zl", "Zp")


class Pattern:
    """A pattern that finds spans of characters; `sets` are named characters and ranges, as they would stand in brackets."""

    def __init__(self, pattern: str, sets: Mapping[str, str] | None = None) -> None:
        self.text = pattern
        self._sets = [_ranges(text) for text in (sets or {}).values()]
        self._names = list(sets or {})
        assert len(self._names) <= _SETS
        self._spelling = _Spelling(self._sets)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The matches, and what lies between them, in order; nothing is left out."""
        yield from self.split(self.spell(text), 0, len(text))

    def spell(self, text: str) -> str:
        """The text in the small alphabet."""
        return text if text.isascii() else text.translate(self._spelling)

    def split(self, spelled: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The spans of a part of a spelled text, which is looked at as if it were all of it."""
        at = start
        for match in self._compiled.finditer(spelled, start, end):
            a, b = match.span()
            if a > at:
                yield at, a
            if b > a:
                yield a, b
            at = b
        if at < end:
            yield at, end

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        parts = []
        inside = False
        for token in _TOKEN.finditer(self.text):
            part = token[0]
            if part in ("[", "[^"):
                inside = True
            elif part == "]":
                inside = False
            elif token[1] or token[2]:
                assert not (inside and token[2] == "S"), "\\S does not stand in brackets"
                members = self._members(token[1]) if token[1] else _SPACE
                part = members if inside else f"[{'^' if token[2] == 'S' else ''}{members}]"
            parts.append(part)
        return re.compile("".join(parts))

    def _members(self, name: str) -> str:
        """What stands in brackets for a class: its ASCII, and the private characters of its categories, or of its set."""
        if name in self._names:
            bit = 1 << self._names.index(name)
            ranges = self._sets[self._names.index(name)]
            plain = "".join(re.escape(chr(c)) for c in range(128) if any(a <= c <= b for a, b in ranges))
            codes = range(_FIRST, _FIRST + len(_CATEGORIES) * (1 << _SETS))
            return plain + "".join(chr(c) for c in codes if (c - _FIRST) & bit)
        found = [c for c in _CATEGORIES if c.startswith(name)]
        assert found, f"no class {name}"
        plain = "".join(re.escape(chr(c)) for c in range(128) if unicodedata.category(chr(c)) in found)
        return plain + "".join(_range(c) for c in found)


class _Spelling(dict[int, int]):
    """From a character to the one that is written for it; filled as texts are met."""

    def __init__(self, sets: list[list[tuple[int, int]]]) -> None:
        self.sets = sets

    def __missing__(self, code: int) -> int:
        self[code] = found = code if code < 128 else self._private(code)
        return found

    def _private(self, code: int) -> int:
        category = "Zl" if code == 0x85 else unicodedata.category(chr(code))  # a line break among the controls
        bits = sum(1 << i for i, ranges in enumerate(self.sets) if any(a <= code <= b for a, b in ranges))
        return _FIRST + (_CATEGORIES.index(category) << _SETS) + bits


def _range(category: str) -> str:
    """The private characters of a category, whatever sets they are in."""
    first = _FIRST + (_CATEGORIES.index(category) << _SETS)
    return f"{chr(first)}-{chr(first + (1 << _SETS) - 1)}"


def _ranges(text: str) -> list[tuple[int, int]]:
    """`A-Zµ` as pairs of code points."""
    return [(ord(m[1]), ord(m[2] or m[1])) for m in re.finditer(r"(.)(?:-(.))?", text, re.DOTALL)]


_SPACE = "\\t-\\r " + "".join(_range(c) for c in _SPACE_CATEGORIES)
