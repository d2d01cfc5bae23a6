"""Chat templates: render messages to the prompt format that a model was trained on.

    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    template.render([{"role": "user", "content": "Hi"}], add_generation_prompt=True)

Templates come with model files and are programs, so they run in `sandbox.py`: they see only plain data, and are stopped after half a
second of CPU time or if they produce much more text than their input. Jinja is imported when the first template is created.
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

# Limits for untrusted templates.
MAX_TEMPLATE = 128 << 10  # characters of the source
MAX_OUTPUT = 1 << 20  # characters of the output, in addition to four times the size of the input
MAX_TOKENS = 1 << 14  # lexer tokens of the source: four times those of the largest known templates
SECONDS = 0.5  # CPU time of a rendering
MAX_DEPTH = 64  # nesting of messages: far above real ones, far below Python's recursion limit
_HELP = "the template is part of the model file: take the file from a source that you trust"

Message = Mapping[str, Any]


class ChatTemplate:
    """A compiled Jinja chat template, which renders conversations in a sandbox."""

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
        """Renders a conversation; `add_generation_prompt` ends it where the model's answer begins.

        `tools` are the functions that the model may call, `now` is the time that the template may write (by default that of the call), and
        `settings` are passed to the template as further variables. Raises Error if the template refuses the conversation or something is
        not plain data, ModelFileError if the template fails or exceeds its limits.
        """
        variables = _plain({**settings, "messages": list(messages), "tools": None if tools is None else list(tools)})
        variables |= {"add_generation_prompt": bool(add_generation_prompt), "strftime_now": _clock(now), "documents": None, **self.tokens}
        return _run(self._template, variables, _characters(variables))

    @classmethod
    def from_gguf(cls, file: GgufFile, tokenizer: Tokenizer) -> ChatTemplate | None:
        """Returns the chat template of a GGUF file, or None if it has none."""
        source = file.text("tokenizer.chat_template", "")
        if not source:
            return None
        names = [tokenizer.vocabulary.tokens[i] if i is not None else "" for i in (tokenizer.bos, tokenizer.eos)]
        return cls(source, bos_token=names[0], eos_token=names[1])


def _compiled(source: str) -> Any:
    """Compiles a template in the sandbox; raises ModelFileError if it is broken or too large."""
    from jinja2.exceptions import TemplateError

    from .sandbox import environment

    try:
        tokens = sum(1 for _ in islice(environment().lex(source), MAX_TOKENS + 1))
        template = environment().from_string(source) if tokens <= MAX_TOKENS else None
    except TemplateError as problem:
        line = getattr(problem, "lineno", None)
        facts = [f"line {line} of the template"] if line else []
        raise ModelFileError(f"chat template: {shown(str(problem.message), 500)}", facts=facts, help=_HELP) from None
    except Exception:  # deep nesting can make Jinja's or Python's parser fail in many ways
        raise ModelFileError("chat template: it is too deeply nested, or broken", help=_HELP) from None
    if template is None:
        raise ModelFileError("chat template: it is too long", help=_HELP)
    return template


def _run(template: Any, given: dict[str, Any], size: int) -> str:
    """Renders a template within its budget; converts all failures to our errors."""
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
    """Returns a copy made of plain data; raises an Error for anything else, so that no other object reaches a template."""
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
    """Returns the number of characters in nested dicts and lists, plus 8 per item: what the template's budget counts."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_characters(item) + 8 for pair in value.items() for item in pair)
    return sum(_characters(item) + 8 for item in value) if isinstance(value, list) else 0


def _clock(now: datetime.datetime | None) -> Any:
    """Returns the function `strftime_now`, with which some templates write today's date.

    It formats `now`, or the time of the call if that is None. It raises TypeError for a format that is no text or longer than 100
    characters.
    """

    def strftime_now(format: str) -> str:
        if not isinstance(format, str) or len(format) > 100:
            raise TypeError("a format of at most 100 characters is expected")
        return (now or datetime.datetime.now()).strftime(format)

    strftime_now.known = True  # type: ignore[attr-defined]
    return strftime_now
