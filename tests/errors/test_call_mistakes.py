"""Wrong kinds of things given to a compiled program, to its contract and to `compile`: a designed error at the caller's line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Executable, InOut, Out, State, Tensor, dim, f32, function, kernel, match_cast
from pliant.support.errors import Error, ShapeError, UnsupportedError, counted, is_are

PACKAGE = str(Path(pliant.__file__).parent)
n = dim("n", max=64)
m = dim("m", max=64)


@kernel
def add(a: Tensor[f32, n, m], b: Tensor[f32, n, m], c: Out[f32, n, m]) -> None:
    for i in range(n):
        for j in range(m):
            c[i, j] = a[i, j] + b[i, j]


@kernel
def count(x: Tensor[f32, n], s: InOut[f32, n]) -> None:
    for i in range(n):
        s[i] += x[i]


@function
def bump(x: Tensor[f32, n], s: State[f32, n]) -> State[f32, n]:
    return count(x, s)


@function
def promised(x: Tensor[f32, n, m]) -> Tensor[f32, n, n]:
    return x + x


@function
def asserted(x: Tensor[f32, n, m]) -> Tensor[f32, n, n]:
    return match_cast(x, Tensor[f32, n, n])


F: Executable = pliant.compile(add)
BUMP: Executable = pliant.compile(bump)
A = np.ones((2, 3), np.float32)
V = np.ones(2, np.float32)
FROZEN = np.zeros((2, 3), np.float32)
FROZEN.flags.writeable = False
OWN_OUTPUT = "allocate a contiguous array of float32 and pass that: the call writes into it"
OWN_STATE = "allocate a contiguous array of float32 with the values of the state and pass that: the call writes into it"
SHAPES = {"a": (2, 3), "b": (2, 3)}

CASES: dict[str, tuple[Callable[[], Any], type[Error], str, str]] = {
    "workspace_text": (lambda: F.workspace(n="a", m=1), ShapeError, "dim `n` is 'a', expected a whole number", ""),
    "workspace_float": (lambda: F.workspace(n=8.0, m=1), ShapeError, "dim `n` is 8.0, expected a whole number", ""),
    "workspace_unnamed": (lambda: F.workspace(2, 3), ShapeError, "dims are given by name", "write workspace(n=..., m=...)"),
    "check_too_large": (
        lambda: F.contract.check({**SHAPES, "a": (2**64, 3)}),
        ShapeError,
        f"argument `a`: dim 0 is {2**64}, which is too large",
        "",
    ),
    "check_number": (
        lambda: F.contract.check({**SHAPES, "a": 5}),
        ShapeError,
        "argument `a`: 5 is no shape: a tuple of whole numbers is expected",
        "for example (n, m)",
    ),
    "check_text": (
        lambda: F.contract.check({**SHAPES, "a": ("x", 1)}),
        ShapeError,
        "argument `a`: ('x', 1) is no shape: a tuple of whole numbers is expected",
        "for example (n, m)",
    ),
    "check_list": (lambda: F.contract.check([(2, 3)]), ShapeError, "shapes are given by name, not as an object of type `list`", ""),
    "check_rank": (lambda: F.contract.check({**SHAPES, "a": (2,)}), ShapeError, "argument `a`: it has 1 dim (2,), expected 2", ""),
    "run_list": (
        lambda: F.run([A, A]),
        ShapeError,
        "`run` takes arguments by name, not an object of type `list`",
        'pass {"a": a, "b": b}',
    ),
    "target_none": (lambda: pliant.compile(add, target=None), UnsupportedError, "a target is a name, not None", "targets are `native`"),
    "target_number": (lambda: pliant.compile(add, target=5), UnsupportedError, "a target is a name, not 5", "targets are `native`"),
    "target_name": (lambda: pliant.compile(add, target="x"), UnsupportedError, "unknown target `x`", "targets are `native`"),
    "target_feature": (
        lambda: pliant.compile(add, target="wasm+simd"),
        UnsupportedError,
        "unknown feature `simd` in target `wasm+simd`",
        "features are spelled as LLVM",
    ),
    "with_threads": (lambda: pliant.threads(0), Error, "the number of threads is 0, expected a whole number of at least 1", ""),
    "set_threads": (lambda: pliant.set_threads(0), Error, "the number of threads is 0, expected a whole number of at least 1", ""),
    "output_in_place": (lambda: F(A, A, A), ShapeError, "`add` takes 2 arguments, 3 are given", "`c` is an output: pass out=c"),
    "output_by_name": (lambda: F(A, A, c=A), ShapeError, "`c` is an output, no argument", "`c` is an output: pass out=c"),
    "output_dtype": (
        lambda: F(A, A, out=np.zeros((2, 3))),
        ShapeError,
        "output `c`: its dtype is float64, expected f32 (float32)",
        OWN_OUTPUT,
    ),
    "output_frozen": (lambda: F(A, A, out=FROZEN), ShapeError, "output `c`: it is written, and the array is read-only", OWN_OUTPUT),
    "output_list": (lambda: F(A, A, out={"c": [0.0]}), ShapeError, "output `c`: it is of type `list`, expected an array", OWN_OUTPUT),
    "state_dtype": (lambda: BUMP(V, np.zeros(2)), ShapeError, "argument `s`: its dtype is float64, expected f32 (float32)", OWN_STATE),
    "state_frozen": (
        lambda: BUMP(V, FROZEN[0, :2]),
        ShapeError,
        "argument `s`: it is updated in place, and the array is read-only",
        OWN_STATE,
    ),
    "state_strided": (
        lambda: BUMP(V, np.zeros(4, np.float32)[::2]),
        ShapeError,
        "argument `s` is not contiguous: its strides are (2) elements",
        OWN_STATE,
    ),
    "input_strided": (
        lambda: BUMP(np.zeros(4, np.float32)[::2], V),
        ShapeError,
        "argument `x` is not contiguous: its strides are (2) elements",
        "pass np.ascontiguousarray(x)",
    ),
    "too_many_outputs": (lambda: F(A, A, out=(A, A)), ShapeError, "`add` has 1 output, `out` gives 2", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_mistake(name: str) -> None:
    call, kind, what, way = CASES[name]
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert error.what == what and way in error.help
    assert error.where is not None and error.where.file == __file__
    assert call.__code__.co_firstlineno <= error.where.line <= call.__code__.co_firstlineno + 1
    assert PACKAGE not in str(error) and "contextlib" not in str(error)


@pytest.mark.parametrize(
    ("program", "what", "line"),
    [
        (promised, "the result is promised as Tensor[f32, n, n]: dim 1 of `add` is 3, n = 2 is expected", "return x + x"),
        (asserted, "match_cast: dim 1 of `x` is 3, n = 2 is expected", "return match_cast(x, Tensor[f32, n, n])"),
    ],
    ids=["promised", "asserted"],
)
def test_a_promise_that_fails_in_the_run(program: Any, what: str, line: str) -> None:
    with pytest.raises(ShapeError) as caught:
        program(A)
    error = caught.value
    assert error.what == what
    (call, _), (place, _) = error.places
    assert call.file == place.file == __file__
    assert call.text.strip() == "program(A)" and place.text.strip() == line
    assert PACKAGE not in str(error)


def test_numbers_agree_with_their_nouns() -> None:
    assert [f"{counted(k, 'dim')} {is_are(k)}" for k in range(3)] == ["0 dims are", "1 dim is", "2 dims are"]


def test_threads_still_apply_inside_the_block() -> None:
    with pliant.threads(1):
        assert np.array_equal(F(A, A), A + A)


def test_numpy_integers_are_whole_numbers() -> None:
    assert F.workspace(n=np.int64(2), m=np.int32(3)) == F.workspace(n=2, m=3)
    assert F.contract.check({name: (np.int64(2), np.int64(3)) for name in "ab"}) == {"n": 2, "m": 3}
