"""Byte-pair encoding (BPE): cuts words into characters and merges adjacent ones in the order in which the merges were learned.

Byte-level vocabularies spell bytes as printable characters (GPT-2's table: "Ġ" is a space), so that every text has tokens. The other kind
spells text as it is, with spaces as "▁", and falls back to byte tokens such as `<0x0A>`.

    Bpe(vocabulary, merges, words("gpt-2")).encode("Hello world", True)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from ...support.errors import ModelFileError
from ...support.record import dataclass
from .merge import merge
from .split import Splitter
from .tokenizer import raw
from .vocabulary import Vocabulary

_CACHED_WORDS = 50_000  # more distinct words than almost any text; bounds the memory of the cache
_CACHED_LENGTH = 256  # characters of a word in the cache; without a pre-tokenizer, a word is a whole text


@dataclass(frozen=True, slots=True)
class SpacePrefix:
    """The "▁" before a text: `once` only at its beginning and not after special tokens too; `doubled` also before a text with a space."""

    once: bool = False
    doubled: bool = False


class Bpe:
    """The byte-pair encoding (BPE) algorithm of a tokenizer."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        merges: Sequence[str],
        splitter: Splitter,
        *,
        whole_words: bool = False,
        spelled_bytes: bool = True,
        normalize: Callable[[str], str] | None = None,
        prefix: SpacePrefix | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.splitter = splitter
        self.whole_words = whole_words
        self.spelled_bytes = spelled_bytes
        self.normalize = normalize
        self.prefix = prefix
        # "a b" -> rank; of a duplicate merge, the first counts
        self.ranks = dict(zip(reversed(merges), range(len(merges) - 1, -1, -1), strict=True))
        self._words: dict[str, list[int]] = {}

    @property
    def drops_first_space(self) -> bool:
        """True if encoding puts a space before the text."""
        return self.prefix is not None

    @property
    def starts_once(self) -> bool:
        """True if that space is put only at the beginning of a text."""
        return self.prefix is not None and self.prefix.once

    def encode(self, text: str, at_start: bool) -> list[int]:
        """Returns the tokens of a text, without special tokens; `at_start` puts a space before it, if the model does so."""
        if self.normalize is not None:
            text = self.normalize(text)
        if not self.spelled_bytes:
            text = text.replace(" ", "▁")
        if self.prefix is not None and at_start and text and (self.prefix.doubled or text[0] != "▁"):
            text = "▁" + text
        tokens: list[int] = []
        for word in self.splitter.split(text):
            tokens += self._word(word)
        return tokens

    def decode(self, token: str) -> bytes:
        """Returns the bytes that a token's text stands for."""
        if not self.spelled_bytes:
            return raw(token.replace("▁", " "))
        table = _bytes_of_characters()
        return b"".join(bytes((table[c],)) if c in table else raw(c) for c in token)

    def _word(self, word: str) -> list[int]:
        """Returns the tokens of a word (cached)."""
        if len(word) > _CACHED_LENGTH:
            return self._tokens(word)
        tokens = self._words.get(word)
        if tokens is None:
            if len(self._words) >= _CACHED_WORDS:
                self._words.clear()
            self._words[word] = tokens = self._tokens(word)
        return tokens

    def _tokens(self, word: str) -> list[int]:
        """Returns the tokens of a word: its characters, merged by the BPE merges."""
        ids = self.vocabulary.ids
        spelled = word.encode().decode("latin-1").translate(_characters_of_bytes()) if self.spelled_bytes else word
        if (self.whole_words or spelled.strip("\n") == "") and spelled in ids:  # runs of line breaks are tokens without merges
            return [ids[spelled]]
        ranks = self.ranks.get
        parts = merge(list(spelled), lambda a, b: ranks(f"{a} {b}"))
        tokens: list[int] = []
        for part in parts:
            token = ids.get(part)
            tokens += [token] if token is not None else self._fallback(part)
        return tokens

    def _fallback(self, part: str) -> list[int]:
        """Returns the byte tokens of a part that is not a token itself; raises if the vocabulary lacks them."""
        names = list(part) if self.spelled_bytes else [f"<0x{byte:02X}>" for byte in part.encode()]
        tokens = [self.vocabulary.ids.get(name, self.vocabulary.unknown) for name in names]
        missing = next((name for name, token in zip(names, tokens, strict=True) if token is None), None)
        if missing is not None:
            raise ModelFileError(f"tokenizer: the vocabulary has no token for the byte `{missing}`, and none for what is unknown")
        return [token for token in tokens if token is not None]


@cache
def _characters_of_bytes() -> dict[int, str]:
    """Returns GPT-2's table: printable bytes stand for themselves, the others for characters from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return {byte: chr(byte if byte in printable else next(others)) for byte in range(256)}


@cache
def _bytes_of_characters() -> dict[str, int]:
    return {c: byte for byte, c in _characters_of_bytes().items()}
