"""SentencePiece BPE, as llama and gemma use it: merges adjacent parts whose union is a token, the best score first.

Spaces are spelled "▁"; some models want one before a text. A part without a token falls back to byte tokens (`<0x0A>`).

    SentencePiece(vocabulary, scores, space_prefix=True).encode("Hello", True)      # the tokens of "▁Hello"
"""

from __future__ import annotations

from collections.abc import Sequence

from ...support.errors import ModelFileError
from .merge import merge
from .tokenizer import raw
from .vocabulary import Vocabulary


class SentencePiece:
    """The SentencePiece algorithm of a tokenizer: merges by score."""

    starts_once = False

    def __init__(self, vocabulary: Vocabulary, scores: Sequence[float], *, space_prefix: bool) -> None:
        if len(scores) < len(vocabulary.tokens):
            raise ModelFileError(f"tokenizer: there are {len(vocabulary.tokens)} tokens and {len(scores)} scores")
        self.vocabulary = vocabulary
        self.scores = scores
        self.space_prefix = space_prefix

    @property
    def drops_first_space(self) -> bool:
        """True if encoding puts a space before the text."""
        return self.space_prefix

    def encode(self, text: str, at_start: bool) -> list[int]:
        """Returns the tokens of a text, without special tokens; `at_start` puts a space before it, if the model does so.

        Parts that are no token become byte tokens.
        """
        prefix = " " if self.space_prefix and at_start else ""
        tokens: list[int] = []
        for part in merge(list((prefix + text).replace(" ", "▁")), self._cost):
            token = self.vocabulary.ids.get(part)
            tokens += [token] if token is not None else [self._byte(byte) for byte in part.encode()]
        return tokens

    def decode(self, token: str) -> bytes:
        """Returns the bytes that a token's text stands for."""
        return raw(token.replace("▁", " "))

    def _cost(self, left: str, right: str) -> float | None:
        token = self.vocabulary.ids.get(left + right)
        return None if token is None else -float(self.scores[token])

    def _byte(self, byte: int) -> int:
        """Returns the token of a byte, or the unknown token; raises if the vocabulary has neither."""
        for name in (f"<0x{byte:02X}>", chr(byte)):
            if name in self.vocabulary.ids:
                return self.vocabulary.ids[name]
        if self.vocabulary.unknown is None:
            raise ModelFileError(f"tokenizer: the vocabulary has no token for the byte {byte}, and none for what is unknown")
        return self.vocabulary.unknown
