"""Conditions that are marked as choices (`support/choices.py`) are: with random answers, programs keep their meaning."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from compiled_graphs import host_of, interpret_host
from counts import seeds
from generate_kernels import make_kernel
from pliant.graph.passes.pointwise_convolutions import pointwise_convolutions
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from pliant.support.choices import answering
from random_patterns import make_arguments, make_pattern
from random_places import SIZES, Chain
from rule_forms import FORMS, Form
from schedule_checks import Case, Ruled, check_all

BATCH = 20
TARGETS = ["llvm:x86-64-v3", "llvm:x86-64-v4", "wasm+simd128", "llvm:x86-64-v2"]


def coin(seed: int) -> Callable[[bool], bool]:
    """Answers that are other than the compiler's in some cases of a program, in half of them, or in all."""
    dice = random.Random(f"choices {seed}")
    share = dice.choice([0.2, 0.5, 1.0])
    return lambda condition: condition != (dice.random() < share)


def settled(seed: int) -> Callable[[bool], bool]:
    """The same answer whenever the same is asked: where memory lies is worked out more than once."""
    return (lambda condition: not condition, lambda _: True, lambda _: False)[seed % 3]


class Chosen(Ruled):
    """What the default rules make of a program if other things are worth doing."""

    def make(self) -> None:
        with answering(coin(self.seed)):
            super().make()


def case(seed: int) -> Case:
    """A program in a form that rules are for; one in three is any kernel."""
    func = make_kernel(seed) if seed % 3 == 0 else Form(seed // 3 * len(FORMS) + seed % len(FORMS)).func
    return Chosen(func, seed, TARGETS[seed % len(TARGETS)])


@pytest.mark.parametrize("first", seeds(20, 6000, BATCH))
def test_rules_keep_the_meaning_whatever_is_worth_doing(first: int) -> None:
    wrong = check_all([case(seed) for seed in range(first, first + BATCH)], level=0)
    assert not wrong, "\n\n".join(map(str, wrong))


@pytest.mark.parametrize("seed", seeds(4, 800))
def test_values_lie_anywhere(seed: int) -> None:
    chain = Chain(seed)
    function = chain.function()
    with answering(settled(seed)):
        host = host_of(function, poison=True)
    for sizes in SIZES:
        arguments = chain.arguments(*sizes)
        for found, expected in zip(interpret_host(host, arguments), chain.expected(arguments), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_convolutions_become_products_or_not() -> None:
    for seed in seeds(20, 4000):
        made = make_pattern(seed)
        with answering(coin(seed)):
            changed = pointwise_convolutions(made.function)
        verify(changed)
        arguments = make_arguments(made.function, seed)
        with np.errstate(all="ignore"):
            expected, found = (run_graph(f, [a.copy() for a in arguments]) for f in (made.function, changed))
        for a, b in zip(expected, found, strict=True):
            scale = np.abs(np.asarray(a, np.float64)[np.isfinite(a)]).max(initial=1e-3)
            np.testing.assert_allclose(b, a, rtol=0, atol=max(made.near, 1e-5) * scale)
