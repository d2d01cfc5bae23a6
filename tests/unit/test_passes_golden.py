"""The graph passes on functions that have work for each of them: the printed programs before and after, in tests/golden/passes.txt.

After a change that is meant: `PLIANT_UPDATE=1 python -m pytest tests/unit/test_passes_golden.py`, then read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pliant import Tensor, dim, f32, function, i32, ops
from pliant.graph.node import Function
from pliant.graph.passes.call_libraries import call_libraries
from pliant.graph.passes.combine_matmuls import combine_matmuls
from pliant.graph.passes.common_subexpressions import common_subexpressions
from pliant.graph.passes.dead_code import dead_code
from pliant.graph.passes.fold_batch_norm import fold_batch_norm
from pliant.graph.passes.fold_constants import fold_constants
from pliant.graph.passes.simplify import simplify
from pliant.graph.passes.transposes_into_matmul import transposes_into_matmul
from pliant.graph.patterns import Pattern
from pliant.graph.verify import verify

GOLDEN = Path(__file__).parent.parent / "golden" / "passes.txt"
n, m = dim("n", max=64), dim("m", max=64)
WQ, WK = np.eye(4, dtype=np.float32), 2 * np.eye(4, dtype=np.float32)
W, ONES = np.ones((2, 3, 1, 1), np.float32), np.ones(2, np.float32)


@function
def twice(x: Tensor[f32, n, m], b: bool) -> Tensor[f32, n, m]:
    y = ops.exp(x)
    if b:
        z = ops.exp(x) + ops.tanh(x)
    else:
        z = ops.tanh(x) - y
    return z * ops.exp(x)


@function
def literals(x: Tensor[f32, n]) -> Tensor[f32, n]:
    return x * (ops.constant(2.0) / ops.sqrt(ops.constant(16.0)))


@function
def algebra(x: Tensor[f32, n, m], i: Tensor[i32, n]) -> tuple[Tensor[f32, m, n], Tensor[i32, n]]:
    y = ops.permute(ops.reshape(ops.reshape(x / 4.0, (n * m,)), (n, m)), (1, 0))
    return ops.neg(ops.neg(y)) * 1.0, ops.maximum(i + 0, i) * 1


@function
def heads(x: Tensor[f32, n, 4]) -> Tensor[f32, 2, n, n]:
    q, k = ops.linear(x, WQ), ops.linear(x, WK)
    q, k = ops.permute(ops.reshape(q, (n, 2, 2)), (1, 0, 2)), ops.permute(ops.reshape(k, (n, 2, 2)), (1, 0, 2))
    return ops.matmul(q, k, transpose_b=True)


@function
def normed(x: Tensor[f32, n, 3, m, m]) -> Tensor[f32, n, 2, m, m]:
    return ops.relu(ops.batch_norm(ops.conv(x, W), ONES, ONES, ONES, ONES))


@function
def fast(x: Tensor[f32, n, m], w: Tensor[f32, m, n]) -> Tensor[f32, n, n]:
    return ops.relu(x @ w)


@function
def called(x: Tensor[f32, n, n]) -> Tensor[f32, n, n]:
    return ops.exp(ops.relu(ops.permute(x, (1, 0)) @ x))


def _libraries(f: Function) -> Function:
    return call_libraries(f, [Pattern(fast.graph, "libfast.so:relu_matmul")])


CASES: tuple[tuple[Any, tuple[Callable[[Function], Function], ...]], ...] = (
    (twice, (common_subexpressions,)),
    (literals, (fold_constants,)),
    (algebra, (simplify,)),
    (heads, (combine_matmuls, transposes_into_matmul, simplify, common_subexpressions)),
    (normed, (fold_batch_norm,)),
    (called, (_libraries,)),
    (called, (transposes_into_matmul,)),
)


def test_programs_before_and_after() -> None:
    found: list[str] = []
    for f, passes in CASES:
        after = f.graph
        for change in passes:
            after = dead_code(change(after))
            verify(after)
        names = ", ".join(p.__name__.strip("_") for p in passes)
        found.append(f"# before\n{f.graph}\n# after {names}\n{after}\n")
    text = "\n".join(found)
    if os.environ.get("PLIANT_UPDATE") == "1":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
