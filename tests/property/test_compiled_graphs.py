"""Random graph functions, compiled: equal to the interpreter (exactly, or within a bound from a float64 evaluation), with steps of the
pipeline left out and in another order, with poisoned memory, checked, on one thread and two, bit for bit the same from call to call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import pliant
from compiled_graphs import call, compiled, without
from counts import seeds
from graph_bounds import bounded_results
from op_cases import CASES, build
from pliant.compilation import Step
from pliant.graph.node import Function, Scalar
from pliant.graph.op_table import TABLE
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from pliant.pipeline import STEPS
from random_graphs import RANDOM, make_arguments, make_function

BATCH = 10
OPTIMIZED = 10  # one function in so many is compiled at level 2
ROUNDS = 2  # sets of dims for each executable
LARGE = 5  # one function in so many is also run with a dim so large that loops are shared between threads


def reordered() -> tuple[Step, ...]:
    """Steps in another order: casts resolved before operators are lowered, dead code removed before and after."""
    step = {s.name: s for s in STEPS}
    first = ["inline_functions", "resolve_casts", "lower_ops", "dead_code", "fuse", "dead_code"]
    return (*(step[name] for name in first), *(s for s in STEPS if s.name not in first))


VARIANTS: tuple[tuple[str, Sequence[Step]], ...] = (
    ("without fusion", without("fuse")),
    ("without dead code removed", without("dead_code")),
    ("without both", without("fuse", "dead_code")),
    ("without graph passes", without("fold_constants", "simplify", "combine_matmuls", "transposes_into_matmul", "common_subexpressions")),
    ("reordered", reordered()),
    ("checked", STEPS),
)


def copies(arguments: Sequence[Any]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]


def bits(results: Sequence[Any]) -> list[bytes]:
    """The bytes of results, every NaN made the same."""
    return [np.where(r == r, r, np.array(np.nan).astype(r.dtype)).tobytes() if r.dtype.kind == "f" else r.tobytes() for r in results]


@pytest.mark.parametrize("first", seeds(200, 50_000, BATCH))
def test_compiled_functions_equal_the_interpreter(first: int) -> None:
    for seed in range(first, first + BATCH):
        function, bounds = make_function(seed)
        verify(function)
        large = 300 if seed % LARGE == 0 else 0
        rounds = [make_arguments(function, bounds, seed * ROUNDS + k, large * k) for k in range(ROUNDS)]
        check(function, [a for a in rounds if a is not None], seed)


def check(function: Function, rounds: list[list[Any]], seed: int) -> None:
    level = 2 if seed % OPTIMIZED == 0 else 0
    main = compiled(function, level=level, poison=seed % 2 == 0)
    name, steps = VARIANTS[seed % len(VARIANTS)]
    other = compiled(function, steps, poison=True, checked=name == "checked")
    for k, arguments in enumerate(rounds):
        what = f"arguments {k} of seed {seed}:\n{function}"
        expected = bounded_results(function, copies(arguments))
        with np.errstate(all="ignore"):
            interpreted = [np.asarray(r) for r in run_graph(function, copies(arguments))]
        with pliant.threads(1):
            found = [r.copy() for r in call(main, copies(arguments))]
        varied = call(other, copies(arguments))
        for i, e in enumerate(expected):
            assert e.admits(interpreted[i]), f"interpreter, result {i}, {what}"
            assert e.admits(found[i]), f"native, result {i}, {what}"
            assert e.admits(varied[i]), f"{name}, result {i}, {what}"
        with pliant.threads(2):
            assert bits(call(main, copies(arguments))) == bits(found), f"two threads, {what}"
        unchanged = copies(arguments)
        call(main, unchanged)
        for p, before, after in zip(function.params, arguments, unchanged, strict=True):
            if isinstance(p.annotation, Scalar) or not p.annotation.state:  # type: ignore[union-attr]
                assert np.array_equal(before, after), f"argument `{p.name}` changed, {what}"


def test_every_operator_comes_up() -> None:
    from pliant.graph.node import Op, walk_nodes

    seen = {n.op for seed in range(400) for n in walk_nodes(make_function(seed)[0].nodes) if isinstance(n, Op)}
    assert seen == RANDOM
    tried = {n.op for case in CASES.values() for n in build(case, True)[0].nodes if isinstance(n, Op)}
    assert RANDOM | tried == set(TABLE)  # what random functions leave out is compiled case by case in tests/parity/test_native_ops.py


def test_few_results_are_beyond_bounds() -> None:
    """The bounds would prove nothing if most values were infinite, or if hardly any were inexact."""
    wild = inexact = total = 0
    for seed in range(100):
        function, bounds = make_function(seed)
        arguments = make_arguments(function, bounds, seed)
        for e in bounded_results(function, arguments) if arguments is not None else ():
            wild, inexact, total = wild + e.wild, inexact + (not e.exact), total + 1
    assert wild < total * 0.05
    assert total * 0.3 < inexact < total * 0.9
