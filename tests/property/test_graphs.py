"""Random graph functions: they verify, survive printing and reading, and mean the same after every order of the passes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from counts import seeds
from pliant.graph.node import Function
from pliant.graph.parse import parse_module
from pliant.graph.passes.dead_code import dead_code
from pliant.graph.passes.inline_functions import inline_functions
from pliant.graph.printer import constants_of, print_function
from pliant.graph.structural import assert_same
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from random_graphs import KERNELS, make_arguments, make_function

PASSES = (inline_functions, dead_code)
BATCH = 20


def run(function: Function, arguments: list[Any]) -> list[np.ndarray[Any, Any]]:
    """The results, and the arguments after the run (state is updated in place)."""
    copies = [np.array(a) for a in arguments]
    with np.errstate(all="ignore"):
        return [*run_graph(function, copies), *copies]


@pytest.mark.parametrize("first", seeds(200, 50_000, BATCH))
def test_random_functions(first: int) -> None:
    for seed in range(first, first + BATCH):
        function, bounds = make_function(seed)
        verify(function)
        text = print_function(function)
        again = parse_module(text, KERNELS, constants=constants_of(function))[function.name]
        assert_same(function, again)
        arguments = make_arguments(function, bounds, seed)
        if arguments is None:
            continue
        expected = run(function, arguments)
        for order in itertools.permutations(PASSES):
            changed = function
            for step in order:
                changed = step(changed)
                verify(changed)
                found = run(changed, arguments)
                assert len(found) == len(expected)
                for a, b in zip(found, expected, strict=True):
                    np.testing.assert_array_equal(a, b, err_msg=f"seed {seed} after {step.__name__}")
        readable = print_function(changed)
        assert_same(changed, parse_module(readable, KERNELS, constants=constants_of(changed))[changed.name])
