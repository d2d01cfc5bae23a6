"""`pliant.stages` and `pliant.lower_until`: what changes a program is told, and from every step on it can be edited and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Error, Out, Program, Tensor, dim, f32, function, kernel, ops
from pliant.interp.graph import run_graph
from pliant.pipeline import STEPS

n = dim("n", max=64)
rng = np.random.default_rng(1)
W = rng.standard_normal((64, 32)).astype(np.float32)
x = rng.standard_normal((5, 64)).astype(np.float32)


@function
def layer(x: Tensor[f32, n, 64]) -> Tensor[f32, n, 32]:
    return ops.relu(x @ W) * 2.0


EXPECTED = np.maximum(x.astype(np.float64) @ W, 0) * 2


@pytest.fixture(scope="module")
def whole() -> Any:
    return pliant.compile(layer)(x)


def test_the_steps_are_those_of_the_pipeline() -> None:
    found = pliant.stages()
    assert [s.name for s in found] == [s.name for s in STEPS] and all(s.changes is None for s in found)
    assert list(dict.fromkeys(s.phase for s in found)) == ["graph", "lower", "fuse", "layout", "code"]


def test_what_changes_a_program_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {s.name: s.changes for s in pliant.stages(layer)}
    assert [found[name] for name in ("lower_ops", "fuse", "schedule")] == [True] * 3
    assert found["fold_batch_norm"] is found["inline_functions"] is False and found["host"] is found["emit"] is None
    monkeypatch.setenv("PLIANT_DISABLE", "fuse")
    assert not {"fuse", "rematerialize"} & {s.name for s in pliant.stages()}, "what only prepares a step goes with it"


def test_the_steps_print_as_a_table() -> None:
    found = pliant.stages()
    lines = str(found).splitlines()
    assert lines[0].split() == ["step", "phase", "changes", "it", "after", "it"] and len(lines) == 1 + len(STEPS)
    assert any(line.startswith("fuse ") and line.endswith("joined their producers and consumers") for line in lines)
    assert found._repr_html_().count("<tr>") == 1 + len(STEPS)


@pytest.mark.parametrize("step", ["unique_dims", "fuse", "lift_constants", "schedule"])
def test_what_is_compiled_from_a_step_has_the_same_bits(step: str, whole: Any) -> None:
    p = pliant.lower_until(layer, step)
    assert isinstance(p, Program)
    for program in (p, p.edited(str(p))):
        assert np.array_equal(pliant.compile(program)(x), whole)
    if step == "fuse":
        assert [k.name for k in p.kernels] == ["matmul_relu_mul"]
        assert np.allclose(run_graph(p.entry, [x])[0], EXPECTED, rtol=1e-4, atol=1e-4)


def test_an_edit_is_compiled_with_the_weights() -> None:
    p = pliant.lower_until(layer, "fuse")
    text = str(p)
    assert text.count("* 2.0") == 1
    found = pliant.compile(p.edited(text.replace("* 2.0", "* 3.0")))(x)
    assert np.allclose(found, EXPECTED * 1.5, rtol=1e-4, atol=1e-4)
    with pytest.raises(Error, match="xx"):
        p.edited(text.replace("* 2.0", "* xx"))


def test_trees_of_arguments_stay_unless_the_arguments_change() -> None:
    entry = pliant.lower_until(layer, "unique_dims").entry
    p = Program(entry.with_(attrs={**entry.attrs, "calling": {"a": "description"}}))
    assert p.edited(str(p)).entry.attrs["calling"] == {"a": "description"}
    assert "calling" not in p.edited(str(p).replace("x: Tensor", "y: Tensor").replace("(x,", "(y,")).entry.attrs


def test_options_are_those_of_compile() -> None:
    assert "Tensor[f32, 8, 64]" in str(pliant.lower_until(layer, "fuse", dims={"n": 8}))
    text = str(pliant.lower_until(layer, "schedule", "x86-64-v3", decisions={"dot.tile": (2, 2)}))
    assert 'alloc((2, 16), f32, scope="register")' in text, "two rows of two vectors of 8"
    with pytest.raises(Error, match="dott"):
        pliant.lower_until(layer, "schedule", decisions={"dott.tile": (2, 2)})


def test_a_kernel_alone() -> None:
    @kernel
    def double(x: Tensor[f32, n], y: Out[f32, n]) -> None:
        for i in range(n):
            y[i] = x[i] * 2.0

    p = pliant.lower_until(double, "infer_blocks")
    assert "with block(" in str(p)
    f = pliant.compile(p.edited(str(p).replace("2.0", "4.0")))
    assert np.array_equal(f(np.arange(4, dtype=np.float32)), np.arange(4) * 4.0)


@pytest.mark.parametrize(
    ("step", "what", "help"),
    [
        ("fus", "the compiler has no step `fus`", "did you mean `fuse`?"),
        ("zzz", "the compiler has no step `zzz`", "print(pliant.stages()) lists them"),
        ("emit", "the step `emit` makes code, which is no program", "pliant.compile runs all steps"),
    ],
)
def test_steps_that_give_no_program(step: str, what: str, help: str) -> None:
    with pytest.raises(Error, match=what) as problem:
        pliant.lower_until(layer, step)
    assert problem.value.help == help and "fuse" in problem.value.facts[0]
