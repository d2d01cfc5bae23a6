"""A conversation: messages so far, and what of them is dropped when the context is full.

    talk = lm.session(system="You are terse.")
    talk.ask("What is a compiler?")                 # -> Reply
    for piece in talk.stream("And an interpreter?"):
        print(piece, end="")
    talk.messages; talk.reset()

Nothing that was said before is computed again: the cache still has it. When the conversation and a quarter of the context for the answer
(or `max_tokens`, where that is less) do not fit any more, the oldest turns after the system prompt are dropped, and that is said on stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..support.record import dataclass
from .prompt import Known, Rendered
from .reply import Reply, Stream

if TYPE_CHECKING:
    from .lm import LLM, Say


class Session:
    """A conversation with a model."""

    def __init__(self, lm: LLM, system: str | None = None, announce: Say | None = None) -> None:
        self.lm = lm
        self.system = system
        self.messages: list[dict[str, Any]] = []
        self._announce = announce or _on_stderr
        self.reset()

    def reset(self) -> None:
        """Begins anew, with the system prompt alone."""
        self._known: Known | None = None
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]

    def take_back(self) -> str | None:
        """Takes back the last turn; what the user said in it, or None where nothing was said."""
        last = max((i for i, m in enumerate(self.messages) if m["role"] == "user"), default=None)
        if last is None:
            return None
        said: str = self.messages[last]["content"]
        self.messages = self.messages[:last]
        return said

    def ask(self, text: str, **options: Any) -> Reply:
        """The answer to what the user says next; options as for `LLM.generate`."""
        stream = self.stream(text, **options)
        for _ in stream:
            pass
        return stream.reply

    def stream(self, text: str, **options: Any) -> Stream:
        """The answer piece by piece. One that is closed early stays in the conversation as far as it came; with none, the question goes."""
        turn = self._fitting([*self.messages, {"role": "user", "content": text}], options.get("max_tokens"))
        inner = self.lm.stream(turn.ids, **options)
        if turn.dropped:
            self._announce(f"the context of {self.lm.context} tokens is full: the {turn.dropped} oldest messages were dropped")
        return Stream(self._recorded(inner, turn, cut=bool(options.get("stop"))), inner.state)

    def _recorded(self, inner: Stream, turn: _Turn, cut: bool) -> Iterator[str]:
        """The pieces of an answer, which becomes a message of the conversation when it ends, however it ends."""
        try:
            yield from inner
        finally:
            inner.close()
            reply, rendered = inner.reply, turn.rendered
            if reply.text or reply.finish_reason != "closed":
                self.messages = [*turn.messages, {"role": "assistant", "content": reply.text}]
                answer = self.lm.prompts.hide(reply.text, list(rendered.hidden))
                self._known = None if cut else Known(rendered.text + answer, [*turn.ids, *reply.tokens])  # a stop string is not in the text

    def _fitting(self, messages: list[dict[str, Any]], max_tokens: int | None) -> _Turn:
        """The messages without the oldest turns, so that there is room for an answer."""
        prompts, context, dropped = self.lm.prompts, self.lm.context, 0
        room = context // 4 if max_tokens is None else max(1, min(max_tokens, context // 4))
        first = 0 if self.system is None else 1
        while True:
            rendered = prompts.render(messages)
            ids = prompts.tokens(rendered, self._known)
            oldest = _turn(messages[first:])
            if len(ids) + room <= context or oldest is None:  # where the last message alone leaves less room, LLM.stream sees to it
                return _Turn(messages, rendered, ids, dropped)
            messages = [*messages[:first], *messages[first + oldest :]]
            dropped += oldest


@dataclass(frozen=True, slots=True)
class _Turn:
    """What a model is given for its next answer, and how many messages had to be dropped."""

    messages: list[dict[str, Any]]
    rendered: Rendered
    ids: list[int]
    dropped: int


def _turn(messages: list[dict[str, Any]]) -> int | None:
    """How many messages the oldest turn has: up to the next one of the user; None where there is no later turn."""
    later = (i for i, m in enumerate(messages) if i and m["role"] == "user")
    return next(later, None)


def _on_stderr(text: str) -> None:
    print(f"pliant: {text}", file=sys.stderr)
