"""Random legal decisions of the default rules: every vector compiles, and keeps the bits of the default schedule unless it may not."""

from __future__ import annotations

import os
from functools import cache
from itertools import islice
from math import prod
from typing import Any

import numpy as np
import pytest

import pliant
from counts import count, seeds
from decision_vectors import BENCHMARKED, LAYERS, Digits, around, arrays, drawn, layer, phases, phases_seen, random_vector, vectors
from pliant.support.random import Stream
from pliant.target import target

WIDE = "llvm:x86-64-v4"  # made, not run: no machine is asked for


@pytest.mark.parametrize("name", LAYERS)
def test_a_random_vector_of_decisions_keeps_the_bits(name: str) -> None:
    machine, given = target("native"), arrays(name)
    with around(name):
        expected = results(pliant.compile(layer(name))(*given))
        for seed in seeds(1, 3):
            vector = random_vector(name, machine, Stream(f"{name}/{seed}"))
            assert results(pliant.compile(layer(name), decisions=vector)(*given)) == expected, (seed, vector)


def results(value: Any) -> list[bytes]:
    """The bits of all results."""
    return [np.asarray(v).tobytes() for v in (value if isinstance(value, tuple) else (value,))]


@pytest.mark.timeout(7200)
@pytest.mark.skipif(os.environ.get("PLIANT_LONG") != "1", reason="takes long: with PLIANT_LONG=1")
@pytest.mark.parametrize("phase", phases())
def test_many_vectors_of_each_rule(phase: str, capsys: pytest.CaptureFixture[str]) -> None:
    """MANY vectors of a rule compile, and keep the bits of the default unless they reorder a sum; all vectors where there are fewer.

    Vectors that keep the order of sums come first. They are drawn from the layers of the rule in turn.
    """
    machine = target("native")
    names = [name for name, of in LAYERS.items() if of.phase == phase]
    assert names or phase == "decoding into copies", "no layer is for this rule"
    kept = reordered = 0
    for may_reorder in (False, True):
        waiting = [(name, vectors(name, machine, may_reorder)) for name in names]
        while waiting and kept + reordered < MANY:
            name, more = waiting.pop(0)
            with around(name), phases_seen() as seen:
                records = next(more, None)
                if records is None:
                    continue  # these were all
                waiting.append((name, more))
                reorders = any(d.reorders and d.value != d.default for d in records.values())
                if may_reorder and not reorders:
                    continue  # it has had its turn
                vector = {key: d.value for key, d in records.items()}
                result = pliant.compile(layer(name), decisions=vector)(*arrays(name))
                apart = any(d.kind == "layout" and d.value != d.default for d in records.values())  # another rule may read such weights
                assert phase in seen or apart or phase in SOME_MACHINES, (name, vector, seen)
                if reorders:
                    close(result, default(name))
                else:
                    assert results(result) == results(default(name)), (name, vector)
            kept, reordered = kept + (not reorders), reordered + reorders
    whole = kept + reordered >= MANY
    with capsys.disabled():
        print(f"\n{phase}: {kept} vectors keep the bits, {reordered} reorder a sum{'' if whole else ', which are all that there are'}")


MANY = 200
SOME_MACHINES = {"integer products", "instructions"}  # have the instructions of these rules


@cache
def default(name: str) -> Any:
    """What a layer computes by default."""
    return pliant.compile(layer(name))(*arrays(name))


def close(result: Any, expected: Any) -> None:
    """Differs in last bits only."""
    for r, e in zip(*(v if isinstance(v, tuple) else (v,) for v in (result, expected)), strict=True):
        np.testing.assert_allclose(r, e, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", [n for n in LAYERS if n.startswith(("matmul", "sum", "conv_long", "one_row"))])
def test_decisions_that_reorder_sums_change_last_bits_only(name: str) -> None:
    machine, given = target("native"), arrays(name)
    expected = pliant.compile(layer(name))(*given)
    for seed in seeds(1, 20):
        vector = random_vector(name, machine, Stream(f"reordered/{name}/{seed}"), may_reorder=True)
        close(pliant.compile(layer(name), decisions=vector)(*given), expected)


def test_schedules_of_random_decisions_are_legal_for_wider_vectors() -> None:
    names = list(LAYERS)
    for seed in range(count(10, 300)):  # what primitives and verifiers refuse is an error
        name = names[seed % len(names)]
        with around(name):
            random_vector(name, target(WIDE), Stream(f"wide/{seed}"), may_reorder=True)


@pytest.mark.parametrize("cpu", ["llvm:x86-64-v3", "llvm:x86-64-v4"])
@pytest.mark.parametrize("name", BENCHMARKED)
def test_layers_of_benchmarks_have_many_legal_vectors(name: str, cpu: str) -> None:
    """Products, convolutions and windows: without those that reorder a sum, and without how weights lie."""
    first = Digits([])
    records = drawn(name, target(cpu), first)
    assert prod(d.domain.size for d in records.values() if d.kind == "schedule" and not d.reorders) >= 50
    if os.environ.get("PLIANT_LONG") == "1":
        assert len(list(islice(vectors(name, target(cpu), may_reorder=False), 50))) == 50  # none twice, and what is refused is an error
