"""Chat sessions: the messages of a conversation, reuse of the KV cache between turns, and dropping of old turns if the context is full.

    talk = lm.session(system="You are terse.")
    talk.ask("What is a compiler?")                 # -> Reply
    for piece in talk.stream("And an interpreter?"):
        print(piece, end="")
    talk.messages; talk.reset()

Earlier turns are not computed again: the KV cache still has them. If the conversation and a quarter of the context for the answer (or
`max_tokens`, if that is less) do not fit any more, the oldest turns after the system prompt are dropped, with a message on stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Unpack

from ..support.record import dataclass
from .prompt import Known, Rendered
from .reply import Reply, Stream
from .sampling import AnswerKeywords

if TYPE_CHECKING:
    from .lm import LLM, Say


class Session:
    """A conversation with a language model: keeps the messages, and drops the oldest if the context is full."""

    def __init__(self, lm: LLM, system: str | None = None, announce: Say | None = None) -> None:
        self.lm = lm
        self.system = system
        self.messages: list[dict[str, Any]] = []
        self._announce = announce or _on_stderr
        self.reset()

    def reset(self) -> None:
        """Forgets all messages but the system prompt."""
        self._known: Known | None = None
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]

    def take_back(self) -> str | None:
        """Removes the last turn; returns the user's text in it, or None if there is no turn."""
        last = max((i for i, m in enumerate(self.messages) if m["role"] == "user"), default=None)
        if last is None:
            return None
        said: str = self.messages[last]["content"]
        self.messages = self.messages[:last]
        return said

    def ask(self, text: str, **options: Unpack[AnswerKeywords]) -> Reply:
        """Returns the answer to the user's next message; options as for `LLM.generate`."""
        stream = self.stream(text, **options)
        for _ in stream:
            pass
        return stream.reply

    def stream(self, text: str, **options: Unpack[AnswerKeywords]) -> Stream:
        """Returns the answer to the user's next message as a Stream of pieces; options as for `LLM.generate`.

        The oldest turns are dropped if the context is full. An answer that is closed early stays in the conversation as far as it came. If
        nothing came, the question is dropped too.
        """
        turn = self._fitting([*self.messages, {"role": "user", "content": text}], options.get("max_tokens"))
        inner = self.lm.stream(turn.ids, **options)
        if turn.dropped:
            self._announce(f"the context of {self.lm.context} tokens is full: the {turn.dropped} oldest messages were dropped")
        return Stream(self._recorded(inner, turn, cut=bool(options.get("stop"))), inner.state)

    def _recorded(self, inner: Stream, turn: _Turn, cut: bool) -> Iterator[str]:
        """Yields the pieces of an answer, and adds the answer to the conversation when it ends, however it ends.

        `cut` says that stop strings may have cut its text, so that its tokens cannot be reused.
        """
        try:
            yield from inner
        finally:
            inner.close()
            reply, rendered = inner.reply, turn.rendered
            if reply.text or reply.finish_reason != "closed":
                self.messages = [*turn.messages, {"role": "assistant", "content": reply.text}]
                answer = self.lm.prompts.hide(reply.text, list(rendered.hidden))
                # With a stop string the tokens are no longer those of the text, which ends before it.
                self._known = None if cut else Known(rendered.text + answer, [*turn.ids, *reply.tokens])

    def _fitting(self, messages: list[dict[str, Any]], max_tokens: int | None) -> _Turn:
        """Returns the prompt for the next answer; drops the oldest turns until there is room for one.

        Room are `max_tokens` tokens, at most a quarter of the context. The system message and the last turn stay.
        """
        prompts, context, dropped = self.lm.prompts, self.lm.context, 0
        room = context // 4 if max_tokens is None else max(1, min(max_tokens, context // 4))
        first = 0 if self.system is None else 1
        while True:
            rendered = prompts.render(messages)
            ids = prompts.tokens(rendered, self._known)
            oldest = _turn(messages[first:])
            if len(ids) + room <= context or oldest is None:  # if the last message alone is too long, LLM.stream raises
                return _Turn(messages, rendered, ids, dropped)
            messages = [*messages[:first], *messages[first + oldest :]]
            dropped += oldest


@dataclass(frozen=True, slots=True)
class _Turn:
    """A record of the prompt for the next answer (messages, rendered text, tokens), and the number of messages dropped for it."""

    messages: list[dict[str, Any]]
    rendered: Rendered
    ids: list[int]
    dropped: int


def _turn(messages: list[dict[str, Any]]) -> int | None:
    """Returns the number of messages of the oldest turn (up to the next user message); None if there is no later turn."""
    later = (i for i, m in enumerate(messages) if i and m["role"] == "user")
    return next(later, None)


def _on_stderr(text: str) -> None:
    print(f"pliant: {text}", file=sys.stderr)
