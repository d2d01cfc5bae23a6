"""Random legal decisions of the default rules: every vector compiles, and keeps the bits of the default schedule unless it may not."""

from __future__ import annotations

import sys
from math import prod
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from counts import count, seeds
from decision_vectors import LAYERS, arrays, layer, random_vector

import pliant
from pliant.pipeline import compile_as_far_as
from pliant.program import Program
from pliant.support.random import Stream
from pliant.target import target

WIDE = "llvm:x86-64-v4"  # made, not run: no machine is asked for


@pytest.mark.parametrize("name", LAYERS)
def test_a_random_vector_of_decisions_keeps_the_bits(name: str) -> None:
    machine, given = target("native"), arrays(name)
    expected = pliant.compile(layer(name))(*given)
    for seed in seeds(1, 70):
        vector = random_vector(name, machine, Stream(f"{name}/{seed}"))
        result = pliant.compile(layer(name), decisions=vector)(*given)
        assert np.asarray(result).tobytes() == np.asarray(expected).tobytes(), (seed, vector)


@pytest.mark.parametrize("name", [n for n in LAYERS if n.startswith(("matmul", "sum", "conv_long", "one_row"))])
def test_decisions_that_reorder_sums_change_last_bits_only(name: str) -> None:
    machine, given = target("native"), arrays(name)
    expected = pliant.compile(layer(name))(*given)
    for seed in seeds(1, 20):
        vector = random_vector(name, machine, Stream(f"reordered/{name}/{seed}"), may_reorder=True)
        result = pliant.compile(layer(name), decisions=vector)(*given)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-3)


def test_schedules_of_random_decisions_are_legal_for_wider_vectors() -> None:
    names = list(LAYERS)
    for seed in range(count(10, 300)):  # what primitives and verifiers refuse is an error
        random_vector(names[seed % len(names)], target(WIDE), Stream(f"wide/{seed}"), may_reorder=True)


BENCHMARKED = [n for n, (_, _, rule) in LAYERS.items() if rule in ("matmul", "convolution", "windows")]


@pytest.mark.parametrize("cpu", ["llvm:x86-64-v3", "llvm:x86-64-v4"])
@pytest.mark.parametrize("name", BENCHMARKED)
def test_layers_have_many_legal_vectors(name: str, cpu: str) -> None:
    state = compile_as_far_as("schedule", Program.of(layer(name)), target(cpu))
    assert state.decisions is not None
    made = [d for part in state.decisions.kernels for d in part.made.values()]
    assert prod(d.domain.size for d in made if not d.reorders) >= 50
    draws = count(2, 80)
    vectors = {str(sorted(random_vector(name, target(cpu), Stream(f"many/{seed}")).items())) for seed in range(draws)}
    assert len(vectors) >= min(draws, 50)
