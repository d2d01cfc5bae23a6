"""One golden per default schedule rule: a small program before and after the rule, in tests/golden/rules.

After an intended change: `PLIANT_UPDATE=1 python -m pytest tests/unit/test_golden_rules.py`, then read the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import goldens
from declared_instructions import declared
from pliant import Tensor, f32, function, i32, ops, u8
from pliant.api import program_of
from pliant.graph.node import CallLoop
from pliant.loop.stmt import Func
from pliant.lower.callee import func_of
from pliant.pipeline import compile_as_far_as
from pliant.schedule.library import driver
from pliant.schedule.library.record import Rule
from pliant.schedule.library.table import CPU
from pliant.target import target
from schedule_kernels import parse

V3 = target("llvm:x86-64-v3")  # fixed, so that the goldens are the same on every machine

INSTRUCTION = """
n = dim("n")
@kernel
def product(a: Tensor[i16, n, 6], b: Tensor[i16, 6, 4], c: Out[i32, n, 4]) -> None:
    for i, j, k in grid(n, 4, 6):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0
            c[vi, vj] += cast(i32, a[vi, vk]) * cast(i32, b[vk, vj])
"""

CONVOLUTION = """
@kernel
def conv(x: Tensor[f32, 4, 6, 6], w: Tensor[f32, 8, 4, 3, 3], y: Out[f32, 8, 4, 4]) -> None:
    for o, i, j, c, r, t in grid(8, 4, 4, 4, 3, 3):
        with block("y", "SSSRRR", o, i, j, c, r, t) as (vo, vi, vj, vc, vr, vt):
            with init():
                y[vo, vi, vj] = 0.0
            y[vo, vi, vj] += x[vc, vi + vr, vj + vt] * w[vo, vc, vr, vt]
"""

# The rule sees the stages and not what the transforms compute: here they only move elements.
WINOGRAD = """
@kernel
def tiled(x: Tensor[f32, 4, 4, 8], w: Tensor[f32, 4, 4, 8, 8], y: Out[f32, 4, 4, 8]) -> None:
    padded = alloc((2, 4, 6, 8), f32)
    for m, k, n, j in grid(2, 4, 6, 8):
        with block("padded", "SSSS", m, k, n, j) as (vm, vk, vn, vj):
            padded[vm, vk, vn, vj] = select(vm * 2 + vk < 4 and vn < 4, x[vm * 2 + vk, vn, vj], 0.0)
    tiles = alloc((4, 4, 2, 2, 8), f32)
    for k, l, m, n, j in grid(4, 4, 2, 2, 8):
        with block("tiles", "SSSSS", k, l, m, n, j) as (vk, vl, vm, vn, vj):
            tiles[vk, vl, vm, vn, vj] = padded[vm, vk, vn * 2 + vl, vj]
    sum = alloc((4, 4, 2, 2, 8), f32)
    for k, l, m, n, j, o in grid(4, 4, 2, 2, 8, 8):
        with block("sum", "SSSSSR", k, l, m, n, j, o) as (vk, vl, vm, vn, vj, vo):
            with init():
                sum[vk, vl, vm, vn, vj] = 0.0
            sum[vk, vl, vm, vn, vj] += tiles[vk, vl, vm, vn, vo] * w[vk, vl, vo, vj]
    for r, t, j in grid(4, 4, 8):
        with block("y", "SSS", r, t, j) as (vr, vt, vj):
            y[vr, vt, vj] = sum[vr % 2, vt % 2, vr // 2, vt // 2, vj] + 1.0
"""

WINDOWS = """
@kernel
def stencil(x: Tensor[f32, 4, 34], w: Tensor[f32, 3], y: Out[f32, 4, 32]) -> None:
    for i, j, k in grid(4, 32, 3):
        with block("y", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                y[vi, vj] = 0.0
            y[vi, vj] += x[vi, vj + vk] * w[vk]
"""

INLINING = """
n = dim("n")
@kernel
def chain(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    t = alloc((n,), f32)
    for i in serial(n):
        with block("t", "S", i) as vi:
            t[vi] = x[vi] * 2.0
    for i in serial(n):
        with block("y", "S", i) as vi:
            y[vi] = exp(t[vi])
"""

DECODING = """
@kernel
def decoded(a: Tensor[f32, 8, 16], q: Tensor[u8, 16, 8], c: Out[f32, 8, 8]) -> None:
    b = alloc((16, 8), f32)
    for k, j in grid(16, 8):
        with block("b", "SS", k, j) as (vk, vj):
            b[vk, vj] = cast(f32, q[vk, vj]) * 0.5
    for i, j, k in grid(8, 8, 16):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]
"""

DECODING_INTO_COPIES = """
@kernel
def decoded(a: Tensor[f32, 64, 16], q: Tensor[u8, 16, 16], c: Out[f32, 64, 16]) -> None:
    b = alloc((16, 16), f32)
    for k, j in grid(16, 16):
        with block("b", "SS", k, j) as (vk, vj):
            b[vk, vj] = cast(f32, q[vk, vj]) * 0.5
    for i, j, k in grid(64, 16, 16):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]
"""

ONE_ROW = """
@kernel
def gemv(a: Tensor[f32, 16], b: Tensor[f32, 16, 512], c: Out[f32, 512]) -> None:
    for j, k in grid(512, 16):
        with block("c", "SR", j, k) as (vj, vk):
            with init():
                c[vj] = 0.0
            c[vj] += a[vk] * b[vk, vj]
"""

MATMUL = """
@kernel
def matmul(a: Tensor[f32, 8, 16], b: Tensor[f32, 16, 16], c: Out[f32, 8, 16]) -> None:
    for i, j, k in grid(8, 16, 16):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]
