"""The vocabulary of a model: its tokens, their kinds, and the special tokens.

vocabulary.ids["Ġthe"], vocabulary.tokens[260], vocabulary.kind(0) is TokenKind.CONTROL
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import IntEnum
from functools import cached_property

from ...support.errors import ModelFileError
from ...support.record import dataclass


class TokenKind(IntEnum):
    """The kind of a token, numbered as in GGUF files."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Tokens that end a turn, even if the model file does not mark them as such.
ENDS = frozenset(
    (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|end_of_text|>",
        "<|endoftext|>",
        "<|eom_id|>",
        "<end_of_turn>",
        "<EOT>",
        "<|return|>",
        "<|call|>",
        "<｜end▁of▁sentence｜>",
    )
)


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model by number, and its special tokens: `before` and `after` are put around a text, `ends` stop generation."""

    tokens: Sequence[str]
    kinds: Sequence[int]
    bos: int | None = None
    eos: int | None = None
    unknown: int | None = None
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    ends: frozenset[int] = frozenset()
    strip_after: frozenset[int] = field(default=frozenset())  # special tokens that absorb the white space after them

    def __post_init__(self) -> None:
        if len(self.kinds) != len(self.tokens):
            raise ModelFileError(f"tokenizer: there are {len(self.tokens)} tokens and {len(self.kinds)} kinds of tokens")
        named = [self.bos, self.eos, self.unknown, *self.before, *self.after, *self.ends]
        if wrong := [i for i in named if i is not None and not 0 <= i < len(self.tokens)]:
            raise ModelFileError(f"tokenizer: special token {wrong[0]} is outside of the vocabulary of {len(self.tokens)}")

    @cached_property
    def ids(self) -> dict[str, int]:
        """The number of each token, by its text."""
        return dict(zip(self.tokens, range(len(self.tokens)), strict=True))

    def kind(self, token: int) -> TokenKind:
        """Returns the kind of a token; an unknown kind counts as normal."""
        number = int(self.kinds[token])
        return TokenKind(number) if 1 <= number <= 6 else TokenKind.NORMAL

    def of_kinds(self, *kinds: TokenKind) -> list[int]:
        """Returns the numbers of the tokens of the given kinds."""
        wanted = set(kinds)
        return [i for i, kind in enumerate(self.kinds) if kind in wanted]
