"""Encodes prompts: renders messages with the chat template and tokenizes them, safe against control-token injection.

    Prompts(file, tokenizer).encode([{"role": "user", "content": "Hi"}])
    Prompts(file, tokenizer).encode("Once upon a time", raw=True)      # to be continued, without a template

Text in a message never becomes a control token: an `<|im_end|>` that a user writes is tokenized as plain characters and ends no turn. A
placeholder replaces such text before the template runs, and the characters come back after the rendered text is split at placeholders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..frontends.gguf import GgufFile
from ..support.errors import Error, ModelFileError
from ..support.record import dataclass
from .chat_template import ChatTemplate
from .messages import Message, checked
from .tokenizer import Tokenizer

Prompt = str | Sequence[Message] | Sequence[int]
_OPEN, _CLOSE = "\ue0f0", "\ue0f1"  # a placeholder is a number between these two private-use characters


@dataclass(frozen=True, slots=True)
class Known:
    """A rendered text whose tokens are known: a prompt and its answer, with the exact tokens that the model generated."""

    text: str
    ids: list[int]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A record of a conversation as the chat template renders it, with placeholders for the texts in `hidden`."""

    text: str
    hidden: list[str]


class Prompts:
    """Renders conversations by the chat template of one model, and encodes prompts to tokens."""

    def __init__(self, file: GgufFile, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.template = ChatTemplate.from_gguf(file, tokenizer)

    def encode(self, prompt: Prompt, raw: bool = False) -> list[int]:
        """Returns the tokens of a prompt, up to where the answer begins.

        A plain text counts as a user message; with `raw` it is not rendered. A list of integers is taken as tokens.
        """
        if isinstance(prompt, str):
            if raw or self.template is None:
                return _not_empty(self.tokenizer.encode(prompt))
            prompt = [{"role": "user", "content": prompt}]
        if isinstance(prompt, Sequence) and prompt and all(isinstance(i, int) for i in prompt):
            return [int(i) for i in prompt]  # type: ignore[arg-type]
        return self.tokens(self.render(prompt))  # type: ignore[arg-type]

    def render(self, messages: Sequence[Message]) -> Rendered:
        """Renders a conversation by the chat template, up to where the model's answer begins.

        If the template refuses a system prompt, it is prepended to the first user message. Raises an Error if the model has no template, or
        if the template refuses the conversation; as `messages.checked` does too.
        """
        if self.template is None:
            raise Error("the model has no chat template, so it takes texts and no messages", help="pass the text to be continued")
        hidden: list[str] = []
        plain = [
            {**m, "content": self.hide(m["content"], hidden)} if isinstance(m.get("content"), str) else m
            for m in checked(messages, self.template.source)
        ]
        try:
            return Rendered(self.template.render(plain, add_generation_prompt=True), hidden)
        except ModelFileError:
            raise
        except Error:  # some templates refuse a system prompt: prepend it to the first user message
            if (folded := _folded(plain)) is None:
                raise
            return Rendered(self.template.render(folded, add_generation_prompt=True), hidden)

    def tokens(self, rendered: Rendered, known: Known | None = None) -> list[int]:
        """Returns the tokens of a rendered conversation; reuses the tokens of `known` if the text continues it.

        Tokenizing the model's own text again could give other tokens than it generated, and would lose the KV cache.
        """
        text = rendered.text
        if known is not None and text.startswith(known.text) and next(self.tokenizer.controls(text[len(known.text) :]), (1, 1))[0] == 0:
            return known.ids + self._encode(text[len(known.text) :], rendered.hidden)
        ids, before = self._encode(text, rendered.hidden), list(self.tokenizer.vocabulary.before)
        return _not_empty(ids if ids[: len(before)] == before else before + ids)

    def _encode(self, text: str, hidden: list[str]) -> list[int]:
        return [i for part, special in _parts(text, hidden) for i in self.tokenizer.encode(part, add_special=False, parse_special=special)]

    def hide(self, text: str, kept: list[str]) -> str:
        """Replaces spelled-out control tokens (and placeholder characters) by placeholders; appends the originals to `kept`."""
        pieces, at = [], 0
        for start, end in self.tokenizer.controls(text):
            pieces.append(_marked(text[at:start], kept))
            pieces.append(_mark(text[start:end], kept))
            at = end
        return "".join([*pieces, _marked(text[at:], kept)])


def _folded(messages: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Returns the messages with the system prompt prepended to the first user message.

    None if they do not start with system and user texts.
    """
    if len(messages) < 2 or [m["role"] for m in messages[:2]] != ["system", "user"]:
        return None
    texts = [m.get("content") for m in messages[:2]]
    if not all(isinstance(t, str) for t in texts):
        return None
    return [{**messages[1], "content": "\n\n".join(map(str, texts))}, *messages[2:]]


def _not_empty(ids: list[int]) -> list[int]:
    if not ids:
        raise Error("there is nothing to answer: the prompt is empty")
    return ids


def _mark(text: str, kept: list[str]) -> str:
    kept.append(text)
    return f"{_OPEN}{len(kept) - 1}{_CLOSE}"


def _marked(text: str, kept: list[str]) -> str:
    """Replaces the placeholder character in a text by a placeholder, so that no text can imitate one."""
    if _OPEN not in text:
        return text
    return "".join(_mark(c, kept) if c == _OPEN else c for c in text)


def _parts(text: str, kept: list[str]) -> Iterator[tuple[str, bool]]:
    """Splits a rendered text at its placeholders: yields (text, True if control tokens in it count); hidden texts never count."""
    first, *others = text.split(_OPEN)
    yield first, True
    for other in others:
        number, _, rest = other.partition(_CLOSE)
        if number.isdecimal() and int(number) < len(kept):
            yield kept[int(number)], False
            yield rest, True
        else:  # the template cut a placeholder, or invented one
            yield _OPEN + other, False
