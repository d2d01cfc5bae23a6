"""What the documents say is true: their examples run, what they print is what stands below them, and no word is left out.

The ```python blocks of a document run in order in one namespace; where a ```text block follows, it is what the block before it prints.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

import pliant.loop.script
import pliant.sym.script
import pliant.sym.spec
from pliant import ops
from pliant.codegen.native_code import native_blob

ROOT = Path(__file__).parent.parent.parent
# Pages without examples in Python, and those that tools write (`test_how_it_works.py` and `test_reference_pages.py` compare them).
NO_EXAMPLES = {
    "README.md",
    "command_line.md",
    "contributing.md",
    "exit_codes.md",
    "papers.md",
    "python_api.md",
    "glossary.md",
    "renames.md",
    "how_it_works.md",
}
DOCUMENTS = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in NO_EXAMPLES)]


@dataclass
class Example:
    """A block of Python, the line it begins in, and what it prints if the document says so."""

    line: int
    code: str
    output: str | None = None


def examples(text: str) -> list[Example]:
    """The examples of a document, in order."""
    found: list[Example] = []
    lines = text.splitlines()
    k = 0
    while k < len(lines):
        if not lines[k].startswith("```"):
            k += 1
            continue
        end = next(j for j in range(k + 1, len(lines)) if lines[j].startswith("```"))
        kind, content = lines[k][3:].strip(), "\n".join(lines[k + 1 : end]) + "\n"
        if kind == "python":
            found.append(Example(k + 2, content))
        elif kind == "text":
            assert found and found[-1].output is None, f"the ```text block in line {k + 1} follows no ```python block"
            found[-1].output = content
        k = end + 1
    return found


@pytest.fixture
def _own_environment() -> Iterator[None]:
    """What an example sets in the environment is gone after its document.

    The runtime's own code is in the cache, as on a machine where Pliant has run before, so processes that examples start need no compiler.
    """
    native_blob()
    with patch.dict(os.environ):
        yield


@pytest.mark.usefixtures("_own_environment")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_examples(document: Path, tmp_path: Path) -> None:
    every = examples(document.read_text(encoding="utf-8"))
    assert every
    if document.name == "onnx.md":
        pytest.importorskip("onnx", reason="its examples need the package onnx")
    if document.name == "pytorch.md":
        pytest.importorskip("torch", reason="its examples need the package torch")
    names: dict[str, object] = {"__name__": "example"}
    for number, example in enumerate(every):
        folder = tmp_path / str(number)
        folder.mkdir()
        file = folder / "example.py"  # kernels are read from their file
        file.write_text(example.code, encoding="utf-8")
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(example.code, str(file), "exec"), names)
        except Exception as problem:
            problem.add_note(f"in the example of {document.name}, line {example.line}")
            raise
        if example.output is not None:
            assert printed.getvalue().replace(f"{folder}/", "") == example.output, f"{document.name}, line {example.line}"


def test_an_example_that_is_wrong_is_found() -> None:
    found = examples("text\n```python\nprint(1)\n```\nand\n```text\n1\n```\n```\nnot run\n```\n```python\nx = 1\n```\n")
    assert [(e.line, e.code, e.output) for e in found] == [(3, "print(1)\n", "1\n"), (13, "x = 1\n", None)]


def words(document: str) -> set[str]:
    """The names that a document has in its grammar, or in backticks, with or without arguments."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    text = re.sub(r"^```(python|text)\n.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return {name for quoted in re.findall(r"```\n.*?```|`[^`\n]+`", text, re.DOTALL) for name in re.findall(r"\w+", quoted)}


def test_the_loop_page_has_every_word() -> None:
    scalar = pliant.sym.script
    known = {*pliant.loop.script.__all__, *scalar.__all__, *scalar.LIKE_BUILTINS, *pliant.sym.spec.__all__} - {"State"}
    assert sorted(known - words("loop_language.md")) == []


def test_the_graph_page_names_operators_that_there_are() -> None:
    """Not all of them: operators.md, which is made from the code, has those."""
    page = (ROOT / "docs" / "graph_language.md").read_text(encoding="utf-8")
    table = page.partition("| family | operators |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", table))
    assert len(named) > 100 and sorted(named - {*ops.__all__}) == []
    assert {"State", "Tensor"} <= words("graph_language.md") and "](operators.md)" in page


def test_from_scratch() -> None:
    """The tutorial runs, in a process that has no Pliant, and says at its end what it reached."""
    script = ROOT / "docs" / "from_scratch.py"
    assert not re.search(r"^\s*(import|from) pliant", script.read_text(encoding="utf-8"), re.MULTILINE)
    without = "import runpy, sys; sys.modules['pliant'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", without, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "refused: cannot vectorize j" in done.stdout and "one compiled function, every n and m" in done.stdout


def test_the_page_of_modules_has_every_name() -> None:
    assert sorted({*pliant.nn.__all__} - words("nn.md")) == []