"""

ROWS = """
n = dim("n")
@kernel
def rows(x: Tensor[i32, n, 8], y: Out[i32, n, 8]) -> None:
    top = alloc((n,), i32)
    for i, k in grid(n, 8):
        with block("top", "SR", i, k) as (vi, vk):
            with init():
                top[vi] = -100
            top[vi] = max(top[vi], x[vi, vk])
    for i, j in grid(n, 8):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = x[vi, vj] - top[vi]
"""

SINGLE_REDUCTIONS = """
n = dim("n")
@kernel
def apart(x: Tensor[i32, n, 8], y: Tensor[i32, 9, 11], top: Out[i32, n], z: Out[i32, 11, 9]) -> None:
    for i, k in grid(n, 8):
        with block("top", "SR", i, k) as (vi, vk):
            with init():
                top[vi] = -100
            top[vi] = max(top[vi], x[vi, vk])
    for i, j in grid(11, 9):
        with block("z", "SS", i, j) as (vi, vj):
            z[vi, vj] = y[vj, vi] + 1
"""

TRANSPOSE = """
@kernel
def transpose(x: Tensor[i32, 16, 32], y: Out[i32, 32, 16]) -> None:
    for i, j in grid(32, 16):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = x[vj, vi]
"""

ELEMENTWISE = """
n = dim("n")
m = dim("m")
@kernel
def scale(x: Tensor[f32, n, m], w: Tensor[f32, m], y: Out[f32, n, m]) -> None:
    for i, j in grid(n, m):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = x[vi, vj] * w[vj]
"""

RECURRENCE = """
n = dim("n")
@kernel
def recurrence(x: Tensor[f32, n, 30], y: Out[f32, n, 30]) -> None:
    for j, t in grid(30, n):
        with block("y", "SO", j, t) as (vj, vt):
            y[vt, vj] = select(vt > 0, y[vt - 1, vj], 0.0) * 0.5 + x[vt, vj]
