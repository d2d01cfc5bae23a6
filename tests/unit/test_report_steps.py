"""The compiler's steps in the report: the program after each of them, and what it changed."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_report import check

import pliant
from pliant import Tensor, dim, f32, function, ops
from pliant.pipeline import STEPS
from pliant.report import compiler_steps
from pliant.report.bounds import Texts
from pliant.report.compiler_steps import CompilerStep, definitions, diff

n = dim("n", max=64)
W = np.random.default_rng(1).random((4, 4), np.float32)

BEFORE = """from pliant import Tensor, dim, f32, function, kernel, ops

n = dim("n")


@kernel
def twice(
    x: Tensor[f32, n], y: Out[f32, n]
) -> None:
    for i in range(n):
        y[i] = x[i] * 2.0


@function
def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
    a = twice(x)
    return ops.exp(a)
"""
AFTER = BEFORE.replace("    a = twice(x)\n    return ops.exp(a)\n", "    return exp_twice(x)\n").replace("twice(\n", "exp_twice(\n")


@function
def layer(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 4]:
    return ops.relu(ops.exp(x) @ ops.constant(W))


@pytest.fixture(scope="module")
def compiled() -> Any:
    return pliant.compile(layer)


@pytest.fixture(scope="module")
def steps(compiled: Any) -> list[CompilerStep]:
    return list(compiler_steps.compiler_steps(compiled._provenance))


def test_definitions_of_a_text() -> None:
    found = definitions(BEFORE)
    assert list(found) == ["", "twice", "f"] and found[""] == ['n = dim("n")']
    assert found["twice"][:4] == ["@kernel", "def twice(", "    x: Tensor[f32, n], y: Out[f32, n]", ") -> None:"]
    assert len(found["f"]) == 4


def test_a_change_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert diff(BEFORE, BEFORE) == ()
    changed = diff(BEFORE, AFTER)
    assert [line for line in changed if line.startswith("@@")] == ["@@ exp_twice", "@@ f", "@@ twice"]
    at = changed.index("@@ f")
    assert changed[at + 1 : at + 6] == (
        " @function",
        " def f(x: Tensor[f32, n]) -> Tensor[f32, n]:",
        "-    a = twice(x)",
        "-    return ops.exp(a)",
        "+    return exp_twice(x)",
    )
    step = CompilerStep("s", "holds", AFTER, changed)
    assert (step.added, step.removed) == (7, 8)
    monkeypatch.setattr(compiler_steps, "_MOST_COMPARED", 5)
    assert "@@ twice: 6 lines became 0, too many to compare" in diff(BEFORE, AFTER)


def test_every_step_but_the_last_is_there(steps: list[CompilerStep]) -> None:
    assert [s.name for s in steps] == [s.name for s in STEPS[:-1]]
    changed = {s.name for s in steps if s.diff}
    assert {"lower_ops", "fuse", "schedule", "host"} <= changed and "call_libraries" not in changed


def test_changes_lead_from_each_program_to_the_next(compiled: Any, steps: list[CompilerStep]) -> None:
    texts = [str(compiled._provenance.program), *(s.text for s in steps)]
    for step, (before, after) in zip(steps, itertools.pairwise(texts), strict=True):
        lines = [[line for part in definitions(text).values() for line in part] for text in (before, after)]
        assert step.added - step.removed == len(lines[1]) - len(lines[0]), step.name
        assert all(line[1:] in lines[line[0] == "+"] for line in step.diff if line[0] in "+-"), step.name


def test_the_text_after_a_step_is_a_program(compiled: Any, steps: list[CompilerStep]) -> None:
    text = next(s.text for s in steps if s.name == "fuse")
    again = pliant.compile(pliant.parse(text, constants=compiled._provenance.program.named_constants))
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    assert np.allclose(again(x), np.maximum(np.exp(x) @ W, 0), rtol=1e-5)


def test_disabled_steps_are_left_out(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_DISABLE", "rematerialize,fuse")
    names = [s.name for s in compiler_steps.compiler_steps(compiled._provenance)]
    assert "fuse" not in names and "rematerialize" not in names and "lower_ops" in names


def test_steps_in_the_page(compiled: Any, tmp_path: Path) -> None:
    compiled.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    check(text)
    section = text[text.index('<section id="steps">') :]
    assert section.count("<strong>") + section.count("changed nothing") == len(STEPS) - 1
    assert "<b>@@ layer</b>" in section and "<del>-" in section and "<ins>+" in section and "-&gt; Tensor" in section
    assert re.search(r"<strong>fuse</strong>.*?<ins>\+\d+</ins> <del>−\d+</del>", section)


def test_lines_of_a_diff_are_escaped() -> None:
    assert Texts().take_diff(["@@ <f>", "+a < b", " c & d"]) == "<b>@@ &lt;f&gt;</b>\n<ins>+a &lt; b</ins>\n c &amp; d"
