"""The commands in the documents: `pliant` understands each of them, and those of the FAQ on a model do what they say."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from pliant.cli import COMMANDS, main
from reference_pages import command_parser

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# They need a browser, a network, a language model or minutes; tests of their own run them.
LONG = ("export", "web", "chat", "models", "tune model", "doctor model", "cache clear")


def commands(text: str) -> list[str]:
    """The command lines of `pliant` in a document's blocks of code, without comments and what is piped to them."""
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()] + re.findall(r"^    (.+)$", text, re.MULTILINE)
    found = [re.search(r"(?:^|&& |\| |[A-Z_]+=\S+ )pliant ((?:\w+)( .*)?)$", line.partition("  ")[0].partition(" #")[0]) for line in lines]
    return [match[1] for match in found if match]


def test_commands_are_found() -> None:
    text = "```\npliant run a.onnx   # says\n```\n```sh\nX=1 pliant check b.onnx\n```\n"
    text += "```python\npliant = 1\n```\n    cat f | pliant chat hi\n"
    assert commands(text) == ["run a.onnx", "check b.onnx", "chat hi"]
    assert sum(len(commands(page.read_text(encoding="utf-8"))) for page in PAGES) > 30


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_are_understood(page: Path) -> None:
    for line in commands(page.read_text(encoding="utf-8")):
        name, *arguments = shlex.split(line)
        assert name in COMMANDS or page.name == "command_line.md", line
        if page.name != "command_line.md":  # its lines of usage are written from the parsers themselves
            command_parser(name).parse(arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_scripts_that_are_named_are_there(page: Path) -> None:
    named = set(re.findall(r"(?:python |^)((?:tools|benchmarks|examples|\.ci)/[\w.]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_the_commands_of_the_faq_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx", reason="they need the package onnx")
    monkeypatch.chdir(tmp_path)
    header = '<ir_version: 8, opset_import: ["" : 17]> net (float[n, 4] x) => (float[n, 4] y)'
    onnx.save(onnx.parser.parse_model(header + " { h = Softmax<axis = -1>(x) y = Relu(h) }"), "model.onnx")
    lines = dict.fromkeys(line for line in commands((ROOT / "docs" / "faq.md").read_text(encoding="utf-8")) if not line.startswith(LONG))
    assert len(lines) >= 6
    for line in lines:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert main(shlex.split(line)) == 0, line
        assert out.getvalue(), line
