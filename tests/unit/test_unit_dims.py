"""Dims, loops and iterators of one element change no rule: programs with 1s put into every position are scheduled as those without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from native_loops import Lifted, same_bits
from pliant import ops
from pliant.dtype import f32, i64
from pliant.graph.builder import Builder
from pliant.graph.node import Tensor
from pliant.interp.loop import run_loop
from pliant.loop.buffer import Buffer, Load
from pliant.loop.passes.lower_blocks import lower_blocks
from pliant.loop.passes.settle_unit_loops import settle_unit_loops
from pliant.loop.stmt import Alloc, Block, For, Func, Iter, Param, Replacer, Stmt, walk_stmts
from pliant.loop.verify import verify
from pliant.pipeline import compile_as_far_as
from pliant.program import Program
from pliant.schedule import Schedule, default_schedule
from pliant.schedule.library.units import without_units
from pliant.sym.expr import Const, Dim, Var, const
from pliant.target import target
from schedule_kernels import KERNELS, kernel, make_arguments, parse

V3 = target("llvm:x86-64-v3")
DIMS = {"n": 13, "m": 35, "p": 9, "h": 3}
ZERO, ONE = Const(0, i64), Const(1, i64)


class Ones(Replacer):
    """Puts a dim of 1 into every buffer at a position (the last where there are less), with an iterator and a loop for it in every nest."""

    def __init__(self, func: Func, at: int) -> None:
        own = [*func.buffers, *(s.buffer for s in walk_stmts(func.body) if isinstance(s, Alloc))]
        super().__init__(buffers={b: Buffer(b.name, b.dtype, _put(b.shape, at, ONE), None, b.scope) for b in own})
        self.at, self.unit = at, Var("u")

    def _leaf(self, e: Any) -> Any:
        return self.target(e) if isinstance(e, Load) else Replacer._leaf(self, e)

    def target(self, e: Load) -> Load:
        return Load(self.buffers[e.buffer], _put(tuple(self.expr(i) for i in e.indices), self.at, self.unit))

    def stmt(self, s: Stmt) -> Stmt:
        if not isinstance(s, Block):
            return Replacer.stmt(self, s)
        self.unit, loop = Var("vu"), Var("u")
        made = Replacer.stmt(self, s)
        assert isinstance(made, Block)
        return For(loop, ZERO, ONE, "serial", made.with_(iters=_put(made.iters, self.at, Iter(self.unit, "S", loop))))


def _put(items: tuple[Any, ...], at: int, item: Any) -> tuple[Any, ...]:
    return (*items[:at], item, *items[at:])


def with_ones(func: Func, at: int) -> Func:
    """The program with a dim of 1 in every buffer."""
    ones = Ones(func, at)
    params = tuple(Param(ones.buffers[p.value], p.role) if isinstance(p.value, Buffer) else p for p in func.params)
    made = func.with_(params=params, body=ones.stmt(func.body))
    verify(made)
    return made


CONV = """
n = dim("n")
@kernel
def image(x: Tensor[f32, 12, n + 2, 20], w: Tensor[f32, 16, 12, 3, 3], y: Out[f32, 16, n, 18]) -> None:
    for o, p, q, c, r, t in grid(16, n, 18, 12, 3, 3):
        with block("y", "SSSRRR", o, p, q, c, r, t) as (vo, vp, vq, vc, vr, vt):
            with init():
                y[vo, vp, vq] = 0.0
            y[vo, vp, vq] += x[vc, vp + vr, vq + vt] * w[vo, vc, vr, vt]
"""
DEPTHWISE = """
n = dim("n")
@kernel
def depthwise(x: Tensor[f32, 6, n + 2, 34], w: Tensor[f32, 6, 3, 3], y: Out[f32, 6, n, 32]) -> None:
    for c, p, q, r, t in grid(6, n, 32, 3, 3):
        with block("y", "SSSRR", c, p, q, r, t) as (vc, vp, vq, vr, vt):
            with init():
                y[vc, vp, vq] = 0.0
            y[vc, vp, vq] += x[vc, vp + vr, vq + vt] * w[vc, vr, vt]
