"""State that branches and loops update: compiled functions do to it what the interpreter does, or say that they cannot.

State is updated in place, so two states that change places in a branch or from round to round cannot be compiled; everything else can.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from compiled_graphs import host_of, interpret_host
from counts import seeds
from pliant import f32, i64, ops
from pliant.graph import node as g
from pliant.graph.builder import Builder
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from pliant.support.errors import UnsupportedError
from pliant.sym.expr import Dim, const
from random_graphs import accumulate

States = Sequence[g.Value]


class Stateful:
    """A random function over two states; `crossed` where they change places somewhere."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"states {seed}")
        self.builder, self.n, self.crossed = Builder(f"states_{seed}"), Dim("n", 0, 64), False
        self.x = self.builder.param("x", g.Tensor(f32, (self.n,)))
        self.flags = [self.builder.param(f"flag{k}", g.Scalar(i64)) for k in range(2)]
        self.states = [self.builder.param(name, g.Tensor(f32, (self.n,), state=True)) for name in ("s", "t")]

    def function(self) -> g.Function:
        with self.builder:
            states: States = self.states
            for _ in range(self.dice.choice([1, 1, 2])):
                states = self.dice.choice([self.branch, self.loop])(states, 0)
            return self.builder.finish(list(states))

    def updated(self, states: States, depth: int) -> States:
        """The states after some steps."""
        kind = self.dice.random()
        if depth < 2 and kind < 0.25:
            return self.dice.choice([self.branch, self.loop])(states, depth)
        return [s if self.dice.random() < 0.3 else self.builder.call_loop(accumulate.callee, [self.x, s])[0] for s in states]

    def maybe_crossed(self, states: States) -> States:
        if self.dice.random() < 0.3:
            self.crossed = True
            return [states[1], states[0]]
        return states

    def branch(self, states: States, depth: int) -> States:
        cond = ops.greater(self.dice.choice(self.flags), 0)
        bodies = []
        for _ in range(2):
            self.builder.open()
            bodies.append(self.builder.close(list(self.maybe_crossed(self.updated(states, depth + 1)))))
        return list(self.builder.if_(cond, *bodies))

    def loop(self, states: States, depth: int) -> States:
        init = [self.builder.scalar(const(0)), *states]

        def enter() -> list[g.Value]:
            annotations: list[g.Annotation] = [g.Scalar(i64), *(v.annotation for v in states)]
            params = [self.builder.carried(f"c{k}", a) for k, a in enumerate(annotations)]
            self.builder.open(params, loop=True)
            return params

        params = enter()
        cond, _ = self.builder.close([ops.less(params[0], self.dice.choice([0, 1, 2, 3]))])
        params = enter()
        after = self.maybe_crossed(self.updated(params[1:], depth + 1))
        body, _ = self.builder.close([ops.add(params[0], 1), *after])
        return list(self.builder.while_(init, cond, body)[1:])


def arguments(seed: int, n: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-3, 4, n).astype(np.float32) for _ in range(3)]
    return [arrays[0], int(rng.integers(-1, 2)), int(rng.integers(-1, 2)), *arrays[1:]]


def copies(given: Sequence[Any]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in given]


@pytest.mark.parametrize("first", seeds(30, 6000, 15))
def test_state_is_updated_as_the_interpreter_does(first: int) -> None:
    for seed in range(first, first + 15):
        made = Stateful(seed)
        function = made.function()
        verify(function)
        try:
            host = host_of(function, poison=True)
        except UnsupportedError as error:
            assert made.crossed and "state" in error.what, f"seed {seed}: {error}\n{function}"
            continue
        for k in range(4):
            given = arguments(seed * 4 + k, k)
            expected = [np.asarray(r) for r in run_graph(function, copies(given))]
            for e, found in zip(expected, interpret_host(host, copies(given)), strict=True):
                assert np.array_equal(e, found), f"seed {seed}, arguments {k}: {found}, expected {e}\n{function}"
