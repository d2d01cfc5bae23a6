"""Pages made from the source are current; those about settings and exit codes name every variable, and the codes that commands return."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path

import pytest

import pliant
import reference_pages
from pliant.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
VARIABLES = (ROOT / "docs" / "environment_variables.md").read_text(encoding="utf-8")
CODES = (ROOT / "docs" / "exit_codes.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", reference_pages.generated(), ids=lambda f: f.name)
def test_generated_pages_are_current(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == reference_pages.generated()[file], "run python tools/reference_pages.py"


def test_every_public_name_is_on_the_page() -> None:
    full = {name for names in reference_pages.SECTIONS.values() for name in names.split()} | {*reference_pages.MARKERS}
    types = {name for name in pliant.__all__ if isinstance(getattr(pliant, name), pliant.DType)}
    listed = [{*reference_pages.kernel_words()}, types, {*reference_pages.module_names()}, {*reference_pages.NUMBERS}]
    assert full.union(*listed) - {*reference_pages.RETURNED} == {*pliant.__all__}
    assert sum(map(len, listed)) + len(full) == len(full.union(*listed))


def test_every_option_is_on_the_page() -> None:
    page = reference_pages.command_line()
    for name in COMMANDS:
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for option in reference_pages.command_parser(name)._option_string_actions:
            assert option in ("-h", "--help") or re.search(rf"^\| (?:`|<code>)(.*, )?{option}[ ,`]", section, re.MULTILINE), (name, option)


def read_in(tree: ast.AST) -> set[str]:
    """The names of variables that a module reads: what `environ.get(name)` or `environ[name]` has, and all names of Pliant's own."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"PLIANT_[A-Z_]+", node.value):
            found.add(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            key, source = node.args[0], ast.unparse(node.func.value)
        elif isinstance(node, ast.Subscript):
            key, source = node.slice, ast.unparse(node.value)
        else:
            continue
        if source.endswith(("environ", "environment")) and isinstance(key, ast.Constant) and str(key.value).isupper():
            found.add(str(key.value))
    return found


def variables_of(folder: str) -> set[str]:
    """The variables that the modules below a folder read."""
    texts = [f.read_text(encoding="utf-8") for f in (ROOT / folder).rglob("*.py")]
    return {name for text in texts if "environ" in text or "PLIANT_" in text for name in read_in(ast.parse(text))}


def test_every_variable_is_on_the_page() -> None:
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b|\b[A-Z]{8,}\b", VARIABLES))
    product, others = variables_of("src/pliant"), variables_of("tests") | variables_of("benchmarks")
    assert len(product) > 15 and product - named == set()
    assert {name for name in named if name.startswith("PLIANT_")} - product - others == set()


def test_a_variable_that_is_read_is_found() -> None:
    source = "os.environ.get('A_B')\nenvironment['C_D']\nother.get('E_F')\nx = 'PLIANT_G'\nos.environ.get(name)\n"
    assert read_in(ast.parse(source)) == {"A_B", "C_D", "PLIANT_G"}


def test_the_page_of_exit_codes_tells_the_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^\| `pliant ([^`]+)` \| (\d+) \|$", CODES, re.MULTILINE)
    assert len(examples) >= 10
    for line, code in examples:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            assert main(line.split()) == int(code), line
    assert re.findall(r"^\| (\d+) \|", CODES, re.MULTILINE) == ["0", "1", "2", "130"]
