"""What all tokenizers share: special tokens in texts, tokens around texts, and decoding that never shows half a character.

ids = tokenizer.encode("Hello")                       # with the tokens that the model wants around a text
tokenizer.encode(prompt, add_special=False, parse_special=True)      # a rendered chat template, whose special tokens count
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

MAX_SPECIAL = 512  # characters of a special token


class Model(Protocol):
    """A kind of tokenizer: how texts without special tokens become tokens, and what a normal token says."""

    def encode(self, text: str, at_start: bool) -> list[int]:
        """The tokens of a text; `at_start` where it follows a special token, or nothing."""

    def decode(self, token: str) -> bytes:
        """What a normal token says."""

    @property
    def drops_first_space(self) -> bool:
        """True where the first token of a text begins with a space that was not there."""


class Tokenizer:
    """Text to tokens and back."""

    def __init__(self, vocabulary: Vocabulary, model: Model) -> None:
        self.vocabulary = vocabulary
        self.model = model
        self._said: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self.vocabulary.tokens)

    @property
    def bos(self) -> int | None:
        """The token that begins a text."""
        return self.vocabulary.bos

    @property
    def eos(self) -> int | None:
        """The token that ends a text."""
        return self.vocabulary.eos

    @property
    def ends(self) -> frozenset[int]:
        """The tokens after which generation stops."""
        return self.vocabulary.ends

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """The tokens of a text. Control tokens spelled in the text count only with `parse_special`: a user's text must not contain any."""
        text = _whole(text)
        found = list(self.vocabulary.before) if add_special else []
        at_start = True
        for piece in self._pieces(text, self._special if parse_special else self._user_defined):
            if isinstance(piece, int):
                found.append(piece)
                at_start = True
            else:
                found += self.model.encode(piece, at_start)
                at_start = False
        return found + list(self.vocabulary.after) if add_special else found

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """The text of tokens; control tokens say nothing unless `special`."""
        stream = self.stream_decoder(special=special, at_start=True)
        return "".join([stream.push(token) for token in ids]) + stream.finish()

    def stream_decoder(self, *, special: bool = False, at_start: bool = False) -> StreamDecoder:
        """A decoder that takes token after token; `at_start` where they are the first of a text and not an answer to one."""
        return StreamDecoder(self, special, at_start and self.model.drops_first_space)

    def controls(self, text: str) -> Iterator[tuple[int, int]]:
        """Where control tokens are spelled in a text, from left to right: begin and end."""
        return ((start, start + len(self.vocabulary.tokens[token])) for start, token in self._control.find(text))

    def token_bytes(self, token: int, *, special: bool = False) -> bytes:
        """What a token says: bytes, because a character may need several tokens."""
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
        """The text cut at special tokens: what lies between them, and their numbers."""
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
    """Text from token after token; the bytes of a character that is not whole yet wait for the next token."""

    def __init__(self, tokenizer: Tokenizer, special: bool, drop_space: bool) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._drop_space = drop_space
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that is certain after one more token."""
        said = self._tokenizer.token_bytes(token, special=self._special)
        if self._drop_space and said:
            said, self._drop_space = said.removeprefix(b" "), False
        return self._bytes.decode(said)

    def finish(self) -> str:
        """What is left at the end: a replacement character for a character that never became whole."""
        return self._bytes.decode(b"", final=True)


class _Finder:
    """Finds tokens that are spelled in texts: at each place the longest."""

    def __init__(self, vocabulary: Vocabulary, kinds: tuple[TokenKind, ...]) -> None:
        self.ids: dict[str, int] = {}
        for token in vocabulary.of_kinds(*kinds):
            text = vocabulary.tokens[token]
            if len(text) > MAX_SPECIAL:
                raise ModelFileError(f"tokenizer: special token {token} has {len(text)} characters; {MAX_SPECIAL} are allowed")
            if text:
                self.ids.setdefault(text, token)
        self.lengths: dict[str, list[int]] = {}  # by the first character: with thousands of such tokens, few lengths are tried
        for text in self.ids:
            self.lengths.setdefault(text[0], []).append(len(text))
        for first, lengths in self.lengths.items():
            self.lengths[first] = sorted(set(lengths), reverse=True)
        self.first = re.compile(f"[{''.join(map(re.escape, self.lengths))}]") if self.lengths else None

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Where tokens stand in the text, and which, from left to right."""
        at = 0
        while self.first is not None and (match := self.first.search(text, at)):
            at = match.start()
            sizes = self.lengths[match[0]]
            size = next((n for n in sizes if text[at : at + n] in self.ids), 0)
            if size:
                yield at, self.ids[text[at : at + size]]
            at += size or 1


def raw(text: str) -> bytes:
    """The bytes of a token's text as the file has them."""
    return text.encode(errors="surrogateescape")


def _whole(text: str) -> str:
    """The text with lone surrogates, which no UTF-8 has, replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
