"""The tokenizer: special tokens in and around texts, the model of normal tokens, and streaming decoding that never splits a character.

ids = tokenizer.encode("Hello")                       # with the tokens that the model wants around a text
tokenizer.encode(prompt, add_special=False, parse_special=True)      # a rendered chat template: its special tokens are recognized
stream = tokenizer.stream_decoder()
for token in generated:
    print(stream.push(token), end="")
print(stream.finish())
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Protocol

from ...support.errors import ModelFileError
from .vocabulary import TokenKind, Vocabulary

MAX_SPECIAL = 512  # characters of a special token: far above real ones; bounds the search in hostile vocabularies


class Model(Protocol):
    """A tokenization algorithm: encodes text without special tokens, and decodes normal tokens."""

    def encode(self, text: str, at_start: bool) -> list[int]:
        """Returns the tokens of a text; `at_start` if it is at the beginning or follows a special token."""

    def decode(self, token: str) -> bytes:
        """Returns the bytes that a normal token stands for."""

    @property
    def drops_first_space(self) -> bool:
        """True if encoding adds a space before a text, which decoding must drop."""

    @property
    def starts_once(self) -> bool:
        """True if only the beginning of a text counts as `at_start`, and not what follows a special token."""


class Tokenizer:
    """Converts text to token numbers and back, special tokens included."""

    def __init__(self, vocabulary: Vocabulary, model: Model) -> None:
        self.vocabulary = vocabulary
        self.model = model
        self._said: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self.vocabulary.tokens)

    @property
    def bos(self) -> int | None:
        """The number of the token that begins a text, or None."""
        return self.vocabulary.bos

    @property
    def eos(self) -> int | None:
        """The number of the token that ends a text, or None."""
        return self.vocabulary.eos

    @property
    def ends(self) -> frozenset[int]:
        """The numbers of the tokens after which generation stops."""
        return self.vocabulary.ends

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Returns the tokens of a text; with `add_special`, the special tokens around a text too.

        Control tokens spelled in the text are recognized only with `parse_special`: a user's text must not be able to contain any.
        """
        text = _whole(text)
        tokens = list(self.vocabulary.before) if add_special else []
        at_start = True
        for piece in self._pieces(text, self._special if parse_special else self._user_defined):
            if isinstance(piece, int):
                tokens.append(piece)
                at_start = not self.model.starts_once
            else:
                tokens += self.model.encode(piece, at_start)
                at_start = False
        return tokens + list(self.vocabulary.after) if add_special else tokens

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """Returns the text of tokens; control tokens are left out unless `special`."""
        stream = self.stream_decoder(special=special, at_start=True)
        return "".join([stream.push(token) for token in ids]) + stream.finish()

    def stream_decoder(self, *, special: bool = False, at_start: bool = False) -> StreamDecoder:
        """Returns an incremental decoder; `at_start` if the tokens begin a text, not an answer that continues one."""
        return StreamDecoder(self, special, at_start and self.model.drops_first_space)

    def controls(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields the spans of control tokens that are spelled in a text, from left to right."""
        return ((start, start + len(self.vocabulary.tokens[token])) for start, token in self._control.find(text))

    def token_bytes(self, token: int, *, special: bool = False) -> bytes:
        """Returns the bytes that a token stands for (bytes, because a character may take several tokens).

        Control and unknown tokens have none, unless `special`. Raises IndexError for a number outside of the vocabulary.
        """
        if not 0 <= token < len(self):
            raise IndexError(f"there is no token {token}: the vocabulary has {len(self)}")
        kind = self.vocabulary.kind(token)
        if kind in (TokenKind.CONTROL, TokenKind.UNKNOWN) and not special:
            return b""
        said = self._said.get(token)
        if said is None:
            self._said[token] = said = self._bytes(self.vocabulary.tokens[token], kind)
        return said

    def _bytes(self, text: str, kind: TokenKind) -> bytes:
        if kind is TokenKind.BYTE and (match := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", text)):
            return bytes.fromhex(match[1])
        return self.model.decode(text) if kind in (TokenKind.NORMAL, TokenKind.UNUSED, TokenKind.BYTE) else raw(text)

    def _pieces(self, text: str, known: _Finder) -> Iterator[str | int]:
        """Splits a text at special tokens: yields the texts between them, and their numbers."""
        at = 0
        for start, token in known.find(text):
            if start > at:
                yield text[at:start]
            yield token
            at = start + len(self.vocabulary.tokens[token])
            if token in self.vocabulary.strip_after:
                at += len(text) - at - len(text[at:].lstrip())
        if at < len(text):
            yield text[at:]

    @cached_property
    def _user_defined(self) -> _Finder:
        return _Finder(self.vocabulary, (TokenKind.USER_DEFINED,))

    @cached_property
    def _control(self) -> _Finder:
        return _Finder(self.vocabulary, (TokenKind.CONTROL, TokenKind.UNKNOWN))

    @cached_property
    def _special(self) -> _Finder:
        return _Finder(self.vocabulary, (TokenKind.USER_DEFINED, TokenKind.CONTROL, TokenKind.UNKNOWN))


class StreamDecoder:
    """Decodes token after token; bytes of an incomplete character wait for the next token."""

    def __init__(self, tokenizer: Tokenizer, special: bool, drop_space: bool) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._drop_space = drop_space
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Takes one more token; returns the text that is complete now."""
        said = self._tokenizer.token_bytes(token, special=self._special)
        if self._drop_space and said:
            said, self._drop_space = said.removeprefix(b" "), False
        return self._bytes.decode(said)

    def finish(self) -> str:
        """Returns the rest at the end: a replacement character if the last character is incomplete."""
        return self._bytes.decode(b"", final=True)


class _Finder:
    """Finds special tokens that are spelled out in texts; at each position the longest one."""

    def __init__(self, vocabulary: Vocabulary, kinds: tuple[TokenKind, ...]) -> None:
        self.ids: dict[str, int] = {}
        for token in vocabulary.of_kinds(*kinds):
            text = vocabulary.tokens[token]
            if len(text) > MAX_SPECIAL:
                raise ModelFileError(f"tokenizer: special token {token} has {len(text)} characters; {MAX_SPECIAL} are allowed")
            if text:
                self.ids.setdefault(text, token)
        self.lengths: dict[str, list[int]] = {}  # lengths by first character: few need trying, even with thousands of special tokens
        for text in self.ids:
            self.lengths.setdefault(text[0], []).append(len(text))
        for first, lengths in self.lengths.items():
            self.lengths[first] = sorted(set(lengths), reverse=True)
        self.first = re.compile(f"[{''.join(map(re.escape, self.lengths))}]") if self.lengths else None

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields (position, token) for each token in the text, from left to right."""
        at = 0
        while self.first is not None and (match := self.first.search(text, at)):
            at = match.start()
            sizes = self.lengths[match[0]]
            size = next((n for n in sizes if text[at : at + n] in self.ids), 0)
            if size:
                yield at, self.ids[text[at : at + size]]
            at += size or 1


def raw(text: str) -> bytes:
    """Returns the bytes of a token's text as they are in the file."""
    return text.encode(errors="surrogateescape")


def _whole(text: str) -> str:
    """Returns the text with lone surrogates, which UTF-8 cannot encode, replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
