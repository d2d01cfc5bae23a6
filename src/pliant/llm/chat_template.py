"""Chat templates: from messages to the text that a model was trained on.

    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    template.render([{"role": "user", "content": "Hi"}], add_generation_prompt=True)

Templates come with model files and are programs, so they run in `sandbox.py`: they see plain data, and are stopped after half a second
of processor time or when they make much more text than they were given. Jinja is imported when the first template is made.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..frontends.gguf.parse import shown
from ..support.errors import Error, ModelFileError

if TYPE_CHECKING:
    from ..frontends.gguf import GgufFile
    from .tokenizer import Tokenizer

MAX_TEMPLATE = 128 << 10
MAX_OUTPUT = 1 << 20  # characters, beside four times what was given
MAX_TOKENS = 1 << 14  # of the template: four times what the largest known ones have
SECONDS = 0.5
MAX_DEPTH = 64
_HELP = "the template is part of the model file: take the file from a source that you trust"

Message = Mapping[str, Any]


class ChatTemplate:
    """A template, ready to render conversations."""

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        if len(source) > MAX_TEMPLATE:
            raise ModelFileError(f"chat template: {len(source)} characters are more than the {MAX_TEMPLATE} that are allowed")
        self.source = source
        self.tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._template = _compiled(source)

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        now: datetime.datetime | None = None,
        **settings: Any,
    ) -> str:
        """The text of a conversation, to the model's answer where `add_generation_prompt`; `settings` are the template's own."""
        given = _plain({**settings, "messages": list(messages), "tools": None if tools is None else list(tools)})
        given |= {"add_generation_prompt": bool(add_generation_prompt), "strftime_now": _clock(now), "documents": None, **self.tokens}
        return _run(self._template, given, _characters(given))

    @classmethod
    def from_gguf(cls, file: GgufFile, tokenizer: Tokenizer) -> ChatTemplate | None:
        """The template of a model file, if it has one."""
        source = file.text("tokenizer.chat_template", "")
        if not source:
            return None
        names = [tokenizer.vocabulary.tokens[i] if i is not None else "" for i in (tokenizer.bos, tokenizer.eos)]
        return cls(source, bos_token=names[0], eos_token=names[1])


def _compiled(source: str) -> Any:
    from jinja2.exceptions import TemplateError

    from .sandbox import environment

    try:
        tokens = sum(1 for _ in islice(environment().lex(source), MAX_TOKENS + 1))
        found = environment().from_string(source) if tokens <= MAX_TOKENS else None
    except TemplateError as problem:
        line = getattr(problem, "lineno", None)
        facts = [f"line {line} of the template"] if line else []
        raise ModelFileError(f"chat template: {shown(str(problem.message), 500)}", facts=facts, help=_HELP) from None
    except Exception:  # nesting that exhausts Jinja's or Python's parser ends in one of many
        raise ModelFileError("chat template: it is too deeply nested, or broken", help=_HELP) from None
    if found is None:
        raise ModelFileError("chat template: it is too long", help=_HELP)
    return found


def _run(template: Any, given: dict[str, Any], size: int) -> str:
    from .sandbox import Budget, Exceeded, Refused, spending

    limit = MAX_OUTPUT + 4 * size
    parts, written = [], 0
    try:
        with spending(Budget(SECONDS, 16 * limit, limit)):
            for part in template.generate(given):
                written += len(part)
                if written > limit:
                    raise Exceeded("it makes too much text")
                parts.append(part)
    except Refused as problem:
        raise Error(f"chat template: the model does not take this conversation: {shown(str(problem), 500)}") from None
    except Exceeded as problem:
        raise ModelFileError(f"chat template: {problem}", help=_HELP) from None
    except Exception as problem:  # a template is a program: it may fail in any way
        raise ModelFileError(f"chat template: {type(problem).__name__}: {shown(str(problem), 500)}", help=_HELP) from None
    return "".join(parts)


def _plain(value: Any, depth: int = 0) -> Any:
    """A copy made of plain data; anything else does not reach a template."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if depth < MAX_DEPTH and isinstance(value, Mapping):
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if depth < MAX_DEPTH and isinstance(value, Sequence):
        return [_plain(item, depth + 1) for item in value]
    raise Error(
        f"chat template: messages are plain data (text, numbers, lists, dicts), {MAX_DEPTH} levels at most; found {type(value).__name__}"
    )


def _characters(value: Any) -> int:
    """How much text was given."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_characters(item) + 8 for pair in value.items() for item in pair)
    return sum(_characters(item) + 8 for item in value) if isinstance(value, list) else 0


def _clock(now: datetime.datetime | None) -> Any:
    """`strftime_now`, which some templates write today's date with."""

    def strftime_now(format: str) -> str:
        if not isinstance(format, str) or len(format) > 100:
            raise TypeError("a format of at most 100 characters is expected")
        return (now or datetime.datetime.now()).strftime(format)

    strftime_now.known = True  # type: ignore[attr-defined]
    return strftime_now
