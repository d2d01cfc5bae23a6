"""The text of a program after any step, with its large literals, is the whole program: compiled from there it gives the same bits.

What a step puts elsewhere (weights that are packed when the program is loaded, the functions that a call leaves for, the conditions and
dims of operators that were lowered) is in the text again, or the program is refused.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import pliant
from compiled_graphs import call, compiled, lowered
from pliant import Error, InOut, Out, State, Tensor, dim, f32, function, i64, kernel, ops
from pliant.api import program_of
from pliant.compilation import State as Compilation
from pliant.graph.node import Const, MatchCast, walk_nodes
from pliant.interp.graph import run_graph
from pliant.pipeline import STEPS, compile_as_far_as, steps_to
from pliant.program import Program
from pliant.target import target
from random_graphs import make_arguments, make_function

NAMES = [s.name for s in STEPS if s.name not in ("host", "emit")]  # these make no graph program
n, m, k = dim("n"), dim("m"), dim("k")
rng = np.random.default_rng(1)


def numbers(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


W1, W2, B = numbers(64, 96), numbers(96, 32), numbers(96)
SMALL, FEW = numbers(4, 3), numbers(4)
FILTER = numbers(16, 3, 3, 3)


@kernel
def shift(x: Tensor[f32, n], by: f32, y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[i] + by


@kernel
def gather_up(x: Tensor[f32, n], total: InOut[f32, n]) -> None:
    for i in range(n):
        total[i] += x[i]


@function
def weights(x: Tensor[f32, n, 64]) -> Tensor[f32, n, 32]:
    h = ops.relu(x @ ops.constant(W1) + ops.constant(B))
    return h @ ops.constant(W2)


@function
def few_weights(x: Tensor[f32, n, 3]) -> Tensor[f32, n, 4]:
    return ops.softmax(ops.linear(x, ops.constant(SMALL)), axis=-1) * ops.exp(ops.constant(FEW))


@function
def image(x: Tensor[f32, 1, 3, n, m]) -> Tensor[f32, 1, 16, n, m]:
    return ops.relu(ops.conv(x, ops.constant(FILTER), padding=[1, 1]))


@function
def broadcast(x: Tensor[f32, n, 4], y: Tensor[f32, m, 4]) -> Tensor[f32, k, 4]:
    return ops.match_cast(ops.exp(x + y), Tensor[f32, k, 4])


@function
def gather(x: Tensor[f32, n, 8], i: Tensor[i64, m]) -> Tensor[f32, m, 8]:
    return ops.take(x, i, axis=0) * 2.0


@function
def dims_alone(x: Tensor[f32, n], y: Tensor[f32, m]) -> Tensor[f32, n, m]:
    return ops.full([n, m], 2.5) + ops.reshape(x, [n, 1])


@function
def branches(x: Tensor[f32, n], s: State[f32, n]) -> tuple[Tensor[f32, n], State[f32, n]]:
    y = shift(x, 1.5)
    if ops.sum(x, axis=0) > 0.0:
        y = y * 3.0
    else:
        y = ops.exp(y)
    return y, gather_up(y, s)


CASES: dict[str, tuple[Any, list[Any], list[Any] | None]] = {
    "weights": (weights, [numbers(5, 64)], None),
    "few_weights": (few_weights, [numbers(5, 3)], None),
    "image": (image, [numbers(1, 3, 9, 7)], None),
    "broadcast": (broadcast, [numbers(3, 4), numbers(1, 4)], [numbers(3, 4), numbers(2, 4)]),
    "gather": (gather, [numbers(5, 8), np.array([0, 3, 4])], [numbers(5, 8), np.array([0, 5])]),
    "dims_alone": (dims_alone, [numbers(3), numbers(5)], None),
    "branches": (branches, [numbers(7), numbers(7)], None),
}


def resumed(state: Compilation) -> Program:
    """The program of a state, by way of its text."""
    program = state.program
    found = Program.parse(str(program), constants=program.named_constants)
    assert str(found) == str(program)
    return found


def same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_a_program_goes_on_from_the_text_after_every_step(name: str) -> None:
    source, arguments, wrong = CASES[name]
    program = program_of(source)
    expected = call(compiled(program.entry), copy.deepcopy(arguments))
    last = ""
    for k in range(len(NAMES)):
        state = lowered(program.entry, steps_to(STEPS[k].name))
        if str(state.program) == last:
            continue
        last = str(state.program)
        f = compiled(resumed(state).entry)
        assert same(call(f, copy.deepcopy(arguments)), expected), f"after {NAMES[k]}"
        if wrong is not None:
            with pytest.raises(Error) as told:
                call(compiled(program.entry), wrong)
            with pytest.raises(Error) as found:
                call(f, wrong)
            assert found.value.what == told.value.what, f"after {NAMES[k]}"


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_go_on_from_the_text_after_steps_that_lower(seed: int) -> None:
    source, bounds = make_function(seed)
    arguments = make_arguments(source, bounds, seed)
    assert arguments is not None
    expected = call(compiled(source), copy.deepcopy(arguments))
    for name in ("lower_ops", "fuse", "promote_sizes", "schedule"):
        state = lowered(source, steps_to(name))
        assert same(call(compiled(resumed(state).entry), copy.deepcopy(arguments)), expected), f"after {name}"


def test_literals_without_values_are_refused_wherever_they_would_be_read() -> None:
    state = compile_as_far_as("lift_constants", program_of(weights), target("native"))
    bare = Program.of(state.function)
    assert state.derived
    for use in (lambda: bare.constants, lambda: bare.named_constants, lambda: pliant.compile(bare, cache=False)):
        with pytest.raises(Error, match="are not part of this function"):
            use()
    with pytest.raises(Error, match="are not part of this function"):
        run_graph(state.function, [numbers(5, 64)])
    assert "without values" in str(bare)
    with pytest.raises(Error, match=r"has no item weights\."):
        pliant.parse(str(bare))


def test_small_literals_without_values_are_not_printed_as_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_DISABLE", "fold_constants,fuse")
    state = compile_as_far_as("lift_constants", program_of(few_weights), target("native"))
    assert state.derived
    assert "[0.0, 0.0" not in str(Program.of(state.function))
    assert "0.0, 0.0" not in str(state.program)


def test_calls_of_functions_outside_keep_their_names() -> None:
    @function
    def outside(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return ops.call_library("libfast.so:halve", [x + 1.0], out=Tensor[f32, n]) * 3.0

    before, after = (compile_as_far_as(name, program_of(outside), target("native")) for name in ("lift_constants", "foreign_calls"))
    assert str(after.program) == str(before.program)
    assert 'ops.call_library("libfast.so:halve"' in str(after.program)
    with pytest.raises(Error, match="`halve` is an address of a function outside"):
        pliant.compile(Program.of(after.function), cache=False)
    with pytest.raises(Error, match="`halve` is an address of a function outside"):
        pliant.compile(pliant.parse(str(Program.of(after.function))), cache=False)


def double(x: Any) -> Any:
    return 2 * x


def test_python_functions_are_not_found_by_the_text_alone() -> None:
    @function
    def outside(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return ops.call_host(double, [x], out=Tensor[f32, n])

    state = compile_as_far_as("schedule", program_of(outside), target("native"))
    assert state.program.functions == (double,)
    with pytest.raises(Error, match="`double` is not defined"):
        pliant.parse(str(state.program))


def test_conditions_in_a_text_are_those_of_the_next_node() -> None:
    text = """
