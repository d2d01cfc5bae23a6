"""WordPiece, as BERT uses it: lowercases words, strips accents, and cuts each word greedily into the longest tokens from left to right.

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
    (0x2B920, 0x2CEAF),  # as in the `tokenizers` library, for equal tokens; the Unicode block begins at 2B820
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """The WordPiece algorithm of a tokenizer; `first` and `inner` are the prefixes of the first and the other tokens of a word."""

    drops_first_space = True
    starts_once = False

    def __init__(self, vocabulary: Vocabulary, *, first: str, inner: str, lowercase: bool = True, longest_word: int = 100) -> None:
        self.vocabulary = vocabulary
        self.first = first
        self.inner = inner
        self.lowercase = lowercase
        self.longest_word = longest_word
        self._longest = max(map(len, vocabulary.tokens), default=0)

    def encode(self, text: str, at_start: bool) -> list[int]:
        """Returns the tokens of a text, without special tokens: the longest known pieces of each word."""
        return [token for word in self._words(text) for token in self._tokens(word)]

    def decode(self, token: str) -> bytes:
        """Returns the bytes that a token stands for; a word begins with a space."""
        if self.inner and token.startswith(self.inner):
            return raw(token[len(self.inner) :])
        if self.inner or token.startswith(self.first):
            return raw(" " + token[len(self.first) :])
        return raw(token)

    def _words(self, text: str) -> Iterator[str]:
        """Returns the words of a text: runs between spaces; punctuation characters and ideographs are words of their own."""
        spaced = []
        for c in text:
            if c in "\t\n\r":
                spaced.append(" ")
            elif c != "\ufffd" and unicodedata.category(c)[0] != "C":
                spaced.append(" " if c.isspace() else f" {c} " if _is_ideograph(ord(c)) else c)
        plain = "".join(spaced)
        if self.lowercase:  # BERT strips accents exactly when it lowercases
            plain = "".join(c for c in unicodedata.normalize("NFD", plain) if unicodedata.category(c) != "Mn")
            plain = "".join(c.lower() for c in plain)  # per character, as BERT does: str.lower of a word depends on context (final sigma)
        return iter("".join(f" {c} " if _is_punctuation(c) else c for c in plain).split())

    def _tokens(self, word: str) -> list[int]:
        """Cuts a word greedily into the longest tokens.

        The unknown token (nothing, if there is none) if that fails or the word is too long.
        """
        unknown = [] if self.vocabulary.unknown is None else [self.vocabulary.unknown]
        if len(word) > self.longest_word:
            return unknown
        tokens: list[int] = []
        start = 0
        while start < len(word):
            prefix = self.inner if start else self.first
            for end in range(min(len(word), start + self._longest), start, -1):
                token = self.vocabulary.ids.get(prefix + word[start:end])
                if token is not None:
                    break
            else:
                return unknown
            tokens.append(token)
            start = end
        return tokens


def _is_ideograph(code: int) -> bool:
    return any(a <= code <= b for a, b in _IDEOGRAPHS)


def _is_punctuation(c: str) -> bool:
    return unicodedata.category(c)[0] == "P" or (c.isascii() and c.isprintable() and not c.isalnum() and c != " ")
