"""Messages of a conversation, checked: their roles and contents. Content may be parts as in OpenAI's API, which become one text.

checked([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], template)     # [{"role": "user", "content": "Hi"}]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..support.errors import Error, UnsupportedError

Message = Mapping[str, Any]
ROLES = ("system", "user", "assistant", "tool", "developer")
_EXAMPLE = '[{"role": "user", "content": "Hi"}]'
_SHOWN = 60  # characters of a value in an error message


def checked(messages: Any, template: str) -> list[dict[str, Any]]:
    """Returns the messages as dicts whose content is a text; `template` is the source of the chat template, which may name further roles.

    Raises an Error unless they are a list of mappings with a role and a content, UnsupportedError for content parts that are no text.
    """
    if isinstance(messages, Mapping) and "role" in messages:
        raise Error("a prompt is a list of messages, and a single message is given", help=f"put it into a list: {_EXAMPLE}")
    if not isinstance(messages, Sequence) or not messages or not all(isinstance(m, Mapping) for m in messages):
        raise _no_messages()
    return [_checked(message, number, template) for number, message in enumerate(messages)]


def _no_messages(help: str = f"for example {_EXAMPLE}") -> Error:
    return Error("a prompt is a text, or a list of messages with a role and a content", help=help)


def _checked(message: Message, number: int, template: str) -> dict[str, Any]:
    from ..support.resolve import near

    for key in ("role", "content"):
        if key not in message and (other := next((k for k in message if isinstance(k, str) and near(k, [key])), None)):
            raise _no_messages(f"message {number} has `{other}`: did you mean `{key}`?")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise _no_messages()
    if role not in ROLES and f"'{role}'" not in template and f'"{role}"' not in template:
        raise Error(
            f"message {number} has the role `{role[:_SHOWN]}`, which the model's chat template does not have",
            facts=["roles are: " + ", ".join(ROLES)],
            help=near(role, ROLES) or f"for example {_EXAMPLE}",
        )
    if isinstance(content, list | tuple):
        return {**message, "content": "\n".join(_text(part, number) for part in content)}
    if not isinstance(content, str) and not (content is None and "tool_calls" in message):  # a message with tool calls may have none
        raise _no_messages()
    return dict(message)


def _text(part: Any, number: int) -> str:
    """Returns the text of a content part; raises UnsupportedError for images and the like, Error for what is no part."""
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type", "text") == "text" and isinstance(part.get("text"), str):
        text: str = part["text"]
        return text
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(kind, str) and kind != "text":
        raise UnsupportedError(
            f"message {number} has a part of the type `{kind[:_SHOWN]}`, and the model reads texts only", help="leave this part out"
        )
    raise Error(
        f"message {number} has the content part {repr(part)[:_SHOWN]}, which is no text", help='for example {"type": "text", "text": "Hi"}'
    )
