"""What a model answers: text that arrives in pieces, and the whole of it.

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
    """Tokens of the prompt, of these how many were in the cache already, and tokens of the answer."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        """Prompt and answer."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `finish_reason`: `stop` (it was complete, or a stop string came), `length` (as many tokens as were allowed),
    `context` (no more fit), `closed` (somebody closed the stream)."""

    text: str
    tokens: tuple[int, ...]
    finish_reason: str
    usage: Usage

    def __str__(self) -> str:
        return self.text


class Stream:
    """An iterator of pieces of text; `reply` is what has come so far."""

    def __init__(self, pieces: Iterator[str], state: Progress) -> None:
        self._pieces = pieces
        self.state = state

    @property
    def reply(self) -> Reply:
        """The answer, as far as it has come."""
        s = self.state
        usage = Usage(s.prompt_tokens, s.cached_tokens, len(s.tokens))
        return Reply("".join(s.text), tuple(s.tokens), s.finish_reason, usage)

    def close(self) -> None:
        """Stops; what has come so far stays in `reply`."""
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
    """What a stream has said so far."""

    prompt_tokens: int
    cached_tokens: int
    text: list[str]
    tokens: list[int]
    finish_reason: str = "closed"
