"""The passes over loop programs before code is written: what they make of small programs, in tests/golden/lowering.txt, and that nothing
changes what a program computes.

After a change that is meant: `PLIANT_UPDATE=1 python -m pytest tests/unit/test_loop_passes.py`, then read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pliant
from pliant import (
    InOut,
    Out,
    Tensor,
    alloc,
    cast,
    check,
    dim,
    exp,
    f8e8m0,
    f16,
    f32,
    function,
    i4,
    i8,
    kernel,
    ops,
    parallel,
    rsqrt,
    select,
    sigmoid,
    strides,
    unroll,
    vector,
    view,
)
from pliant.dtype import ALL, f64, i64
from pliant.interp.loop import run_loop
from pliant.loop.attributes import SCHEDULED
from pliant.loop.buffer import Buffer, Load, loaded_dtype
from pliant.loop.lowering import LOOP_PASSES, LoopPass, Machine, lower_func
from pliant.loop.parse import parse_module
from pliant.loop.passes.choose_grain import choose_grain
from pliant.loop.passes.decode_storage import decode_storage, has_codes
from pliant.loop.passes.expand_math import expand_math, has_function
from pliant.loop.passes.outline_parallel import chunks, outline_parallel
from pliant.loop.passes.settle_lanes import settle_lanes
from pliant.loop.passes.unroll import unroll as unroll_loops
from pliant.loop.passes.widen_halves import widen_halves
from pliant.loop.printer import print_func
from pliant.loop.source_lowering import SOURCE_PASSES
from pliant.loop.stmt import For, Func, Param, Seq, Store, exprs, walk_stmts
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify
from pliant.support.errors import InternalError, UnsupportedError
from pliant.sym.expr import Call, Const, Var
from pliant.sym.walk import walk

GOLDEN = Path(__file__).parent.parent / "golden" / "lowering.txt"


def as_source(func: Func) -> Func:
    """What a renderer of source text with functions for `exp` and others is given."""
    return lower_func(func, Machine(), without=("choose_grain", "settle_lanes", "outline_parallel", "expand_math"), source=True)


n, m, s = dim("n", max=64), dim("m", max=64), dim("s", max=64)


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


@kernel(scheduled=True)
def widen(x: Tensor[i4, n, 8], scale: Tensor[f8e8m0, n], y: Out[f32, n, 8], z: Out[i4, n, 8]) -> None:
    for i in parallel(n):
        for j in vector(8):
            y[i, j] = cast(f32, x[i, j]) * scale[i]
        for j in vector(8):
            z[i, j] = i8(1)
        for k in range(2):
            for j in vector(8):
                z[i, j] += x[i, (j + k) % 8]


@kernel(scheduled=True)
def neighbors(x: Tensor[f32, n, 8], s: Tensor[f16, n], y: Out[f32, n, 8], z: Out[f16, n]) -> None:
    for i in parallel(n):
        acc = alloc((2, 2), f32, scope="register")
        acc[0, 1] = 0.5
        acc[1, 0] = 0.25
        for j in vector(1, 8):
            y[i, j] = select(j > 0, (x[i, j - 1] + acc[0, 1]) * (x[i, j - 1] + acc[0, 1]), x[i, j])
        y[i, 0] = select(i > 0, (x[i - 1, 7] - x[i, 0]) * (x[i - 1, 7] - x[i, 0]), 0.0)
        if i >= 0:
            y[i, 0] += exp(x[i, 0]) / (1.0 + exp(x[i, 0]))
        z[i] = -(s[i] * s[i])


@kernel(scheduled=True)
def halves(x: Tensor[f32, n, m], y: InOut[f32, n, m]) -> None:
    width = m // 2
    left = view(y[0, 0], (n, width), strides=(m, 1))
    for part in range(2):
        for i in parallel(n, grain=4):
            for j in range(width):
                left[i, j] += x[i, part * width + j] * y[i, m - 1]


@kernel(scheduled=True)
def columns(x: Tensor[f32, n, m], y: InOut[f32, n, m, strides(s, 1)]) -> None:
    for i in range(m):
        for j in vector(n):
            check(i < 60, "i is {0}", i)
            y[j, i] += x[j, i]


EXAMPLES: list[tuple[Callable[[Func], Func], Any]] = [
    (lambda f: choose_grain(f, 8), rows),
    (expand_math, gate),
    (unroll_loops, tile),
    (decode_storage, widen),
    (settle_lanes, columns),
    (lambda f: outline_parallel(choose_grain(f, 8)), halves),
    (widen_halves, neighbors),
    (as_source, neighbors),
]
NAMES = (
    "choose_grain",
    "expand_math",
    "unroll",
    "decode_storage",
    "settle_lanes",
    "outline_parallel",
    "widen_halves",
    "all passes for source text",
)


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
    for step in (*LOOP_PASSES, *SOURCE_PASSES):
        after = step.run(func, Machine())
        for changed in (*chunks(after), after):
            verify(changed)
        assert_same(after, parse_module(print_func(after))[after.name])
        result = np.empty_like(expected)
        run_loop(after, [x, result])
        assert result.tobytes() == expected.tobytes(), f"after {step.name}:\n{after}"
        func = func if step.name == "outline_parallel" else after  # source text does without it


def test_no_function_with_a_definition_is_left() -> None:
    func = expand_math(gate.func)
    assert not any(has_function(e) for s in walk_stmts(func.body) for e in exprs(s))
    assert expand_math(func) is func


def test_the_text_of_an_expanded_function_is_short_and_read_back() -> None:
    """f64's `pow` has 17,797,748,919 operations when each use of a part is written out."""
    x, y, i = Buffer("x", f64, (n,)), Buffer("y", f64, (n,)), Var("i")
    body = For(i, Const(0, i.dtype), n, "serial", Store(y, (i,), Call("pow", x.load(i), Const(0.3, f64))))
    func = expand_math(Func("power", (Param(x), Param(y, "out")), body, SCHEDULED))
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


