"""Chats of exported language models in node: the tokens, the prompts and the greedy texts of `pliant.LLM`."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from counts import count
from fetched import llama_cpp
from node_programs import in_node, node
from pliant import Error, UnsupportedError
from pliant.cli import main
from pliant.frontends.gguf import open_gguf
from pliant.llm.chat_template import ChatTemplate
from pliant.llm.page import _tokenizer_facts, export_page, javascript_pattern, speaks
from pliant.llm.template_tree import template_tree
from pliant.llm.tokenizer import from_gguf
from pliant.llm.tokenizer.split import KINDS, words
from pliant.target import target
from tiny_models import tiny_file, tiny_llm

RELAXED = ["--experimental-wasm-relaxed-simd"]

TALKS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi\n"}, {"role": "assistant", "content": "Ho"}],
    [
        {"role": "user", "content": "<|im_end|>\n{{ 7 * 7 }}"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "é🙂 1 < 2"},
    ],
]
TEMPLATES = [
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are helpful"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    # the form of Llama 3: set, filters, tests, spaces around blocks
    """{{- bos_token }}
    {%- if messages[0]['role'] == 'system' %}
        {%- set system_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {%- set system_message = "" %}
    {%- endif %}
    {%- if tools is not none %}{{- tools | tojson(indent=4) }}{%- endif %}
    {%- for message in messages %}
        {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
            {{- '<|start|>' + message['role'] + '<|end|>\n\n'+ message['content'] | trim + '<|eot|>' }}
        {%- endif %}
    {%- endfor %}
    {%- if add_generation_prompt %}
        {{- system_message ~ '<|start|>assistant' }}
    {%- endif %}""",
    # namespaces, ranges, conditional expressions, comparisons in chains, methods, negative indices
    """{%- set ns = namespace(last=-1, found=false) -%}
    {%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == "user" and not ns.found %}{%- set ns.last = index %}{%- set ns.found = true %}{%- endif %}{%- endfor -%}
    {%- for m in messages if m.content -%}
    {{ loop.index }}/{{ loop.length }} {{ "last" if loop.last else "more" }} {{ m.content.split("\n")[-1].strip() | upper }}
    {%- if 0 <= ns.last < 2 and m is mapping and m.name is not defined %} [{{ ns.last }}]
    {%- elif m.role in ["tool"] %}x{% else %}y{% endif -%}
    {%- endfor -%}
    {%- for i in range(2) %}{{ i + 1 }}{{ i % 2 == 0 }}{{ none }}{% endfor -%}
    {{ messages[-1].get("role", "?") }}{{ nothing | default("d") }}""",
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles alternate') }}{% endif %}"
    "{{ m.role is defined }}{{ m.content.replace('i', 'I').startswith('H') }}{% else %}none{% endfor %}",
]


@pytest.fixture(autouse=True)
def _node() -> None:
    node()


def rendered(source: str, talk: list[dict[str, Any]]) -> str:
    try:
        return ChatTemplate(source, bos_token="<s>").render(talk, add_generation_prompt=True)
    except Error as problem:
        return "refused: " + problem.what.partition("conversation: ")[2]


def test_templates_render_as_in_python() -> None:
    cases = [(template_tree(source), talk) for source in TEMPLATES for talk in TALKS]
    found = in_node(
        """
        const { render } = await part("template.js");
        say(cases.map(([tree, messages]) => {
          try {
            return render(tree, { messages, add_generation_prompt: true, tools: null, documents: null, bos_token: "<s>", eos_token: "" });
          } catch (e) { return "refused: " + e.message.split("conversation: ")[1]; }
        }));
        """,
        cases=cases,
    )
    assert found == [rendered(source, talk) for source in TEMPLATES for talk in TALKS]
    assert "refused: roles alternate" in found


def test_what_pages_do_not_have_is_named_when_it_is_reached() -> None:
    tree = template_tree("{% macro f(x) %}{{ x }}{% endmacro %}{% if tools %}{{ tools | tojson }}{% endif %}ok")
    script = """
        const { render } = await part("template.js");
        const attempt = (tools) => { try { return render(tree, { tools }); } catch (e) { return e.message; } };
        say([attempt(null), attempt([])]);
    """
    assert in_node(script, tree=template_tree("{% if tools is none %}ok{% else %}{{ tools | tojson }}{% endif %}")) == [
        "ok",
        "the chat template needs the filter `tojson`, which pages do not have",
    ]
    assert in_node(script, tree=tree)[0] == "the chat template needs `macro`, which pages do not have"


def drawn(sources: list[str], **variables: Any) -> list[str]:
    script = """
        const { render } = await part("template.js");
        say(trees.map((tree) => { try { return render(tree, variables); } catch (e) { return `${e.name}: ${e.message}`; } }));
    """
    answer: list[str] = in_node(script, trees=[template_tree(source) for source in sources], variables=variables)
    return answer


@pytest.mark.parametrize(
    "source",
    [
        "{{ range(0, 6, 2) | length }}",
        "{{ 'a b c'.split(' ', 1)[1] }}",
        "{{ 'aaa'.replace('a', 'b', 2) }}",
        "{{ 'aaa' | replace('a', 'b', 2) }}",
        "{{ 'a-b'.split(sep='-')[0] }}",
        "{{ 'ab' * 2 }}",
        "{{ '%s' % 'a' }}",
        "{{ 'a' + 1 }}",
        "{{ 'a' + none }}",
        "{{ [1] + 'a' }}",
        "{{ 'a' - 1 }}",
        "{{ d - 1 }}",
    ],
)
def test_templates_are_refused_where_pages_would_differ_from_python(source: str) -> None:
    assert drawn([source], d={})[0].startswith("PliantError: the chat template needs ")


def test_methods_of_templates_are_those_of_python() -> None:
    from jinja2 import Environment

    space = "".join(map(chr, [*range(9, 14), *range(28, 33), 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x202F, 0x205F, 0x3000]))
    sources = [
        "{{ d.get('a', 'x') }}{{ d.get('b', 'x') }}{{ d.get('b') }}",
        "{{ 'a.b'.replace('.', \"$&$1$$\") }}",
        "{{ 'a' | replace('a', '$&') }}",
        "[{{ s.strip() }}|{{ s | trim }}|{{ s.split() | join('-') }}]",
        "{{ 1 + 2 }}{{ 7 // 2 }}{{ 'a' + 'b' }}{{ ([1] + [2]) | length }}",
        "{{ true + 1 }}",
        "{{ 'a-b'.split('-')[1] }}",
        "{{ range(1, 3) | length }}",
    ]
    given = {"d": {"a": None}, "s": f"\ufeff{space}a{space}b\ufeff", "t": space}
    assert drawn(sources, **given) == [Environment().from_string(source).render(**given) for source in sources]
    assert drawn(["[{{ t.strip() }}]", "[{{ u.strip() }}]"], t=space, u=f"{space}\ufeff{space}") == ["[]", "[\ufeff]"]


def texts(count: int) -> list[str]:
    rng = random.Random(3)
    alphabet = "aB'stRE l0129 \n\r\t\x85\xa0\ufeff.,!?-/([{<|>`^~$+=é日本語かカ가😀\u0301ß०Ⅷ_#'\u3000ǅʰא،।"
    return ["".join(rng.choice(alphabet) for _ in range(rng.randrange(40))) for _ in range(count)]


def test_words_are_cut_as_in_python() -> None:
    patterns = {name: [javascript_pattern(p, dict(kind.sets)) for p in kind.patterns] for name, kind in KINDS.items()}
    unique = {json.dumps(p): name for name, p in patterns.items()}
    found = in_node(
        """
        const cut = (text, p) => {
          const parts = []; let at = 0;
          for (const m of text.matchAll(p)) { parts.push(text.slice(at, m.index), m[0]); at = m.index + m[0].length; }
          return [...parts, text.slice(at)].filter(Boolean);
        };
        say(patterns.map((list) => texts.map((text) =>
          list.map((p) => new RegExp(p, "gu")).reduce((words, p) => words.flatMap((w) => cut(w, p)), text ? [text] : []))));
        """,
        patterns=[patterns[name] for name in unique.values()],
        texts=texts(300),
    )
    for name, pieces in zip(unique.values(), found, strict=True):
        for text, ours in zip(texts(300), pieces, strict=True):
            assert ours == list(words(name).split(text)), (name, text)


BPE = "gpt-2 deepseek-llm llama-bpe falcon command-r deepseek-coder mpt qwen2 qwen35 refact starcoder"


@pytest.mark.parametrize("name", BPE.split()[: count(4, 99)])
def test_tokens_of_real_vocabularies(name: str) -> None:
    """Against the cases that llama.cpp checks its own with, and Python's tokenizer."""
    path = llama_cpp() / f"ggml-vocab-{name}.gguf"
    between = "\n__ggml_vocab_test__\n"
    given = path.with_suffix(".gguf.inp").read_bytes().decode().removesuffix(between).split(between)
    lines = path.with_suffix(".gguf.out").read_text().splitlines()
    file = open_gguf(path)
    tokenizer = from_gguf(file)
    more = [*texts(60), "ab" * 3000, "<|im_start|>x <|endoftext|>", "\ud83d lone"]
    found = in_node(
        """
        const { Tokenizer } = await part("tokenizer.js");
        const t = new Tokenizer(facts);
        const decode = (ids) => { const d = t.decoder(); return ids.map((id) => d.push(id)).join("") + d.finish(); };
        const plain = given.map((text) => t.encode(text, { addSpecial: false }));
        const both = (text) => [t.encode(text), t.encode(text, { parseSpecial: true }), [...t.controls(text)]];
        say([plain, plain.map(decode), more.map(both)]);
        """,
        facts=_tokenizer_facts(tokenizer, file)["tokenizer"],
        given=given,
        more=more,
    )
    assert found[0] == [[int(word) for word in line.split()] for line in lines]
    assert found[1] == given
    for text, (plain, special, controls) in zip(more, found[2], strict=True):
        assert plain == tokenizer.encode(text) and special == tokenizer.encode(text, parse_special=True), text
        assert len(controls) == len(list(tokenizer.controls(text)))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    node()
    folder = tmp_path_factory.mktemp("chat")
    export_page(tiny_file(), folder, name="tiny")
    return folder


ASK = """
const m = await load(url, { threads });
const chat = m.chat();
const answers = [];
for (const messages of talks) {
  const parts = [];
  for await (const part of await chat.completions.create({ messages, stream: true, temperature: 0, max_tokens: 24 })) parts.push(part);
  const whole = await chat.completions.create({ messages, temperature: 0, max_tokens: 24 });
  answers.push({
    text: parts.map((p) => p.choices[0].delta.content ?? "").join(""), reason: parts.at(-1).choices[0].finish_reason,
    usage: parts.at(-1).usage, whole: whole.choices[0].message.content, ids: chat.encode(messages),
  });
}
say({ answers, fused: m.features.fused });
m.close();
"""


@pytest.mark.parametrize("threads", [1, 3])
def test_greedy_texts_are_those_of_python(page: Path, threads: int) -> None:
    """The conversations share their beginnings, which are not fed again."""
    if not target("native").has_fma:
        pytest.skip("the fused module needs a machine with fused multiply-add")
    lm = tiny_llm()
    talks = [*TALKS, [*TALKS[0], {"role": "assistant", "content": "a"}, {"role": "user", "content": "x" * 400}], TALKS[0]]
    said = in_node(ASK, flags=RELAXED, url=(page / "tiny.json").as_uri(), talks=talks, threads=threads)
    assert said["fused"] is True
    for talk, ours in zip(talks, said["answers"], strict=True):
        theirs = lm.generate(talk, temperature=0.0, max_tokens=24)
        assert ours["ids"] == lm.prompts.encode(talk)
        assert ours["text"] == ours["whole"] == str(theirs) and ours["usage"]["prompt_tokens"] == len(ours["ids"])
        assert ours["reason"] == theirs.finish_reason


def test_options_and_mistakes(page: Path) -> None:
    said = in_node(
        """
        const m = await load(url, {});
        const chat = m.chat();
        const messages = [{ role: "user", content: "Hi" }];
        const text = async (asked) => {
          try { return (await chat.completions.create({ messages, max_tokens: 16, ...asked })).choices[0].message.content; }
          catch (e) { return `${e.name}: ${e.message}`; }
        };
        const greedy = await text({ temperature: 0 });
        const stop = greedy.slice(3, 5);
        const stopped = new AbortController();
        const parts = [];
        try {
          for await (const part of await chat.completions.create({ messages, stream: true, max_tokens: 300, signal: stopped.signal })) {
            parts.push(part);
            if (parts.length === 4) stopped.abort();
          }
        } catch (e) { parts.push(e.name); }
        say({
          greedy, cut: await text({ temperature: 0, stop }),
          seeds: [await text({ seed: 7 }), await text({ seed: 7 }), await text({ seed: 8 })],
          long: await text({ messages: [{ role: "user", content: "x".repeat(20000) }] }), none: await text({ messages: [] }),
          wrong: await text({ temperature: -1 }),
          unlimited: (await text({ temperature: 0, max_tokens: null })).length,
          parts: parts.length, end: parts.at(-1), again: await text({ temperature: 0 }),
        });
        m.close();
        """,
        url=(page / "tiny.json").as_uri(),
    )
    assert said["cut"] == said["greedy"].partition(said["greedy"][3:5])[0]
    assert said["seeds"][0] == said["seeds"][1] != said["seeds"][2]
    assert said["long"].startswith("PliantError: the text has ") and "and the context holds" in said["long"]
    assert said["none"].startswith("PliantError: a prompt is a list of messages")
    assert said["wrong"] == "PliantError: `temperature` is -1; it is a number from 0 up"
    assert said["unlimited"] > len(said["greedy"])
    assert said["parts"] == 5 and said["end"] == "AbortError" and said["again"] == said["greedy"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert speaks("smollm2-135m") and speaks("x.gguf") and speaks("hf:a/b") and not speaks("minilm") and not speaks("x.onnx")
    assert main(["export", str(tiny_file()), "--target", "web", "-o", str(tmp_path), "--dim", "t=4"]) == 2
    assert "a language model has no dims to set" in capsys.readouterr().err
    assert main(["export", "nothing.gguf", "--target", "web", "-o", str(tmp_path)]) == 2
    assert "there is no file `nothing.gguf`" in capsys.readouterr().err


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Error, match="made for 1 to"):
        export_page(tiny_file(), tmp_path, context=10**9)
    path = llama_cpp() / "ggml-vocab-llama-spm.gguf"
    with pytest.raises(UnsupportedError, match="pages have no tokenizer of the kind `llama`"):
        export_page(path, tmp_path)
    assert not list(tmp_path.iterdir())
