"""Chat templates: what they render, what they are given, and whose mistake a mistake is."""

from __future__ import annotations

import datetime

import pytest

from gguf_files import I32, STRING, U32, array, number, text, write
from pliant import Error, ModelFileError
from pliant.frontends.gguf.reader import from_bytes
from pliant.llm.chat_template import ChatTemplate
from pliant.llm.tokenizer import from_gguf

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
HI = [{"role": "user", "content": "Hi"}]


def test_chatml() -> None:
    template = ChatTemplate(CHATML)
    assert template.render(HI) == "<|im_start|>user\nHi<|im_end|>\n"
    assert template.render(HI, add_generation_prompt=True).endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_what_templates_are_given() -> None:
    template = ChatTemplate(
        "{{ bos_token }}|{{ eos_token }}|{{ tools|tojson }}|{{ thinking }}|{{ strftime_now('%d %B %Y') }}", bos_token="<s>"
    )
    when = datetime.datetime(2026, 11, 16)
    assert template.render(HI, tools=[{"name": "é"}], thinking=True, now=when) == '<s>||[{"name": "é"}]|True|16 November 2026'


def test_spaces_around_blocks_go_as_in_transformers() -> None:
    source = "{% for m in messages %}\n  {% if true %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}\nend\n"
    assert ChatTemplate(source).render(HI) == "Hi\nend"


def test_what_templates_may_use() -> None:
    cases = {
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}": "2",
        "{% macro f(x, y='b') %}{{ x ~ y }}{% endmacro %}{{ f('a') }}{{ f('c', y='d') }}": "abcd",
        "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ loop.index }}{% break %}{% endfor %}": "2",
        "{% for m in messages if m.role == 'user' %}{{ m.content.strip()|upper }}{% else %}none{% endfor %}": "HI",
        "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join(',') }}": " hi ",
        "{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}": "role=system;content=sys;",
        "{{ messages[1:]|length }}{{ 'a,b'.split(',')[-1] }}{{ 'x'.replace('x', 'yz') }}{{ '-'.join(['a', 'b']) }}": "1byza-b",
        "{{ {'a': 1, 'b': [1, none, true]}|tojson }}": '{"a": 1, "b": [1, null, true]}',
        "{{ {'b': 1, 'a': '<'}|tojson(indent=2, sort_keys=true) }}": '{\n  "a": "<",\n  "b": 1\n}',
        "{{ 'a' if missing is not defined else 'b' }}{{ missing }}{{ missing|default('d') }}": "ad",
        "{% set x %}in{% endset %}{{ x * 2 }}{{ 2 ** 10 }}{{ 7 % 4 }}{{ '%s-%02d' % ('q', 3) }}": "inin10243q-03",
        "{% generation %}{{ 'said' }}{% endgeneration %}": "said",
        "{{ '{}:{x}'.format('a', x=1) }}{{ [1, 'a'] }}{{ [3, 1, 2]|sort|last }}{{ [1, 2]|sum }}": "a:1[1, 'a']33",
        "{% filter indent(2) %}a\nb{% endfilter %}{{ 2.345|round(1) }}": "a\n  b2.3",
    }
    for source, expected in cases.items():
        assert ChatTemplate(source).render([{"role": "system", "content": "sys"}, {"role": "user", "content": " hi "}]) == expected, source


def test_a_template_may_refuse_a_conversation() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(Error, match="does not take this conversation: roles must alternate") as caught:
        template.render(HI)
    assert not isinstance(caught.value, ModelFileError)


def test_messages_are_plain_data() -> None:
    with pytest.raises(Error, match="plain data"):
        ChatTemplate(CHATML).render([{"role": "user", "content": object()}])
    deep: object = "x"
    for _ in range(100):
        deep = [deep]
    with pytest.raises(Error, match="64 levels"):
        ChatTemplate(CHATML).render([{"role": "user", "content": deep}])


def test_broken_templates_name_the_line() -> None:
    with pytest.raises(ModelFileError) as caught:
        ChatTemplate("a\nb\n{% for %}")
    assert "line 3" in str(caught.value)


def test_long_conversations_are_no_attack() -> None:
    long = [{"role": "user", "content": "word " * 400_000}]
    assert len(ChatTemplate(CHATML).render(long)) > 2_000_000
    assert len(ChatTemplate(CHATML).render([{"role": "user", "content": "é"}] * 5_000)) == 5_000 * 29


def test_the_template_of_a_model_file() -> None:
    pairs = [
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.tokens", array(STRING, ["<s>", "</s>"])),
        ("tokenizer.ggml.token_type", array(I32, [3, 3])),
        ("tokenizer.ggml.merges", array(STRING, [])),
        ("tokenizer.ggml.bos_token_id", number(U32, 0)),
        ("tokenizer.ggml.eos_token_id", number(U32, 1)),
    ]
    without = from_bytes(write(pairs), "m")
    assert ChatTemplate.from_gguf(without, from_gguf(without)) is None
    file = from_bytes(write([*pairs, ("tokenizer.chat_template", text("{{ bos_token }}x{{ eos_token }}"))]), "m")
    template = ChatTemplate.from_gguf(file, from_gguf(file))
    assert template is not None and template.render(HI) == "<s>x</s>"
