"""Mistakes in calls: each has a designed message, and points at the caller's line and at no file of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime_programs import add_package, count_package

import pliant
from pliant.runtime.executable import Executable
from pliant.runtime.failure import failure
from pliant.runtime.interface import Interface, Site
from pliant.support.errors import CancelledError, Error, InternalError, ShapeError
from pliant.support.source import Span

ADD = Executable(add_package())
COUNT = Executable(count_package())
A = np.ones(16, np.float32)
BIG = np.ones(2100, np.float32)
FIELDS = np.zeros(16, np.dtype([("f", np.float32), ("b", np.int16)]))
UNALIGNED = np.zeros(65, np.uint8)[1:].view(np.float32)
FROZEN = np.zeros(4, np.int64)
FROZEN.flags.writeable = False
STATE = np.zeros(4, np.int64)

CASES: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: ADD(A, A[:8]), "argument `b`: dim 0 is 8, expected n = 16", ""),
    (lambda: ADD(BIG, BIG), "n = 2100 is outside its contract n in 1..2048 step 8", "compile for a wider contract"),
    (lambda: ADD(A[:7], A), "n = 7 is outside its contract n in 1..2048 step 8", "compile for a wider contract"),
    (lambda: ADD(BIG[:16:2], A[:8]), "argument `a`: the stride of dim 0 is 2 elements, expected 1", "np.ascontiguousarray(a)"),
    (lambda: ADD(A[:8], A[8:0:-1]), "argument `b`: the stride of dim 0 is -1 elements, expected 1", "np.ascontiguousarray(b)"),
    (lambda: ADD(A, A.astype(np.float64)), "argument `b`: its dtype is float64, expected f32 (float32)", "b.astype(np.float32)"),
    (lambda: ADD(A.astype(">f4"), A), "argument `a`: its bytes are in the other order than this machine's", "newbyteorder('=')"),
    (lambda: ADD(A.astype(object), A), "argument `a`: it is an array of Python objects, expected f32", "np.array(a.tolist()"),
    (lambda: ADD(A[None], A), "argument `a`: it has 2 dims (1, 16), expected 1", ""),
    (lambda: ADD([1.0], A), "argument `a`: it is of type `list`, expected an array", "np.asarray(a, dtype=np.float32)"),
    (lambda: ADD(None, A), "argument `a`: it is of type `NoneType`, expected an array", "np.asarray"),
    (lambda: ADD(np.ma.array(A, mask=A > 0), A), "argument `a`: it is a masked array, whose mask would be ignored", "filled"),
    (lambda: ADD(FIELDS["f"], A), "argument `a`: the stride of dim 0 is 6 bytes, no multiple of the element's 4", "contiguous"),
    (lambda: ADD(UNALIGNED, A), "argument `a`: its data begins at an address that is no multiple of 4 bytes", "a.copy()"),
    (lambda: ADD(A), "argument `b` is missing", ""),
    (lambda: ADD(A, A, A), "`add` takes 2 arguments, 3 are given", "`y` is an output: pass out=y"),
    (lambda: ADD(A, a=A), "argument `a` is given twice", ""),
    (lambda: ADD(A, bb=A), "`add` has no argument `bb`", "did you mean `b`?"),
    (lambda: ADD.run({"a": A, "zzz": A}), "`add` has no argument `zzz`", "arguments are: a, b"),
    (lambda: ADD.run({"a": A}), "argument `b` is missing", ""),
    (lambda: ADD(A, A, out=A), "output `y`: it shares memory with argument `a`", "no `out`"),
    (lambda: ADD(A, A, out=np.empty(8, np.float32)), "output `y`: its shape is (8,), expected (16,)", ""),
    (
        lambda: ADD(A, A, out=np.empty(16)),
        "output `y`: its dtype is float64, expected f32 (float32)",
        "allocate a contiguous array of float32 and",
    ),
    (lambda: ADD(A, A, out=np.empty(32, np.float32)[::2]), "output `y`: it is not contiguous", "np.empty((16,), np.float32)"),
    (lambda: ADD(A, A, out=(A, A)), "`add` has 1 output, `out` gives 2", ""),
    (lambda: ADD.run({"a": A, "b": A}, out={"x": A}), "`add` has no output `x`", "outputs are: y"),
    (
        lambda: COUNT(FROZEN, 1),
        "argument `state`: it is updated in place, and the array is read-only",
        "allocate a contiguous array of int64 with",
    ),
    (lambda: COUNT(STATE, 1, out=STATE.copy()), "output `new_state`: its memory must be that of argument `state`", "nothing"),
    (lambda: COUNT(STATE, 1.5), "argument `step`: 1.5 is no whole number", ""),
    (lambda: COUNT(STATE, "one"), "argument `step`: 'one' is no whole number", ""),
    (lambda: COUNT(STATE, 2**63), f"argument `step`: {2**63} is outside {-(2**63)}..{2**63 - 1}", ""),
    (lambda: COUNT(STATE, np.zeros(2, int)), "argument `step`: array([0, 0]) is no whole number", ""),
    (lambda: ADD.contract.check({"a": (16,)}), "argument `b` is missing", ""),
    (lambda: ADD.contract.check({"a": (16, 1), "b": (16,)}), "argument `a`: it has 2 dims (16, 1), expected 1", ""),
    (lambda: ADD.contract.check({"a": (16,), "b": (24,)}), "argument `b`: dim 0 is 24, expected n = 16", ""),
    (lambda: ADD.workspace(m=8), "dim `m` is no dim of the contract", ""),
    (lambda: ADD.workspace(), "dim `n` is missing", ""),
    (lambda: ADD.workspace(n=9), "n = 9 is outside its contract n in 1..2048 step 8", ""),
]


@pytest.mark.parametrize(("call", "what", "way"), CASES, ids=[what[:50] for _, what, _ in CASES])
def test_mistake(call: Callable[[], Any], what: str, way: str) -> None:
    with pytest.raises(ShapeError) as caught:
        call()
    error = caught.value
    assert error.what == what and way in error.help
    assert error.where is not None and error.where.file == __file__
    assert error.where.line == call.__code__.co_firstlineno
    assert str(Path(pliant.__file__).parent) not in str(error)


def test_the_place_of_the_declaration_is_shown_too() -> None:
    with pytest.raises(ShapeError) as caught:
        ADD(A, A[:8])
    assert [(span.file, note) for span, note in caught.value.places] == [(__file__, "in this call"), ("model.py", "stated here")]
    assert "model.py:3" in str(caught.value) and "y = a + b" in str(caught.value)


PLACE = Span("model.py", 7, 4, 9, "    x = y + z")


def test_what_happens_inside_the_program_points_into_the_program() -> None:
    site = Site("check", "index {0} is outside dim 2 of `w`, whose size is {1}; {2} {n}", "a way out", PLACE)
    error = failure(Interface("f", (), (), sites=(site,)), 2, 0, [9, 8, 0, 0, 0, 0])
    assert type(error) is Error and error.where == PLACE and error.help == "a way out"
    assert error.what == "index 9 is outside dim 2 of `w`, whose size is 8; 0 {n}"
    assert [span.file for span, _ in error.places] == ["model.py", __file__]


def test_codes_that_are_no_check() -> None:
    interface = Interface("f", (), ())
    assert isinstance(failure(interface, 1, 0, [0] * 6), CancelledError)
    assert isinstance(failure(interface, 4, 0, [0] * 6), InternalError)
    assert isinstance(failure(interface, 2, 17, [0] * 6), InternalError), "a site that is not in the table"


def test_state_must_be_alone_in_its_memory() -> None:
    from runtime_programs import compiled

    from pliant.runtime.interface import Input, Output
    from pliant.runtime.package import Package

    text = "".join(f"define i32 @{name}(ptr %ctx, ptr %buffers, ptr %dims) {{\n  ret i32 0\n}}\n" for name in ("prepare", "size", "run"))
    inputs = (Input("k", "tensor", "f32", ("2", "n"), consumed=True), Input("x", "tensor", "f32", ("2", "n")))
    f = Executable(
        Package(
            compiled(text, "prepare", "size", "run"),
            Interface("f", inputs, (Output("k1", "f32", ("2", "n"), alias=0),), parallel=False),
        )
    )
    both = np.zeros((2, 16), np.float32)
    assert f(both[:, ::2], both[:, 1::2]).base is both, "views that interleave do not overlap"
    apart = np.zeros((4, 8), np.float32)
    assert f(apart[:2], apart[2:]).base is apart
    for k, x in [(apart[:2], apart[1:3]), (both[:, ::2], both[:, :8]), (apart[:2], apart[:2])]:
        with pytest.raises(ShapeError, match="argument `k`: it is updated in place, and shares memory with argument `x`"):
            f(k, x)


@pytest.mark.parametrize(
    "call",
    [lambda: ADD(A), lambda: ADD(A, A, A), lambda: ADD(A, bb=A), lambda: ADD(A, a=A), lambda: ADD(A, A, out=(A, A)), lambda: ADD.run(3)],
)
def test_wrong_numbers_and_names_are_type_errors_too(call: Callable[[], Any]) -> None:
    """As Python's own functions raise; wrong shapes and dtypes are not."""
    with pytest.raises(TypeError) as problem:
        call()
    assert isinstance(problem.value, pliant.ShapeError)
    with pytest.raises(pliant.ShapeError) as shape:
        ADD(A, A[:3])
    assert not isinstance(shape.value, TypeError)
