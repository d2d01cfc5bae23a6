"""Random functions over all operators, compiled: equal to the interpreter, without fusion, checked, with poisoned memory; with shapes
that do not fit both refuse.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiled_graphs import call, compiled, without
from counts import seeds
from pliant.graph.node import Function, Op, walk_nodes
from pliant.graph.op_table import TABLE
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from pliant.pipeline import STEPS
from pliant.support.errors import Error
from random_operators import EACH, Made, make_arguments, make_function

BATCH = 5
TOLERANCE = {"float16": 8e-3, "bfloat16": 6e-2, "float32": 1e-5, "float64": 4e-12}
VARIANTS = {"without fusion": without("fuse"), "checked": STEPS, "without graph passes": without("simplify", "common_subexpressions")}


@pytest.mark.parametrize("first", seeds(40, 10_000, BATCH))
def test_compiled_functions_equal_the_interpreter(first: int) -> None:
    for seed in range(first, first + BATCH):
        check(make_function(seed), seed)


def check(made: Made, seed: int) -> None:
    """Compares the compiled function, and one variant of it, with the interpreter."""
    verify(made.function)
    variant = list(VARIANTS)[seed % len(VARIANTS)]
    variant = "without fusion" if variant == "checked" and not made.checked else variant
    programs = {
        "native": compiled(made.function, poison=True),
        variant: compiled(made.function, VARIANTS[variant], poison=True, checked=variant == "checked"),
    }
    for usual in (True, False):
        arguments = make_arguments(made, seed, usual)
        expected = interpreted(made, arguments)
        if expected is None:
            assert not usual
            for name, f in programs.items():
                with pytest.raises(Error):
                    call(f, arguments)
                    pytest.fail(f"{name} of seed {seed} runs where the interpreter refuses:\n{made.function}")
            continue
        for name, f in programs.items():
            for k, (found, want) in enumerate(zip(call(f, [a.copy() for a in arguments]), expected, strict=True)):
                room = largest(want) if mixes_results(made.function) else 1.0
                assert same(np.asarray(found), np.asarray(want), room), (
                    f"{name}, result {k} of seed {seed}, usual={usual}:\n{made.function}"
                )


def interpreted(made: Made, arguments: list[Any]) -> list[Any] | None:
    """The results in the interpreter; None where it refuses."""
    with np.errstate(all="ignore"):
        try:
            return run_graph(made.function, [a.copy() for a in arguments])
        except Error:
            return None


def mixes_results(function: Function) -> bool:
    """Whether the last bits of some results depend on how large their neighbors are.

    Winograd's algorithm computes the results of a tile as sums and differences of the same products. So its rounding errors are relative
    to the largest of these, and not to a result in which they cancel.
    """
    return any(isinstance(n, Op) and n.op == "winograd_conv" for n in walk_nodes(function.nodes))


def largest(want: Any) -> float:
    """The largest magnitude of a result, at least 1."""
    finite = np.abs(np.asarray(want).astype(np.float64))
    return float(np.max(finite, initial=1.0, where=np.isfinite(finite)))


def same(found: Any, want: Any, magnitude: float = 1.0) -> bool:
    """Whether two results are equal, up to rounding relative to themselves and to a magnitude where they are floats."""
    if found.shape != want.shape or found.dtype != want.dtype:
        return False
    close = TOLERANCE.get(want.dtype.name)
    if close is None:
        return bool((found.view(np.uint8) == want.view(np.uint8)).all()) if found.size and found.ndim else bool(np.all(found == want))
    return bool(np.allclose(found.astype(np.float64), want.astype(np.float64), rtol=close, atol=close * magnitude, equal_nan=True))


def test_every_operator_comes_up() -> None:
    functions = [make_function(seed).function for seed in range(-(-len(TABLE) // EACH))]
    assert {n.op for f in functions for n in walk_nodes(f.nodes) if isinstance(n, Op)} == TABLE.keys()
