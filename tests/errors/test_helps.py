"""Helps can be pasted: the code in the help of each error is Python, whatever the names in it are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pliant
from pliant import Tensor, bf16, dim, f32, function, ops

ROOT = Path(pliant.__file__).parent
HOLE = "x"  # stands for what a message computes


def texts(node: ast.expr) -> list[str]:
    """The texts that an expression may give, with a name for each hole; none if no text is written there."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(p.value if isinstance(p, ast.Constant) and isinstance(p.value, str) else HOLE for p in parts)]
        case ast.IfExp(body=a, orelse=b):
            return [*texts(a), *texts(b)]
        case ast.BoolOp(values=values):
            return [t for v in values for t in texts(v)]
        case ast.BinOp(op=ast.Add(), left=a, right=b):
            return [x + y for x in texts(a) or [HOLE] for y in texts(b) or [HOLE]]
    return []


def written(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The helps of a module, with their lines: arguments `help=`, and names that such arguments are taken from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and "argument" not in ast.unparse(node.func):  # a command line's help is prose
            values = [k.value for k in node.keywords if k.arg == "help"]
        elif isinstance(node, ast.Assign):
            values = [node.value] if any(isinstance(t, ast.Name) and t.id in ("help", "help_", "hint", "way") for t in node.targets) else []
        else:
            continue
        yield from ((value.lineno, text) for value in values for text in texts(value))


def code(text: str) -> list[str]:
    """The code in a help: calls, with what follows them, and what stands in backticks and has a bracket or an assignment."""
    found = [span for span in re.findall(r"`([^`]+)`", text) if re.search(r"[(\[]| = ", span) and span[0].isidentifier()]
    found = [span + " pass" if span.endswith(":") else span for span in found if not span.startswith("pliant ")]
    for begin in re.finditer(r"(?<![\w.])(?<!def )[A-Za-z_][\w.]*\(", text):
        end = closing(text, begin.end())
        while more := re.compile(r"\.\w+\(").match(text, end):
            end = closing(text, more.end())
        found.append(text[begin.start() : end])
    return found


def closing(text: str, at: int) -> int:
    """The place behind the bracket that closes the one before `at`; the end of the text if none does."""
    depth = 1
    while at < len(text) and depth:
        depth += (text[at] in "([{") - (text[at] in ")]}")
        at += 1
    return at


def test_the_code_of_every_help_compiles() -> None:
    wrong, seen = [], 0
    for file in sorted(ROOT.rglob("*.py")):
        for line, text in written(ast.parse(file.read_text(encoding="utf-8"))):
            for piece in code(text):
                seen += 1
                try:
                    compile(piece, "help", "exec")
                except SyntaxError:
                    wrong.append(f"{file.relative_to(ROOT)}:{line}: {piece!r} of {text!r}")
    assert wrong == [] and seen > 100


def test_code_is_found() -> None:
    assert code("write ops.cast(x, f32), or `a = b`; see `x`") == ["a = b", "ops.cast(x, f32)"]
    assert code("np.array(x.tolist(), dtype=np.f4).copy() has memory") == ["np.array(x.tolist(), dtype=np.f4).copy()", "x.tolist()"]


HALVES = dim("n")


@function
def halves(x: Tensor[bf16, HALVES], y: Tensor[f32, HALVES]) -> Tensor[f32, HALVES]:
    return ops.cast(x, f32) + y


@pytest.mark.parametrize(
    ("given", "way"),
    [
        (np.full(4, 0x3FC0, np.uint16), "x.view(ml_dtypes.bfloat16)"),  # the bits of bf16, as numpy without ml_dtypes has them
        (np.full(4, 1.5, np.float32), "x.astype(ml_dtypes.bfloat16)"),
        ([1.5] * 4, "np.asarray(x, dtype=ml_dtypes.bfloat16)"),
    ],
)
def test_the_help_for_bf16_makes_the_call_work(given: object, way: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    f = pliant.compile(halves)
    y = np.ones(4, np.float32)
    with pytest.raises(pliant.ShapeError) as problem:
        f(given, y)
    assert problem.value.help == way
    x = eval(way, {"x": given, "np": np, "ml_dtypes": ml_dtypes})
    assert np.array_equal(f(x, y), np.full(4, 2.5, np.float32))


def test_the_help_for_a_strided_tensor_of_torch_makes_the_call_work() -> None:
    torch = pytest.importorskip("torch", reason="it is about tensors of torch")
    f = pliant.compile(halves)
    x, y = torch.full((4,), 1.5, dtype=torch.bfloat16), torch.ones(8)[::2]
    with pytest.raises(pliant.ShapeError) as problem:
        f(x, y)
    assert "y.contiguous()" in problem.value.help and "np." not in problem.value.help
    assert torch.equal(f(x, y.contiguous()), torch.full((4,), 2.5))
