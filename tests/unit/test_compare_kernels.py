"""The tool that compares the code of two commits: what it calls a difference, and that its corpus can be made."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pytest

import compare_kernels
from kernel_corpus import corpus
from pliant.api import program_of

BEFORE = """
\t.globl\tf
f:
\tcmpq\t$160, %r9
\tjne\t.LBB0_1
.LBB0_1:
\tvmovups\t8(%rax), %ymm0\t# 32-byte Reload
\tretq
\t.quad\t0x4015cccccccccccb
"""


def record(code: str, **more: Any) -> dict[str, Any]:
    return {"kernels": [{"name": "f", "code": code}], "rules": [("f(x)", "matmul")], **more}


def test_equal_code_is_no_difference() -> None:
    assert compare_kernels.compare(record("1"), record("1")) is None
    assert compare_kernels.compare({"error": "no"}, {"error": "no"}) is None


def test_what_differs_is_told() -> None:
    assert compare_kernels.compare(record("1"), record("2")) == {"kernels": ["f"], "rules": []}
    assert compare_kernels.compare(record("1"), {"error": "no"}) == {"error": (None, "no")}
    results = [[np.array([1.0, x], np.float32)] for x in (2.0, 2.5)]
    found = compare_kernels.compare(record("1", results=results[0]), record("1", results=results[1]))
    assert found == {"results": "result 0 by 2.5e-01"}


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("$160", "$161", True),
        ("0x4015cccccccccccb", "0x4015cccccccccccc", True),
        (".LBB0_1", ".LBB7_3", True),
        ("8(%rax)", "16(%rax)", False),
        ("%r9", "%r8", False),
        ("jne", "je", False),
    ],
)
def test_constants_are_told_from_instructions(old: str, new: str, same: bool) -> None:
    before, after = ({"kernels": [{"name": "f", "code": t, "assembly": t}]} for t in (BEFORE, BEFORE.replace(old, new)))
    assert compare_kernels._only_constants(before, after) is same


def test_refusals_on_both_sides_are_no_comparison(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made = {"ops/a": record("1"), "ops/b": {"error": "no"}, "sizes/c": {"error": "no such module"}}
    monkeypatch.setattr(compare_kernels, "_made_by", lambda *_: made)
    assert compare_kernels.main(["main", "--groups", "ops"]) == 0
    assert compare_kernels.main(["main", "--groups", "ops", "sizes"]) == 1
    assert "nothing of `sizes` is compared: no such module" in capsys.readouterr().out
    assert compare_kernels.main(["main", "--groups", "models"]) == 1
    sides = [made, {"sizes/c": record("1")}]
    monkeypatch.setattr(compare_kernels, "_made_by", lambda *_: sides.pop(0))
    assert compare_kernels.main(["main", "--groups", "sizes"]) == 1  # only one side compiles it
    assert "nothing of `sizes` is compared: no such module" in capsys.readouterr().out
    other = made | {"ops/a": {"error": "no"}}
    assert compare_kernels.says_nothing(made, other, "ops") and not compare_kernels.says_nothing(made, made, "ops")


def test_every_program_of_the_corpus_can_be_made() -> None:
    pytest.importorskip("onnx", reason="some programs are read from models")
    made = [item.name for item in corpus(["sizes", "models"]) if program_of(item.program()).entry.nodes]
    assert len(made) > 25 and len(set(made)) == len(made)


def test_a_program_is_compiled_kernel_by_kernel() -> None:
    item = next(i for i in corpus(["schedule"]) if i.name == "schedule/columns")
    options = argparse.Namespace(cpu="x86-64-v3", names=None, results=False)
    first, second = (compare_kernels._measured(item, options) for _ in range(2))
    assert len(first["kernels"]) == 1 and compare_kernels.compare(first, second) is None
    other = compare_kernels._measured(item, argparse.Namespace(cpu="x86-64", names=None, results=False))
    assert compare_kernels.compare(first, other) is not None