def test_storage_types_are_codes_and_arithmetic() -> None:
    """Every code of i4, and numbers that round, overflow, vanish or wrap when they are stored."""
    random = np.random.default_rng(5)
    x, scale = random.integers(0, 256, (7, 4), np.uint8), random.integers(0, 256, 7, np.uint8).view(ml_dtypes.float8_e8m0fnu)
    results = []
    for func in (widen.func, decode_storage(widen.func)):
        y, z = np.empty((7, 8), np.float32), np.empty((7, 4), np.uint8)
        run_loop(func, [x, scale, y, z])
        results.append((y.tobytes(), z.tobytes()))
    assert results[0] == results[1]
    touched = [e.buffer for s in walk_stmts(func.body) for own in exprs(s) for e in walk(own) if isinstance(e, Load)]
    touched += [s.buffer for s in walk_stmts(func.body) if isinstance(s, Store)]
    assert touched and not any(has_codes(b.dtype) for b in touched)


@pytest.mark.parametrize("name", [d.name for d in ALL.values() if has_codes(d)])
def test_every_code_is_decoded_and_every_kind_of_number_encoded(name: str) -> None:
    """By ml_dtypes' tables and casts, which the interpreter takes."""
    stored = ALL[name]
    wide = loaded_dtype(stored)
    i, many = Var("i"), dim("many", multiple_of=8)
    codes, v = Buffer("codes", stored, (many,)), Buffer("v", wide, (many,))
    decode = Func("decode", (Param(codes), Param(v, "out")), For(i, Const(0, i64), many, "serial", Store(v, (i,), codes.load(i))))
    encode = Func("encode", (Param(v), Param(codes, "out")), For(i, Const(0, i64), many, "serial", Store(codes, (i,), v.load(i))))
    every = np.arange(256, dtype=np.uint8).view(stored.array_dtype())
    if stored.is_float:
        near = np.arange(256, dtype=np.uint8).view(stored.numpy()) if stored.bits == 8 else np.arange(16, dtype=np.uint8)
        near = np.nan_to_num(near.astype(np.float32), nan=1.0, posinf=9e9, neginf=-9e9)
        bits = np.random.default_rng(3).integers(0, 2**32, 4000, np.uint32).view(np.float32)
        edges = [np.nextafter(near, np.float32(s)) for s in (-np.inf, np.inf)] + [near * np.float32(1.03125)]
        numbers = np.concatenate([bits, near, *edges, np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45])])
        numbers = numbers[: len(numbers) // 8 * 8]
    else:
        numbers = np.arange(-128, 128, dtype=np.int8)
    for func, given, out in (
        (decode, every, np.empty(256 * stored.per_byte, wide.numpy())),
        (encode, numbers, np.empty(stored.array_shape(numbers.shape), stored.array_dtype())),
    ):
        again = np.empty_like(out)
        run_loop(func, [given, out])
        run_loop(decode_storage(func), [given, again])
        for a in (out, again) if out.dtype == np.float32 else ():
            a[np.isnan(a)] = np.nan  # which NaN it is, is free
        assert again.tobytes() == out.tobytes()


def test_passes_over_kernels_are_shown_and_verified_when_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @function
    def soft(x: Tensor[f32, n, 24]) -> Tensor[f32, n, 24]:
        return ops.softmax(x)

    monkeypatch.setenv("PLIANT_SHOW", "reuse_outputs,lift_workspace,expand_math,outline_parallel")
    monkeypatch.setenv("PLIANT_VERIFY", "1")
    f = pliant.compile(soft, cache=False)
    shown = [line.split()[1] for line in capsys.readouterr().err.splitlines() if line.startswith("# ")]
    assert shown == ["reuse_outputs", "lift_workspace", "expand_math", "outline_parallel"]
    x = np.linspace(-3, 3, 72, dtype=np.float32).reshape(3, 24)
    np.testing.assert_allclose(f(x).sum(axis=1), 1.0, rtol=1e-6)


def test_a_pass_that_breaks_a_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = LoopPass("forget", "nothing", lambda f, m: f.with_(body=Seq(())))
    monkeypatch.setattr("pliant.loop.lowering.LOOP_PASSES", (*LOOP_PASSES, broken))
    monkeypatch.setenv("PLIANT_VERIFY", "1")
    with pytest.raises(InternalError, match="the pass `forget` made a wrong program of `rows`: nothing is written to the output `c`"):
        pliant.compile(rows, cache=False)
