r"""Regular expressions with Unicode classes (`\p{L}`) on top of Python's `re`, which lacks them.

A text is first translated to a small alphabet: ASCII stays, and every other character becomes one private-use character that stands for its
general category (and for the named sets of the pattern that contain it). The translation keeps positions, so spans of matches are valid for
the original text. A Unicode class is then a few ranges, and no table of all Unicode characters is needed.

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
_FIRST = 0xE000  # the first private-use character
_SETS = 3  # most named sets of a pattern: each is one bit of the private-use character
_TOKEN = re.compile(r"\\p\{(\w+)\}|\\([sS])|\\.|\[\^?|\]|.", re.DOTALL)
_SPACE_CATEGORIES = ("Zs", "Zl", "Zp")


class Pattern:
    """A regular expression with Unicode classes for Python's `re`; `sets` are named character classes, written as inside brackets."""

    def __init__(self, pattern: str, sets: Mapping[str, str] | None = None) -> None:
        self.text = pattern
        self._sets = [set_ranges(text) for text in (sets or {}).values()]
        self._names = list(sets or {})
        assert len(self._names) <= _SETS
        self._spelling = _Spelling(self._sets)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields the spans of the matches and of the text between them, in order; together they cover the text."""
        yield from self.split(self.spell(text), 0, len(text))

    def spell(self, text: str) -> str:
        """Returns a text translated to the small alphabet, one representative per character class."""
        return text if text.isascii() else text.translate(self._spelling)

    def split(self, spelled: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yields the spans of a part of a translated text, matched as if it were the whole text: each match, and what is between matches.

        Empty spans are left out.
        """
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
        """The pattern with Unicode classes replaced by ranges of the small alphabet."""
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
        """Returns the bracket contents for a class: its ASCII members, and the private-use characters of its categories or set."""
        if name in self._names:
            bit = 1 << self._names.index(name)
            ranges = self._sets[self._names.index(name)]
            plain = "".join(re.escape(chr(c)) for c in range(128) if any(a <= c <= b for a, b in ranges))
            codes = range(_FIRST, _FIRST + len(_CATEGORIES) * (1 << _SETS))
            return plain + "".join(chr(c) for c in codes if (c - _FIRST) & bit)
        categories = [c for c in _CATEGORIES if c.startswith(name)]
        assert categories, f"no class {name}"
        plain = "".join(re.escape(chr(c)) for c in range(128) if unicodedata.category(chr(c)) in categories)
        return plain + "".join(_range(c) for c in categories)


class _Spelling(dict[int, int]):
    """The translation table of characters to the small alphabet of class representatives; filled on demand."""

    def __init__(self, sets: list[list[tuple[int, int]]]) -> None:
        self.sets = sets

    def __missing__(self, code: int) -> int:
        self[code] = spelled = code if code < 128 else self._private(code)
        return spelled

    def _private(self, code: int) -> int:
        category = "Zl" if code == 0x85 else unicodedata.category(chr(code))  # NEL: a control character that counts as white space
        bits = sum(1 << i for i, ranges in enumerate(self.sets) if any(a <= code <= b for a, b in ranges))
        return _FIRST + (_CATEGORIES.index(category) << _SETS) + bits


def _range(category: str) -> str:
    """Returns the range of private-use characters of a category, for all combinations of sets."""
    first = _FIRST + (_CATEGORIES.index(category) << _SETS)
    return f"{chr(first)}-{chr(first + (1 << _SETS) - 1)}"


def set_ranges(text: str) -> list[tuple[int, int]]:
    """Parses a set such as `A-Zµ` to pairs (first, last) of code points."""
    return [(ord(m[1]), ord(m[2] or m[1])) for m in re.finditer(r"(.)(?:-(.))?", text, re.DOTALL)]


_SPACE = "\\t-\\r " + "".join(_range(c) for c in _SPACE_CATEGORIES)
