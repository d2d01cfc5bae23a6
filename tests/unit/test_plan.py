"""The memory plan: no overlap, sizes as formulas, close to the largest live set."""

from __future__ import annotations

import random

import pytest

from pliant.lower.plan import Temporary, aligned, largest_live_set, plan_memory, sample_points
from pliant.sym.expr import Dim, Expr, const
from pliant.sym.semantics import evaluate

n = Dim("n", 1, 4096)
m = Dim("m", 1, 512)


def check_plan(temporaries: list[Temporary]) -> list[float]:
    """Asserts that no two living temporaries overlap at any sampled point; the ratios of size to largest live set."""
    plan = plan_memory(temporaries)
    ratios = []
    for point in sample_points([t.bytes for t in temporaries]):
        sizes = [int(evaluate(aligned(t.bytes), point)) for t in temporaries]
        offsets = [int(evaluate(o, point)) for o in plan.offsets]
        total = int(evaluate(plan.size, point))
        for i, a in enumerate(temporaries):
            assert offsets[i] % 64 == 0
            assert offsets[i] + sizes[i] <= total
            for j, b in enumerate(temporaries[:i]):
                alive_together = a.first <= b.last and b.first <= a.last
                apart = offsets[i] + sizes[i] <= offsets[j] or offsets[j] + sizes[j] <= offsets[i]
                assert not alive_together or apart, (i, j, point)
        ratios.append(total / max(1, largest_live_set(temporaries, sizes)))
    return ratios


def test_a_chain_needs_two_slots() -> None:
    chain = [Temporary(n * 1024, step, step + 1) for step in range(6)]
    plan = plan_memory(chain)
    assert len(set(plan.slots)) == 2
    assert int(evaluate(plan.size, {n: 3})) == 2 * 3 * 1024


def test_slots_join_only_sizes_that_are_proven_or_the_maximum_of_both() -> None:
    plan = plan_memory([Temporary(n * 256, 0, 1), Temporary(m * 512, 2, 3)])
    assert plan.slots == (0, 0)
    assert int(evaluate(plan.size, {n: 10, m: 1})) == 2560
    assert int(evaluate(plan.size, {n: 1, m: 10})) == 5120


def test_a_smaller_member_leaves_the_formula() -> None:
    plan = plan_memory([Temporary(n * 256, 0, 1), Temporary(n * 64, 2, 3)])
    assert str(plan.size) == "n * 256"


def test_no_temporaries() -> None:
    assert plan_memory([]).size is const(0)


@pytest.mark.parametrize("seed", range(20))
def test_random_plans(seed: int) -> None:
    rng = random.Random(seed)
    choices: list[Expr] = [n * 64, n * 256, n * m * 4, m * 128, const(4096), (n + m) * 32]
    temporaries = []
    for step in range(rng.randrange(1, 14)):
        for _ in range(rng.randrange(1, 3)):
            temporaries.append(Temporary(rng.choice(choices), step, step + rng.randrange(0, 4)))
    assert max(check_plan(temporaries)) < 1.8
