"""Graph passes on the patterns that they are for, and on near ones: the results stay, and what has the documented form is changed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from compiled_graphs import call, compiled
from counts import seeds
from pliant.graph.node import Function
from pliant.graph.passes.combine_matmuls import combine_matmuls
from pliant.graph.passes.fold_batch_norm import fold_batch_norm
from pliant.graph.passes.fold_constants import fold_constants
from pliant.graph.passes.integer_products import integer_products
from pliant.graph.passes.pointwise_convolutions import pointwise_convolutions
from pliant.graph.passes.recognize_attention import recognize_attention
from pliant.graph.passes.simplify import simplify
from pliant.graph.passes.transposes_into_matmul import transposes_into_matmul
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from random_patterns import make_arguments, make_pattern

BATCH = 24
COMPILED = 24  # one function in so many is compiled
PASSES: tuple[Callable[[Function], Function], ...] = (
    integer_products, fold_constants, fold_batch_norm, pointwise_convolutions, recognize_attention, combine_matmuls,
    transposes_into_matmul, simplify,
)  # fmt: skip


def results(function: Function, arguments: list[Any]) -> list[Any]:
    with np.errstate(all="ignore"):
        return [np.asarray(r) for r in run_graph(function, [a.copy() for a in arguments])]


def same(expected: list[Any], found: list[Any], near: float) -> bool:
    """Whether results agree, relative to the largest finite number of each; infinities and NaN stand at the same places."""
    for a, b in zip(expected, found, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        a, b = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(a)
        scale = np.abs(a[finite]).max(initial=1e-3)
        if not np.array_equal(finite, np.isfinite(b)) or not (np.abs(a[finite] - b[finite]) <= near * scale).all():
            return False
    return True


def check(seed: int) -> None:
    made = make_pattern(seed)
    verify(made.function)
    rounds = [make_arguments(made.function, 2 * seed + k) for k in range(2)]
    expected = [results(made.function, a) for a in rounds]
    changed, applied = made.function, set()
    for step in PASSES:
        before, changed = changed, step(changed)
        if changed is before:
            continue
        applied.add(step.__name__)
        verify(changed)
        for arguments, e in zip(rounds, expected, strict=True):
            assert same(e, results(changed, arguments), made.near), f"{step.__name__} of seed {seed}:\n{before}\n{changed}"
    missing = set(made.passes) - applied
    assert not missing, f"{missing} do not apply, seed {seed}:\n{made.function}"
    if seed % COMPILED == 0:
        f = compiled(made.function, poison=True)
        for arguments, e in zip(rounds, expected, strict=True):
            found = [np.asarray(r) for r in call(f, [a.copy() for a in arguments])]
            assert same(e, found, made.near), f"native code of seed {seed}:\n{made.function}"


@pytest.mark.parametrize("first", seeds(240, 24_000, BATCH))
def test_passes_keep_the_meaning_of_their_patterns(first: int) -> None:
    for seed in range(first, first + BATCH):
        check(seed)
