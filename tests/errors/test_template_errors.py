"""Hostile chat templates: each ends soon, with a clear error and little memory, or says nothing that it should not know."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from counts import count
from pliant import Error, ModelFileError
from pliant.llm import chat_template as module
from pliant.llm.chat_template import ChatTemplate

HI = [{"role": "user", "content": "Hi"}]
GROW = "{{% set ns = namespace(x={0}) %}}{{% for i in range(60) %}}{{% set ns.x = {1} %}}{{% endfor %}}{{{{ {2} }}}}"

LONG = [
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% for i in range(1000000000) %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) if false %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(99999) %}{{ '' }}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% for x in [[]] recursive %}{{ loop([[]]) }}{% endfor %}",
    "{% set r = range(99999)|list %}{% for i in r %}{% if r == r + [] %}{% endif %}{% endfor %}",
    "{% for i in range(100000) %}{% set x = range(99999)|sort|unique|list %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% set y = 'ab'.split('a')[0].strip() %}{% endfor %}{% endfor %}",
]
LARGE = [
    "{{ 'x' * 10**9 }}",
    "{{ 10**9 * 'x' }}",
    "{{ ('x' * 1000) * 1000000 }}",
    "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
    "{% set x %}{% for i in range(100000) %}" + "long text " * 1000 + "{% endfor %}{% endset %}",
    GROW.format("'x'", "ns.x + ns.x", "ns.x"),
    GROW.format("'x'", "ns.x ~ ns.x", "ns.x"),
    GROW.format("'x'", "[ns.x, ns.x]|join", "ns.x"),
    GROW.format("'x'", "''.join([ns.x, ns.x])", "ns.x"),
    GROW.format("'x'", "ns.x|replace('x', 'xx')", "ns.x"),
    GROW.format("'x'", "ns.x.replace('x', 'xx')", "ns.x"),
    GROW.format("'x'", "ns.x.replace('', 'xx')", "ns.x"),
    GROW.format("'x'", "'{}{}'.format(ns.x, ns.x)", "ns.x"),
    GROW.format("'x'", "'%s%s' % (ns.x, ns.x)", "ns.x"),
    GROW.format("'\\n'", "(ns.x ~ ns.x)|indent(900, true, true)", "ns.x"),
    GROW.format("'\\u00df'", "(ns.x ~ ns.x)|upper", "ns.x"),
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ '{:>{}}'.format(1, 1000000000) }}",
    "{{ 'x'|center(1000000000) }}",
    "{{ 'x'.ljust(1000000000) }}",
    "{{ '\\t'.expandtabs(1000000000) }}",
    "{{ 'x'.zfill(1000000000) }}",
    "{{ 'a\\nb'|indent(1000000000) }}",
    "{{ {'a': 1}|tojson(indent=1000000000) }}",
    "{{ lipsum(n=1000000) }}",
    "{% macro f() %}{{ 'x' * 100000 }}{% endmacro %}{% for i in range(1000) %}{% set y = f() ~ f() %}{% endfor %}",
    "{% set x = 'x' * 1000000 %}{% set y %}{% for i in range(1000) %}{{ x }}{% endfor %}{% endset %}",
    "{{ [0] * 10**9 }}",
    "{{ ([0] * 1000)|length * [0] * 1000000 }}",
    GROW.format("[1]", "ns.x + ns.x", "ns.x|length"),
    GROW.format("[1]", "[ns.x, ns.x]", "ns.x"),
    GROW.format("[1]", "[ns.x, ns.x]", "ns.x|tojson"),
    GROW.format("[1]", "(ns.x, ns.x)", "ns.x|string"),
    GROW.format("{}", "{'a': ns.x, 'b': ns.x}", "ns.x ~ ''"),
    GROW.format("[1]", "dict(a=ns.x, b=ns.x)", "ns.x"),
    "{% set a = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set a.x = [a.x, a.x] %}{% set a.y = [a.y, a.y] %}{% endfor %}"
    "{{ a.x == a.y }}",
    "{% set ns = namespace(x=1) %}{% for i in range(60) %}{% set ns.x = namespace(a=ns.x, b=ns.x) %}{% endfor %}{{ ns.x }}",
    "{{ 10**(10**10) }}",
    "{{ 2 ** 100000 }}",
    GROW.format("2", "ns.x * ns.x", "ns.x"),
    GROW.format("2", "ns.x ** 2", "1"),
    "{{ 1.5|round(10000000, 'ceil') }}",
    "{{ (10.0 ** 400) }}",
]
DEEP = [
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ " + "-" * 20000 + "1 }}",
    "{% if true %}" * 5000 + "{% endif %}" * 5000,
    "{{ " + "[" * 3000 + "]" * 3000 + " }}",
    "x" * (200 << 10),
    "{{ 1 " + "+ 1 " * 3000 + "}}",
    "{{ a" + ".a" * 3000 + " }}",
    "{{a}}" * 25000,
    "{{ f(" + "a," * 30000 + ") }}",
    "{% for a in b %}" * 2000,
]
TOO_MUCH = LONG + LARGE + DEEP

FORBIDDEN = [
    "{{ ''.__class__.__mro__ }}",
    "{{ ''['__class__'] }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ (messages|first).__init__.__globals__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__globals__['datetime'] }}",
    "{{ strftime_now.__closure__ }}",
    "{{ namespace.__init__.__globals__['__builtins__'] }}",
    "{{ self._TemplateReference__context }}",
    "{{ self.__init__ }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ joiner.__init__ }}",
    "{{ '{0.__class__}'.format(messages) }}",
    "{{ '{x.__class__.__init__.__globals__}'.format(x=messages) }}",
    "{{ ('{0.__class__}'|attr('format'))(messages) }}",
    "{{ messages|map(attribute='__class__')|list }}",
    "{{ messages|map('attr', '__class__')|list }}",
    "{{ messages|groupby('__class__') }}",
    "{{ messages|sort(attribute='__class__.__mro__') }}",
    "{{ messages.append({}) }}",
    "{{ messages.clear() }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{{ messages[0].pop('role') }}",
    "{% include 'x' %}",
    "{% import 'os' as os %}{{ os }}",
    "{% extends 'x' %}",
    "{% macro f() %}{% endmacro %}{{ f._func.__globals__ }}",
    "{% for x in messages %}{{ loop._iterable }}{{ loop.__init__.__globals__ }}{% endfor %}",
    "{{ 'x'.encode('utf-8') }}",
    "{{ 'x'.translate({}) }}",
    "{{ range.__call__ }}",
    "{{ [].__len__() }}",
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("source", TOO_MUCH, ids=range(len(TOO_MUCH)))
def test_templates_that_do_too_much(source: str) -> None:
    with pytest.raises(ModelFileError, match=r"^chat template: ") as caught:
        ChatTemplate(source).render(HI)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("source", FORBIDDEN)
def test_templates_that_reach_for_more(source: str) -> None:
    """They fail, or what they reach for is nothing."""
    inside = ("class", "object", "module", "function", "method", "0x", "datetime")
    try:
        said = ChatTemplate(source).render(HI)
    except ModelFileError:
        return
    assert not any(word in said for word in inside), said


def test_there_are_enough() -> None:
    assert len(TOO_MUCH) + len(FORBIDDEN) >= 40


def test_a_template_cannot_change_what_it_was_given() -> None:
    messages = [{"role": "user", "content": ["a"]}]
    with pytest.raises(ModelFileError):
        ChatTemplate("{{ messages[0].content.append('b') }}").render(messages)
    assert messages == [{"role": "user", "content": ["a"]}]


def test_a_process_with_little_memory_survives() -> None:
    """The same in a process that may have half a gigabyte: nothing is made first and weighed afterwards."""
    pytest.importorskip("resource")
    code = (
        "import resource; from test_template_errors import *; resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
        "for source in LARGE:\n"
        "    try: ChatTemplate(source).render(HI)\n"
        "    except ModelFileError as e: assert 'MemoryError' not in str(e), source\n"
        "print('done')"
    )
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_the_limits_are_small_against_what_is_allowed() -> None:
    assert module.SECONDS <= 1 and module.MAX_OUTPUT <= 1 << 20


def test_mutated_templates_render_or_are_refused() -> None:
    """Templates with pieces cut, doubled and swapped: text, or an error of ours."""
    whole = "{% for m in messages %}{% if m.role == 'user' %}{{ m['content']|trim ~ bos_token }}{% else %}{{ loop.index }}{% endif %}"
    whole += (
        "{% endfor %}{% macro f(x) %}{{ x|tojson }}{% endmacro %}{{ f(messages[0:1]) }}{% set ns = namespace(a=1) %}{{ 'a'.join(['b']) }}"
    )
    chance, said = random.Random(15), 0
    for _ in range(count(300, 100_000)):
        text = whole
        for _ in range(chance.randrange(1, 4)):
            a, b = sorted(chance.randrange(len(text) + 1) for _ in range(2))
            text = chance.choice(
                (text[:a] + text[min(b, a + 9) :], text[:b] + text[a:], text[:a] + chance.choice("{}%|'()[]-~") + text[a:])
            )[:3000]
        try:
            said += bool(ChatTemplate(text).render(HI))
        except Error:
            continue
    assert said > 0


def test_messages_of_templates_cannot_move_the_terminal() -> None:
    with pytest.raises(Error) as caught:
        ChatTemplate("{{ raise_exception('\\x1b[2J\\r' ~ messages[0].content) }}").render([{"role": "user", "content": "\x1b[31m\n"}])
    assert "\x1b" not in str(caught.value) and "\r" not in str(caught.value)
