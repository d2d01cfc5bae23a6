"""The passes over loop programs before code is written: what they make of small programs, in tests/golden/lowering.txt, and that nothing
changes what a program computes.

After a change that is meant: `PLIANT_UPDATE=1 python -m pytest tests/unit/test_loop_passes.py`, then read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pliant import Out, Tensor, alloc, dim, exp, f32, kernel, parallel, rsqrt, select, sigmoid, unroll, vector, view
from pliant.dtype import f64, i64
from pliant.interp.loop import run_loop
from pliant.loop.buffer import Buffer
from pliant.loop.lowering import LOOP_PASSES, Machine, lower_func
from pliant.loop.parse import parse_module
from pliant.loop.passes.choose_grain import choose_grain
from pliant.loop.passes.expand_math import expand_math, has_function
from pliant.loop.passes.unroll import unroll as unroll_loops
from pliant.loop.printer import print_func
from pliant.loop.stmt import For, Func, Param, Store, exprs, walk_stmts
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify
from pliant.support.errors import UnsupportedError
from pliant.sym.expr import Call, Const, Var

GOLDEN = Path(__file__).parent.parent / "golden" / "lowering.txt"
n, m = dim("n", max=64), dim("m", max=64)


@kernel(scheduled=True)
def rows(a: Tensor[f32, n, m], c: Out[f32, n]) -> None:
    for i in parallel(n):
        c[i] = 0.0
        for k in range(m):
            c[i] += exp(a[i, k])


@kernel(scheduled=True)
def gate(x: Tensor[f32, n, 8], y: Out[f32, n, 8]) -> None:
    for i in range(n):
        for j in vector(8):
            y[i, j] = select(i > 0, sigmoid(x[i, j]), rsqrt(x[i, j]))


@kernel(scheduled=True)
def tile(x: Tensor[f32, n, 8], y: Out[f32, 4, 8]) -> None:
    acc = alloc((4, 8), f32, scope="register")
    for r in unroll(4):
        for j in vector(8):
            acc[r, j] = 0.0
    for i in range(n):
        for p in unroll(2):
            bits = alloc((8,), f32, scope="stack")
            row = 2 * p
            for j in vector(8):
                bits[j] = x[i, j] * x[i, p]
            for q in unroll(p, 2):
                if row + q < 3:
                    part = view(acc[row + q, 0], (8,))
                    for j in vector(8):
                        part[j] += bits[j]
    for r in unroll(4):
        for j in vector(8):
            y[r, j] = acc[r, j]


EXAMPLES: list[tuple[Callable[[Func], Func], Any]] = [
    (lambda f: choose_grain(f, 8), rows),
    (expand_math, gate),
    (unroll_loops, tile),
]
NAMES = ("choose_grain", "expand_math", "unroll")


def test_programs_before_and_after() -> None:
    parts = []
    for name, (run, program) in zip(NAMES, EXAMPLES, strict=True):
        func = program.func
        parts.append(f"# before\n{print_func(func)}\n# after {name}\n{print_func(run(func))}")
    text = "\n\n".join(parts)
    if os.environ.get("PLIANT_UPDATE"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("program", [rows, gate, tile], ids=lambda p: p.func.name)
def test_what_each_pass_makes_is_a_program_like_any_other(program: Any) -> None:
    """It verifies, its text is read back, and the interpreter computes the same bits."""
    x = np.random.default_rng(1).normal(size=(5, 8)).astype(np.float32)
    shape = {rows: (5,), gate: (5, 8), tile: (4, 8)}[program]
    func = program.func
    expected = np.empty(shape, np.float32)
    run_loop(func, [x, expected])
    for step in LOOP_PASSES:
        func = step.run(func, Machine())
        verify(func)
        assert_same(func, parse_module(print_func(func))[func.name])
        result = np.empty_like(expected)
        run_loop(func, [x, result])
        assert result.tobytes() == expected.tobytes(), f"after {step.name}:\n{func}"


def test_no_function_with_a_definition_is_left() -> None:
    func = expand_math(gate.func)
    assert not any(has_function(e) for s in walk_stmts(func.body) for e in exprs(s))
    assert expand_math(func) is func


def test_the_text_of_an_expanded_function_is_short_and_read_back() -> None:
    """f64's `pow` has 17,797,748,919 operations when each use of a part is written out."""
    x, y, i = Buffer("x", f64, (n,)), Buffer("y", f64, (n,)), Var("i")
    body = For(i, Const(0, i.dtype), n, "serial", Store(y, (i,), Call("pow", x.load(i), Const(0.3, f64))))
    func = expand_math(Func("power", (Param(x), Param(y, "out")), body, {"scheduled": True}))
    text = print_func(func)
    assert len(text) < 20_000
    assert_same(func, parse_module(text)["power"])
    given = np.array([0.5, 2.0, 1e300, 0.0])
    result = np.empty(4)
    run_loop(parse_module(text)["power"], [given, result])
    np.testing.assert_allclose(result, given**0.3, rtol=1e-15)


def test_a_name_for_an_expression_is_no_value() -> None:
    """`(t := e)` is computed where it is used: here after the store that changes it."""

    @kernel(scheduled=True)
    def later(x: Out[f32, 4]) -> None:
        x[0] = 1.0
        (t := x[0] * 2.0)
        x[0] = 3.0
        for i in range(3):
            x[i + 1] = t

    x = np.empty(4, np.float32)
    run_loop(later.func, [x])
    np.testing.assert_array_equal(x, [3, 6, 6, 6])


def test_a_grain_that_is_stated_is_at_least_one() -> None:
    loop = rows.func.body
    assert isinstance(loop, For)
    for stated, expected in ((0, 1), (-3, 1), (7, 7)):
        (s, *_) = walk_stmts(choose_grain(rows.func.with_(body=loop.with_(annotations={"grain": stated})), 8).body)
        assert isinstance(s, For) and s.annotations["grain"] == expected


def test_all_passes_together_leave_what_a_renderer_knows() -> None:
    for program in (rows, gate, tile):
        func = lower_func(program.func, Machine())
        verify(func)
        assert not any(isinstance(s, For) and s.kind == "unroll" for s in walk_stmts(func.body))


def test_loops_that_cannot_be_written_out_are_refused() -> None:
    loop = rows.func.body
    assert isinstance(loop, For)
    with pytest.raises(UnsupportedError, match="cannot be unrolled: its extent `n` is no constant"):
        unroll_loops(rows.func.with_(body=loop.with_(kind="unroll")))
    many = For(loop.var, Const(0, i64), Const(100, i64), "unroll", For(Var("k"), Const(0, i64), Const(100, i64), "unroll", loop.body))
    with pytest.raises(UnsupportedError, match="gives 10000 copies of its body, more than 4096"):
        unroll_loops(rows.func.with_(body=many))