"""
PROGRAMS: dict[str, Func] = {**{name: kernel(name) for name in KERNELS}, "image": parse(CONV), "depthwise": parse(DEPTHWISE)}


@pytest.mark.parametrize("at", [0, 1, 2, 9])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_rule_makes_the_same_result(name: str, at: int) -> None:
    func = PROGRAMS[name]
    wide = with_ones(func, at)
    scheduled, why = default_schedule(func, V3)
    other, same = default_schedule(wide, V3)
    assert same == why
    verify(other)
    assert other.params == wide.params
    arguments = make_arguments(func, DIMS)
    reshaped = [np.expand_dims(a, min(at, a.ndim)) for a in arguments]
    run_loop(scheduled, arguments, [DIMS[v.name] for v in scheduled.symbols])
    run_loop(other, reshaped, [DIMS[v.name] for v in other.symbols])
    assert all(same_bits(a, b.reshape(a.shape)) for a, b in zip(arguments, reshaped, strict=True))


@pytest.mark.parametrize("name", ["batched", "softmax", "conv", "epilogue", "image"])
def test_native_code_with_ones(name: str) -> None:
    func = with_ones(PROGRAMS[name], 0)
    scheduled, _ = default_schedule(func, target("native"))
    expected = make_arguments(func, DIMS)
    found = [a.copy() for a in expected]
    dims = [DIMS[v.name] for v in func.symbols]
    assert Lifted([scheduled], level=0).call(scheduled, found, dims, threads=2) == 0
    run_loop(func, expected, dims)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


n = Dim("n")
PAIRS: dict[str, tuple[str, str, list[Any], list[Any]]] = {  # the rule; a call; shapes without 1s, and with
    "batch of a product": ("matmul", "matmul(x0, x1)", [(n, 64), (64, 96)], [(1, n, 64), (1, 64, 96)]),
    "two batches": ("matmul", "matmul(x0, x1)", [(2, n, 64), (2, 64, 96)], [(2, 1, n, 64), (2, 1, 64, 96)]),
    "static batch": ("matmul", "matmul(x0, x1)", [(17, 64), (64, 50)], [(1, 17, 64), (1, 64, 50)]),
    "outer product": ("elementwise", "matmul(x0, x1)", [(17, 1), (1, 50)], [(1, 17, 1), (1, 1, 50)]),
    "image": ("windows", "conv(x0, x1)", [(2, 8, n, 32), (16, 8, 3, 3)], [(1, 8, n, 32), (16, 8, 3, 3)]),
    "one row": ("windows", "conv(x0, x1)", [(2, 8, n, 32), (16, 8, 1, 3)], [(1, 8, 1, 32), (16, 8, 1, 3)]),
    "one channel": ("windows", "conv(x0, x1)", [(2, 8, n, 32), (16, 8, 3, 3)], [(1, 1, n, 32), (16, 1, 3, 3)]),
    "one result": ("windows", "conv(x0, x1)", [(2, 8, n, 32), (16, 8, 3, 3)], [(1, 8, n, 32), (1, 8, 3, 3)]),
    "one of all": ("windows", "conv(x0, x1)", [(2, 8, n, 32), (16, 8, 3, 3)], [(1, 1, n, 32), (1, 1, 3, 3)]),
    "rows": ("rows", "softmax(x0)", [(n, 64)], [(1, n, 1, 64)]),
    "norm": ("rows", "rms_norm(x0, x1)", [(n, 64), (64,)], [(n, 1, 64), (64,)]),
    "sum of rows": ("rows", "sum(x0, axis=-1)", [(n, 64)], [(1, n, 64)]),
    "sum of columns": ("matmul", "sum(x0, axis=0)", [(n, 64)], [(n, 1, 64)]),
    "turned": ("transpose", "permute(x0, (0, 2, 1))", [(3, n, 64)], [(1, n, 64)]),
    "broadcast": ("elementwise", "add(x0, x1)", [(n, 40), (40,)], [(1, n, 40), (1, 40)]),
}


def rule_of(call: str, shapes: list[Any]) -> str:
    """The words with which the explanation of a program's only kernel begins."""
    builder = Builder("case")
    given = {
        f"x{k}": builder.param(f"x{k}", Tensor(f32, tuple(const(e) if isinstance(e, int) else e for e in s))) for k, s in enumerate(shapes)
    }
    with builder:
        result = eval(call, {name: getattr(ops, name) for name in dir(ops)} | given)
    kernels = compile_as_far_as("schedule", Program.of(builder.finish([result])), V3).kernels
    assert kernels is not None
    (rule,) = kernels.rules()
    assert "not " not in rule.why, rule.why
    return rule.why.split(":")[0]


@pytest.mark.parametrize("name", PAIRS)
def test_operators_with_ones(name: str) -> None:
    rule, call, without, having = PAIRS[name]
    assert rule_of(call, without) == rule_of(call, having) == rule


def test_the_last_convolution_of_a_batch_of_one_has_packed_weights() -> None:
    """The result is an image as users have it, the operand one in blocks of channels; a batch of any size is scheduled so, too."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((16, 16, 3, 3)).astype(np.float32) for _ in range(2)]
    kinds = []
    for batch in (const(1), Dim("b")):
        builder = Builder("net")
        y = x = builder.param("x", Tensor(f32, (batch, const(16), Dim("h"), Dim("w"))))
        with builder:
            for weight in weights:
                y = ops.conv(y, ops.constant(weight), padding=1)
        kernels = compile_as_far_as("schedule", Program.of(builder.finish([y])), V3).kernels
        assert kernels is not None and x is not y
        kinds.append(sorted(r.why.split(":")[0] for r in kernels.rules()))
        assert not any("fallback" in r.why for r in kernels.rules())
    assert kinds[0] == kinds[1]


def test_what_has_no_ones_is_left_alone() -> None:
    for name in ("matmul", "softmax", "scan"):
        assert without_units(kernel(name)).func is kernel(name)


def test_reductions_of_one_element_store_it() -> None:
    func = parse("""
@kernel
def f(x: Tensor[f32, 6, 1], y: Out[f32, 6]) -> None:
    for i, k in grid(6, 1):
        with block("y", "SR", i, k) as (vi, vk):
            with init():
                y[vi] = 0.5
            y[vi] += x[vi, vk]
""")
    made = without_units(func).func
    assert "y[vi] = 0.5 + x[vi]" in str(made) and "init" not in str(made)
    verify(made)


def test_dims_that_others_go_by_stay() -> None:
    func = parse(
        """
@kernel
def f(x: Tensor[i32, 1, 6], i: Tensor[i64, 4], y: Out[i32, 4]) -> None:
    for j in range(4):
        with block("y", "S", j) as vj:
            y[vj] = x[i[vj], vj]
"""
    )
    assert without_units(func).func is func  # what is read is only known to be 0 while the program runs


def test_code_has_no_variables_of_unit_loops() -> None:
    s = Schedule(kernel("matmul"))
    i, j, k = s.loops("c")
    j0, j1 = s.split(j, 40, 1)
    s.reorder(i, j0, k, j1)
    s.vectorize(j1)
    text = str(settle_unit_loops(lower_blocks(s.program)))
    assert "vector" not in text and "j_1" not in text and "b[k, j_0]" in text
