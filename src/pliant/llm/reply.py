"""Replies of a language model: a stream of text pieces, and the complete reply with token usage.

    stream = lm.stream("Why is the sky blue?")
    for piece in stream:
        print(piece, end="", flush=True)
    stream.reply.finish_reason, stream.reply.usage.completion_tokens

A stream that is closed early (`stream.close()`, `with stream:`) stops generating at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from ..support.record import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """A record of token counts: of the prompt, of its part that was in the KV cache already, and of the answer."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        """The tokens of prompt and answer together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer.

    `finish_reason` is `stop` (an end token or a stop string), `length` (max_tokens reached), `context` (the context is full) or `closed`
    (the stream was closed early).
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: str
    usage: Usage

    def __str__(self) -> str:
        return self.text


class Stream:
    """An iterator over the pieces of an answer's text; `reply` is the answer so far."""

    def __init__(self, pieces: Iterator[str], state: Progress) -> None:
        self._pieces = pieces
        self.state = state

    @property
    def reply(self) -> Reply:
        """The answer so far, with token counts and finish reason."""
        s = self.state
        usage = Usage(s.prompt_tokens, s.cached_tokens, len(s.tokens))
        return Reply("".join(s.text), tuple(s.tokens), s.finish_reason, usage)

    def close(self) -> None:
        """Stops generating; `reply` keeps the answer so far."""
        if hasattr(self._pieces, "close"):
            self._pieces.close()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@dataclass(slots=True)
class Progress:
    """The mutable state of a stream of text: the answer so far, and why it ended."""

    prompt_tokens: int
    cached_tokens: int
    text: list[str]
    tokens: list[int]
    finish_reason: str = "closed"
