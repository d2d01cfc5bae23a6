"""One golden per pass over loop programs: a small program before and after the pass, in tests/golden/loop_passes.

After an intended change: `PLIANT_UPDATE=1 python -m pytest tests/unit/test_golden_loop_passes.py`, then read the difference.
"""

from __future__ import annotations

from typing import Any

import pytest

import goldens
from pliant import (
    Out,
    Tensor,
    alloc,
    block,
    cast,
    check,
    dim,
    exp,
    f16,
    f32,
    grid,
    i4,
    i64,
    init,
    kernel,
    parallel,
    select,
    unroll,
    vector,
    where,
)
from pliant.loop.lowering import LOOP_PASSES, Machine, Named
from pliant.loop.source_lowering import SOURCE_PASSES
from pliant.loop.stmt import Func
from pliant.lower.schedule_kernels import KERNEL_PASSES, Kernels
from pliant.target import target

n, m = dim("n", max=64), dim("m", max=64)
V3 = target("llvm:x86-64-v3")  # fixed, so that the goldens are the same on every machine


@kernel(scheduled=True)
def sums(a: Tensor[f32, n, m], c: Out[f32, n]) -> None:
    for i in range(n):
        for k_0 in range((m + 7) // 8):
            for k_1 in range(8):
                with block("c", "SR", i, k_0 * 8 + k_1) as (vi, vk):
                    where(vk < m)
                    with init():
                        c[vi] = 0.0
                    c[vi] += a[vi, vk]


@kernel(scheduled=True)
def once(x: Tensor[f32, 8], y: Out[f32, 8]) -> None:
    for i_0 in range(8):
        for i_1 in vector(1):
            y[i_0 + i_1] = x[i_0 + i_1]


@kernel(scheduled=True)
def wide_tile(a: Tensor[f32, 6, n], b: Tensor[f32, n, 64], c: Out[f32, 6, 64]) -> None:
    acc = alloc((6, 64), f32, scope="register")
    for r in unroll(6):
        for x in vector(64):
            acc[r, x] = 0.0
    for k in range(n):
        for r in unroll(6):
            for x in vector(64):
                acc[r, x] += a[r, k] * b[k, x]
    for r in unroll(6):
        for x in vector(64):
            c[r, x] = acc[r, x]


@kernel(scheduled=True)
def packed(x: Tensor[f32, 64], y: Out[f32, 4, 16]) -> None:
    for j_0 in range(4):
        for j_1 in vector(16):
            y[(j_0 * 16 + j_1) // 16, (j_0 * 16 + j_1) % 16] = x[j_0 * 16 + j_1]


@kernel(scheduled=True)
def rows(a: Tensor[f32, n, m], c: Out[f32, n, m]) -> None:
    for i in parallel(n):
        for j in vector(m):
            c[i, j] = a[i, j] * 2.0


@kernel(scheduled=True)
def codes(x: Tensor[i4, n], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = cast(f32, x[i])


@kernel(scheduled=True)
def tile(x: Tensor[f32, n, 2], y: Out[f32, 2]) -> None:
    acc = alloc((2,), f32, scope="register")
    for r in unroll(2):
        acc[r] = 0.0
    for i in range(n):
        for r in unroll(2):
            acc[r] += x[i, r]
    for r in unroll(2):
        y[r] = acc[r]


@kernel(scheduled=True)
def gate(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = exp(x[i])


@kernel(scheduled=True)
def columns(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in vector(n):
        check(x[i] > 0.0, "x[{0}] is not positive", i)
        y[i] = x[i]


@kernel(scheduled=True)
def grains(x: Tensor[f32, n, 8], y: Out[f32, n, 8]) -> None:
    for i in parallel(n, grain=4):
        for j in vector(8):
            y[i, j] = x[i, j] + 1.0


@kernel(scheduled=True)
def totals(x: Tensor[f32, n, 8], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = 0.0
        for j in range(8):
            y[i] += x[i, j]


@kernel(scheduled=True)
def halves(x: Tensor[f16, n], y: Out[f16, n]) -> None:
    for i in range(n):
        y[i] = x[i] * x[i]


@kernel(scheduled=True)
def shifted(x: Tensor[f32, 8], y: Out[f32, 8]) -> None:
    y[0] = 0.0
    for i in range(1, 8):
        y[i] = select(i > 0, x[i - 1], 0.0)
        if i > 9:
            y[i] = 1.0


@kernel(scheduled=True)
def registers(x: Tensor[f32, 2], y: Out[f32, 2]) -> None:
    acc = alloc((2, 2), f32, scope="register")
    acc[0, 0] = x[0]
    acc[1, 1] = acc[0, 0] * x[1]
    y[0] = acc[0, 0]
    y[1] = acc[1, 1]


@kernel(scheduled=True)
def unused(x: Tensor[f32, 2], y: Out[f32, 2]) -> None:
    acc = alloc((2,), f32, scope="stack")
    for i in range(2):
        t = x[i] * 2.0
        acc[i] = t
    for i in range(2):
        y[i] = x[i]


@kernel(scheduled=True)
def shared(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = exp(x[i]) / (1.0 + exp(x[i]))


@kernel
def steps(x: Tensor[f32, 8, 8], y: Out[f32, 8, 8]) -> None:
    t = alloc((8, 8), f32)
    for i, j in grid(8, 8):
        with block("t", "SO", i, j) as (vi, vj):
            t[vi, vj] = x[vi, vj] + select(vj > 0, t[vi, vj - 1], 0.0)
    for i, j in grid(8, 8):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = exp(t[vi, vj])


@kernel(scheduled=True)
def gathered(x: Tensor[f32, n], at: Tensor[i64, m], y: Out[f32, m]) -> None:
    for i in range(m):
        y[i] = x[at[i]]


@kernel
def turned(x: Tensor[f32, 8, 8], y: Out[f32, 8, 8]) -> None:
    t = alloc((8, 8), f32)
    for i, j in grid(8, 8):
        with block("t", "SO", i, j) as (vi, vj):
            t[vi, vj] = x[vi, vj] + select(vj > 0, t[vi, vj - 1], 0.0)
    for i, j in grid(8, 8):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = t[vj, vi]


EXAMPLES: dict[str, Any] = {
    "reuse_outputs": steps,
    "add_checks": gathered,
    "lift_workspace": turned,
    "lower_blocks": sums,
    "settle_unit_loops": once,
    "narrow_register_tiles": wide_tile,
    "simplify_indices": packed,
    "choose_grain": rows,
    "decode_storage": codes,
    "unroll": tile,
    "expand_math": gate,
    "settle_lanes": columns,
    "outline_parallel": grains,
    "serial_loops": grains,
    "plain_reductions": totals,
    "widen_halves": halves,
    "decide_conditions": shifted,
    "split_registers": registers,
    "remove_unused": unused,
    "name_shared": shared,
}
PASSES = (*LOOP_PASSES, *SOURCE_PASSES)


@pytest.mark.parametrize("step", PASSES, ids=lambda p: p.name)
def test_golden(step: Any) -> None:
    func = EXAMPLES[step.name].func
    goldens.compare(
        f"loop_passes/{step.name}", f"{step.name}: {step.holds}", str(func), str(step.run(func, Machine(lanes=8, registers=16)))
    )


@pytest.mark.parametrize("step", KERNEL_PASSES, ids=lambda p: p.name)
def test_golden_of_a_pass_behind_the_schedule(step: Named) -> None:
    changes: list[tuple[Func, Func]] = []

    def watch(done: Named, before: Func, after: Func) -> None:
        if done is step:
            changes.append((before, after))

    checked = step.name == "add_checks"
    Kernels(V3, checked, watch=watch).schedule_kernel(EXAMPLES[step.name].func, checked)
    ((before, after),) = changes
    goldens.compare(f"loop_passes/{step.name}", f"{step.name}: {step.holds}", str(before), str(after))


def test_every_pass_has_a_golden() -> None:
    known = {p.name for p in (*KERNEL_PASSES, *PASSES)}
    assert set(EXAMPLES) == known
    assert goldens.names("loop_passes") == known