from pliant import Tensor, dim, f32, function, ops

n = dim("n")
m = dim("m")


@function
def f(x: Tensor[f32, n], y: Tensor[f32, m]) -> Tensor[f32, n]:
    ops.require(n < m, "{0} is not below {1}", [n, m], help="give more")
    z = ops.exp(x)
    return z
"""
    program = pliant.parse(text)
    assert 'ops.require(n < m, "{0} is not below {1}", [n, m], help="give more")' in str(program)
    f = pliant.compile(program)
    np.testing.assert_allclose(f(numbers(2) * 0, numbers(3)), np.ones(2, np.float32))
    with pytest.raises(Error, match="3 is not below 3"):
        f(numbers(3), numbers(3))


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("ops.require(n < j, 'no')", "`j` is not defined"),
        ("ops.require(n, 'no')", "a condition is a bool"),
        ("ops.require(n < m, '{1}', [n])", "places for other values"),
        ("ops.require(n < m, '{0.x}', [n])", "places for other values"),
        ("ops.require(n < m, 3)", "a text"),
        ("ops.require('n', 'no')", "expression over dims"),
        ("ops.require(x, 'no')", "expression over dims"),
        ("z = ops.call_loop(x, [x], dims=[n])", "a loop program decorated"),
        ("z = ops.call_loop(ops, [x], dims=[n])", "a loop program decorated"),
    ],
)
def test_wrong_conditions_and_dims_are_refused_at_their_line(line: str, what: str) -> None:
    text = f"""
n = dim("n")
m = dim("m")


@function
def f(x: Tensor[f32, n], y: Tensor[f32, m]) -> Tensor[f32, n]:
    {line}
    z = ops.exp(x)
    return z
"""
    with pytest.raises(Error, match=what) as found:
        pliant.parse(text)
    assert found.value.places[0][0].line == 8


def test_a_condition_needs_a_node_after_it() -> None:
    text = '@function\ndef f(x: Tensor[f32, 3]) -> Tensor[f32, 3]:\n    y = ops.exp(x)\n    ops.require(3 < 4, "no")\n    return y\n'
    with pytest.raises(Error, match="nothing comes after this"):
        pliant.parse(text)


@pytest.mark.parametrize(("dims", "what"), [("n", "2 dims, 1 given"), ("n, m, m", "2 dims, 3 given"), ("n, j", "`j` is not defined")])
def test_dims_of_a_call_are_checked(dims: str, what: str) -> None:
    text = f"""
n = dim("n")
m = dim("m")


@kernel
def fill(x: Tensor[f32, n], y: Out[f32, n, m]) -> None:
    for i, j in grid(n, m):
        y[i, j] = x[i]


@function
def f(x: Tensor[f32, n], y: Tensor[f32, m]) -> Tensor[f32, n, m]:
    z = ops.call_loop(fill, [x], dims=[{dims}])
    return z
"""
    with pytest.raises(Error, match=what):
        pliant.parse(text)
    right = pliant.parse(text.replace(f"[{dims}]", "[n, m]"))
    assert not [v for v in walk_nodes(right.entry.nodes) if isinstance(v, Const | MatchCast)]
    x = numbers(3)
    np.testing.assert_array_equal(pliant.compile(right)(x, numbers(2)), np.stack([x, x], 1))


def test_what_is_shown_of_a_step_is_the_whole_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PLIANT_SHOW", "lift_constants")
    compile_as_far_as("lift_constants", program_of(weights), target("native"))
    shown = capsys.readouterr().err
    assert "def weights_load()" in shown
    assert "without values" not in shown