"""

FALLBACK = """
n = dim("n")
@kernel
def steps(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in serial(n):
        with block("y", "S", i) as vi:
            for k in serial(3):
                y[vi] = x[vi] * 2.0
"""


BYTES = np.ones((8, 8), np.int8)
WEIGHT = np.ones((8, 8, 1, 1), np.float32)
TO_16 = np.ones((16, 8, 1, 1), np.float32)
TO_ONE = np.ones((1, 8, 1, 3), np.float32)


@function
def blocked(x: Tensor[f32, 1, 8, 4, 4]) -> Tensor[f32, 1, 8, 4, 4]:
    return ops.relu(ops.conv(ops.conv(x, WEIGHT), WEIGHT))


@function
def to_one(x: Tensor[f32, 1, 8, 4, 8]) -> Tensor[f32, 1, 1, 4, 6]:
    return ops.relu(ops.conv(ops.conv(x, WEIGHT), TO_ONE))


@function
def pooled(x: Tensor[f32, 1, 8, 4, 4]) -> Tensor[f32, 1, 16]:
    return ops.sum(ops.conv(ops.conv(x, WEIGHT), TO_16), axis=(2, 3))


@function
def integers(x: Tensor[u8, 4, 8]) -> Tensor[i32, 4, 8]:
    return ops.matmul_integer(x, BYTES)


PROGRAMS: dict[str, Any] = {
    "instruction": INSTRUCTION,
    "winograd": WINOGRAD,
    "convolutions_of_blocks": blocked,
    "channel_sums": to_one,
    "convolutions": CONVOLUTION,
    "windows": WINDOWS,
    "inlining": INLINING,
    "decoding": DECODING,
    "dot_products": integers,
    "one_row": ONE_ROW,
    "matmul": MATMUL,
    "lane_sums": pooled,
    "decoding_into_copies": DECODING_INTO_COPIES,
    "rows": ROWS,
    "single_reductions": SINGLE_REDUCTIONS,
    "transpose": TRANSPOSE,
    "elementwise": ELEMENTWISE,
    "recurrence": RECURRENCE,
    "fallback": FALLBACK,
}


def name_of(rule: Rule) -> str:
    """Return the name of a rule's golden: the rule's name, or that of its phase where two rules have the same name."""
    twins = [r for r in CPU if r.name == rule.name]
    return (rule.name if len(twins) == 1 else rule.phase).replace(" ", "_")


RULES = {name_of(r): r for r in CPU}


@dataclass
class Application:
    """What a rule did to a program."""

    before: Func
    after: Func
    text: str


def applications(rule: Rule, funcs: list[Func], monkeypatch: pytest.MonkeyPatch) -> list[Application]:
    """Schedule the programs with the whole table; return what the rule changed."""
    seen: list[Application] = []

    def apply(s: Any, roles: Any, decide: Any) -> str:
        before = s.program
        text = rule.apply(s, roles, decide)
        if s.program is not before:
            seen.append(Application(before, s.program, text))
        return text

    table = tuple(replace(r, apply=apply) if r is rule else r for r in CPU)
    monkeypatch.setattr(driver, "rules_for", lambda machine: table)
    for func in funcs:
        driver.default_schedule(func, V3)
    return seen


def kernels(program: Any) -> list[Func]:
    """Return the loop programs that the rules see: a text as it is, a graph function after all steps before the schedule."""
    if isinstance(program, str):
        return [parse(program)]
    nodes = compile_as_far_as("promote_sizes", program_of(program), V3).function.nodes
    return [func_of(n.callee) for n in nodes if isinstance(n, CallLoop)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    around: Callable[[], AbstractContextManager[Any]] = (lambda: declared("x86_64")) if name == "instruction" else nullcontext
    with around():
        done = applications(RULES[name], kernels(PROGRAMS[name]), monkeypatch)
    assert done, "the rule takes no block of its program"
    first = done[0]
    goldens.compare(f"rules/{name}", f"the rule `{RULES[name].name}`: {first.text}", str(first.before), str(first.after))


def test_every_rule_has_a_golden() -> None:
    assert set(PROGRAMS) == set(RULES)
    assert goldens.names("rules") == set(RULES)
