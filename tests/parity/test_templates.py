"""Real chat templates (those that come with llama.cpp's sources), rendered as `transformers` renders them, for several conversations."""

from __future__ import annotations

import datetime
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from fetched import llama_cpp
from pliant import Error
from pliant.llm.chat_template import ChatTemplate

utilities = pytest.importorskip("transformers.utils.chat_template_utils")

NOW = datetime.datetime(2026, 11, 16, 12, 0)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather é in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "where"}}, "required": ["city"]},
        },
    }
]
USER, ANSWER = {"role": "user", "content": "Hi <b>there</b>\n"}, {"role": "assistant", "content": "<think>\nhm\n</think>\nHello 'you'"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "call12345", "type": "function", "function": {"name": "weather", "arguments": {"city": "Bern"}}}],
}
RESULT = {"role": "tool", "name": "weather", "tool_call_id": "call12345", "content": '{"degrees": 3}'}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "one": ([USER], {"add_generation_prompt": True}),
    "system": ([{"role": "system", "content": " Be terse. "}, USER], {"add_generation_prompt": True}),
    "turns": ([USER, ANSWER, USER], {"add_generation_prompt": True}),
    "ended": ([USER, ANSWER], {}),
    "tools": ([USER], {"tools": TOOLS, "add_generation_prompt": True}),
    "called": ([USER, CALL, RESULT], {"tools": TOOLS, "add_generation_prompt": True}),
    "thinking": ([USER], {"enable_thinking": False, "add_generation_prompt": True}),
}


@cache
def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, **TOKENS)


class Today(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Today:
        return cls(NOW.year, NOW.month, NOW.day, NOW.hour)


@pytest.mark.parametrize("case", CASES)
def test_real_templates(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utilities, "datetime", Today)
    messages, settings = CASES[case]
    sources = sorted(llama_cpp().glob("*.jinja"))
    same = 0
    for path in sources:
        source = path.read_text(encoding="utf-8")
        try:
            expected = utilities.render_jinja_template(conversations=[messages], chat_template=source, **settings, **TOKENS)[0][0]
        except Exception:  # the template refuses these messages, in one way or another; so may we
            with suppress(Error):
                template(source).render(messages, now=NOW, **settings)
            continue
        assert template(source).render(messages, now=NOW, **settings) == expected, path.name
        same += 1
    assert same > len(sources) * 0.6
