"""WordPiece, as BERT uses it: words without accents and capitals, each cut into the longest tokens from left to right.

WordPiece(vocabulary, first="", inner="##").encode("Unaffable!", True)      # un ##aff ##able !
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from .tokenizer import raw
from .vocabulary import Vocabulary

_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),  # as the tokenizers library has it; Unicode's block begins at 2B820
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """The tokens of texts by longest match; `first` and `inner` stand before the first and the other tokens of a word."""

    drops_first_space = True

    def __init__(self, vocabulary: Vocabulary, *, first: str, inner: str, lowercase: bool = True, longest_word: int = 100) -> None:
        self.vocabulary = vocabulary
        self.first = first
        self.inner = inner
        self.lowercase = lowercase
        self.longest_word = longest_word
        self._longest = max(map(len, vocabulary.tokens), default=0)

    def encode(self, text: str, at_start: bool) -> list[int]:
        """The tokens of a text."""
        return [token for word in self._words(text) for token in self._tokens(word)]

    def decode(self, token: str) -> bytes:
        """What a token says: a word has a space before it."""
        if self.inner and token.startswith(self.inner):
            return raw(token[len(self.inner) :])
        if self.inner or token.startswith(self.first):
            return raw(" " + token[len(self.first) :])
        return raw(token)

    def _words(self, text: str) -> Iterator[str]:
        """Runs of characters between spaces; punctuation and ideographs are words of their own."""
        spaced = []
        for c in text:
            if c in "\t\n\r":
                spaced.append(" ")
            elif c != "\ufffd" and unicodedata.category(c)[0] != "C":
                spaced.append(" " if c.isspace() else f" {c} " if _is_ideograph(ord(c)) else c)
        plain = "".join(spaced)
        if self.lowercase:  # which strips accents as well
            plain = "".join(c for c in unicodedata.normalize("NFD", plain) if unicodedata.category(c) != "Mn")
            plain = "".join(c.lower() for c in plain)  # one by one: the meaning of a letter must not depend on the next
        return iter("".join(f" {c} " if _is_punctuation(c) else c for c in plain).split())

    def _tokens(self, word: str) -> list[int]:
        unknown = [] if self.vocabulary.unknown is None else [self.vocabulary.unknown]
        if len(word) > self.longest_word:
            return unknown
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = self.inner if start else self.first
            for end in range(min(len(word), start + self._longest), start, -1):
                token = self.vocabulary.ids.get(prefix + word[start:end])
                if token is not None:
                    break
            else:
                return unknown
            found.append(token)
            start = end
        return found


def _is_ideograph(code: int) -> bool:
    return any(a <= code <= b for a, b in _IDEOGRAPHS)


def _is_punctuation(c: str) -> bool:
    return unicodedata.category(c)[0] == "P" or (c.isascii() and c.isprintable() and not c.isalnum() and c != " ")
