"""Mistakes at the call of a compiled program: the first line, the caller's file and line, a way out, and nothing of Pliant's own files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from compiled_graphs import compiled
from pliant import InOut, State, Tensor, dim, f32, function, i64, kernel, ops
from pliant.support.errors import Error, ShapeError, UnsupportedError
from pliant.support.source import Span

n = dim("n", max=64, multiple_of=2)
m = dim("m")
PACKAGE = str(Path(pliant.__file__).parent)


@kernel
def add_to(x: Tensor[f32, n], total: InOut[f32, n]) -> None:
    for i in range(n):
        total[i] += x[i]


@function
def layer(
    x: Tensor[f32, n, 4], w: Tensor[f32, 4, m], total: State[f32, n], scale: f32, step: i64
) -> tuple[Tensor[f32, n, m], State[f32, n]]:
    y = x @ w * scale
    return y, add_to(ops.sum(x, axis=1) * ops.cast(step, f32), total)


@function
def halves(x: Tensor[f32, m * 2], y: Tensor[f32, m]) -> Tensor[f32, m]:
    return ops.slice(x, 0, 0, m) + y


@pytest.fixture(scope="module")
def f() -> Any:
    return compiled(layer.graph)


def good(**changes: Any) -> dict[str, Any]:
    """Right arguments, but for the changes; None takes one away."""
    made: dict[str, Any] = {
        "x": np.ones((2, 4), np.float32),
        "w": np.ones((4, 3), np.float32),
        "total": np.zeros(2, np.float32),
        "scale": 2.0,
        "step": 1,
        **changes,
    }
    return {name: a for name, a in made.items() if a is not None}


def frozen() -> Any:
    a = np.zeros(2, np.float32)
    a.setflags(write=False)
    return a


MISTAKES: dict[str, tuple[dict[str, Any], str, str]] = {
    "dtype": (
        {"x": np.ones((2, 4))},
        "argument `x`: its dtype is float64, expected f32 (float32)",
        "x.astype(np.float32)",
    ),
    "integer for float": (
        {"w": np.ones((4, 3), np.int32)},
        "argument `w`: its dtype is int32, expected f32 (float32)",
        "w.astype(np.float32)",
    ),
    "rank": ({"x": np.ones((2, 2, 2), np.float32)}, "argument `x`: it has 3 dims (2, 2, 2), expected 2", ""),
    "fixed dim": ({"x": np.ones((2, 5), np.float32)}, "argument `x`: dim 1 is 5, expected 4", "`x` is Tensor[f32, n, 4]"),
    "above the contract": (
        {"x": np.ones((66, 4), np.float32), "total": np.zeros(66, np.float32)},
        "argument `x`: dim 0, `n` = 66 is outside its contract: n in 0..64 step 2",
        "the contract comes from the declaration of the dim and from `dims=` of compile",
    ),
    "no multiple": (
        {"x": np.ones((3, 4), np.float32), "total": np.zeros(3, np.float32)},
        "argument `x`: dim 0, `n` = 3 is outside its contract: n in 0..64 step 2",
        "the contract comes from the declaration of the dim and from `dims=` of compile",
    ),
    "two arguments that disagree": (
        {"total": np.zeros(4, np.float32)},
        "argument `total`: dim 0 is 4, expected 2 (`n`); `n` is dim 0 of `x`",
        "`total` is State[f32, n]",
    ),
    "not contiguous": (
        {"w": np.ones((3, 4), np.float32).T},
        "argument `w` is not contiguous: its strides are (1, 4) elements",
        "pass np.ascontiguousarray(w)",
    ),
    "a list": ({"x": [[1.0, 2.0, 3.0, 4.0]] * 2}, "argument `x`: it is of type `list`, expected an array", "np.asarray"),
    "nothing": ({"x": np.array(None)}, "argument `x`: it is an array of Python objects, expected f32", "dtype=np.float32"),
    "missing": ({"w": None}, "argument `w` is missing", ""),
    "unknown": ({"widht": 1}, "`layer` has no argument `widht`", "are: x, w, total, scale, step"),
    "nearly known": ({"totl": 1}, "`layer` has no argument `totl`", "did you mean `total`?"),
    "read-only state": ({"total": frozen()}, "argument `total`: it is updated in place, and the array is read-only", ""),
    "text for a number": ({"scale": "2"}, "argument `scale`: '2' is no number", ""),
    "a float for an integer": ({"step": 1.5}, "argument `step`: 1.5 is no whole number", ""),
    "beyond an integer": ({"step": 2**70}, f"argument `step`: {2**70} is outside {-(2**63)}..{2**63 - 1}", ""),
}


def assert_designed(error: Error, line: int, what: str, help_: str) -> None:
    """What, where, help; and no file of the package."""
    assert error.what.startswith(what)
    assert str(error).splitlines()[0] == error.what
    assert isinstance(error.where, Span)
    assert (Path(error.where.file), error.where.line) == (Path(__file__), line)
    assert help_ in error.help
    assert PACKAGE not in str(error)


def line_of(call: Callable[[], Any]) -> int:
    """The line that a lambda stands on."""
    return call.__code__.co_firstlineno


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_arguments(f: Any, name: str) -> None:
    changes, what, help_ = MISTAKES[name]
    arguments = good(**changes)
    wrong = lambda: f(**arguments)  # noqa: E731
    with pytest.raises(ShapeError) as info:
        wrong()
    assert_designed(info.value, line_of(wrong), what, help_)
    run = lambda: f.run(arguments)  # noqa: E731
    with pytest.raises(ShapeError) as info:
        run()
    assert_designed(info.value, line_of(run), what, help_)


def test_right_arguments_are_accepted_after_every_mistake(f: Any) -> None:
    y, total = f(**good())
    np.testing.assert_array_equal(y, np.full((2, 3), 8.0))
    np.testing.assert_array_equal(total, [4.0, 4.0])


def test_too_many_arguments(f: Any) -> None:
    wrong = lambda: f(*good().values(), 1)  # noqa: E731
    with pytest.raises(ShapeError) as info:
        wrong()
    assert_designed(info.value, line_of(wrong), "`layer` takes 5 arguments, 6 are given", "")
    assert "the signature is layer(x: Tensor[f32, n, 4]" in str(info.value)


def test_an_argument_given_twice(f: Any) -> None:
    wrong = lambda: f(np.ones((2, 4), np.float32), **good())  # noqa: E731
    with pytest.raises(ShapeError) as info:
        wrong()
    assert_designed(info.value, line_of(wrong), "argument `x` is given twice", "")


def test_a_relation_between_two_arguments() -> None:
    g = compiled(halves.graph)
    wrong = lambda: g(np.ones(7, np.float32), np.ones(3, np.float32))  # noqa: E731
    with pytest.raises(ShapeError) as info:
        wrong()
    assert_designed(info.value, line_of(wrong), "argument `x`: dim 0 is 7, expected 6 (`m * 2`)", "`x` is Tensor[f32, m * 2]")


def test_out_that_overlaps_an_argument() -> None:
    g = compiled(halves.graph)
    memory = np.ones(6, np.float32)
    wrong = lambda: g(memory, np.ones(3, np.float32), out=memory[3:])  # noqa: E731
    with pytest.raises(ShapeError) as info:
        wrong()
    assert "overlap" in info.value.what or "memory" in info.value.what
    assert_designed(info.value, line_of(wrong), info.value.what, "")
    np.testing.assert_array_equal(memory, np.ones(6))


def test_out_of_the_wrong_shape_and_dtype() -> None:
    g = compiled(halves.graph)
    x, y = np.ones(6, np.float32), np.ones(3, np.float32)
    for out in (np.ones(4, np.float32), np.ones(3), np.ones((3, 1), np.float32), np.ones(6, np.float32)[::2], [1.0, 2.0, 3.0]):
        wrong = lambda: g(x, y, out=out)  # noqa: B023, E731
        with pytest.raises(ShapeError) as info:
            wrong()
        assert_designed(info.value, line_of(wrong), info.value.what, "")


DIMS: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown": ({"batch": 1}, "`layer` has no dim `batch`", ""),
    "above": ({"n": 128}, "dim `n` cannot be 128", ""),
    "no multiple": ({"n": 3}, "dim `n` cannot be 3", ""),
    "a range outside": ({"n": (2, 128)}, "dim `n` cannot be 2..128", ""),
    "an empty range": ({"n": (8, 2)}, "dim `n` cannot be bound to (8, 2)", "give a number, a range such as (1, 2048)"),
    "a float": ({"m": 2.5}, "dim `m` cannot be bound to 2.5", "give a number"),
    "a bool": ({"m": True}, "dim `m` cannot be bound to True", "give a number"),
    "an unknown partner": ({"m": "k"}, "`layer` has no dim `k`", ""),
    "negative": ({"m": -1}, "dim `m` cannot be -1", ""),
}


@pytest.mark.parametrize("name", DIMS)
def test_a_mistake_in_dims(name: str) -> None:
    dims, what, help_ = DIMS[name]
    wrong = lambda: pliant.compile(layer, dims=dims, cache=False)  # noqa: E731
    with pytest.raises(ShapeError) as info:
        wrong()
    assert_designed(info.value, line_of(wrong), what, help_)


def test_something_that_cannot_be_compiled() -> None:
    wrong = lambda: pliant.compile(3)  # noqa: E731
    with pytest.raises(Error) as info:
        wrong()
    assert_designed(info.value, line_of(wrong), "cannot compile an object of type `int`", "pass a @kernel, a @function")


def test_a_file_that_holds_no_program() -> None:
    wrong = lambda: pliant.compile("layer.txt")  # noqa: E731
    with pytest.raises(UnsupportedError) as info:
        wrong()
    assert_designed(info.value, line_of(wrong), "no program can be read from layer.txt", "files that can be compiled end in .onnx, .pliant")


def test_a_check_inside_a_kernel_points_at_itself_and_at_the_call() -> None:
    @kernel
    def positive(x: Tensor[f32, m], y: InOut[f32, m]) -> None:
        for i in range(m):
            pliant.check(x[i] > 0.0, "element {0} is not positive", i)
            y[i] = x[i]

    g = compiled(pliant.Program.of_kernel(positive.func).entry)
    wrong = lambda: g(np.array([1, -1], np.float32), np.zeros(2, np.float32))  # noqa: E731
    with pytest.raises(Error, match="element 1 is not positive") as info:
        wrong()
    assert not isinstance(info.value, ShapeError)
    assert [span.file for span, _ in info.value.places] == [__file__, __file__]
    assert info.value.places[1][0].line == line_of(wrong)
    assert PACKAGE not in str(info.value)
