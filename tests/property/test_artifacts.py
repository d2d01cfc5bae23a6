"""Random graph functions, saved and loaded: the same results bit for bit, and a program that means the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import pliant
from compiled_graphs import call, lowered
from counts import seeds
from pliant.artifact import read_program
from pliant.graph.node import CallHost, walk_nodes
from pliant.graph.structural import assert_same
from pliant.program import Program
from pliant.provenance import Provenance
from pliant.runtime.executable import Executable
from pliant.runtime.loading import constants_of
from pliant.target import target
from random_graphs import make_arguments, make_function


@pytest.mark.parametrize("seed", seeds(12, 2000))
def test_random_graphs_are_saved_and_loaded(seed: int, tmp_path: Path) -> None:
    function, bounds = make_function(seed)
    if any(isinstance(n, CallHost) for n in walk_nodes(function.nodes)):
        pytest.skip("Python functions are not saved")
    state = lowered(function, level=0)
    assert state.package is not None
    constants = constants_of(state.package, state.constants, state.functions)
    f = Executable(state.package, constants=constants, provenance=Provenance(lambda: Program.of(function), target("native")))
    f.save(tmp_path / "f.pliant")
    assert_same(read_program(tmp_path / "f.pliant").entry, function)
    g = pliant.load(tmp_path / "f.pliant", verify=True)
    arguments = make_arguments(function, bounds, seed)
    if arguments is not None:
        ours, theirs = (call(e, [a.copy() if hasattr(a, "copy") else a for a in arguments]) for e in (f, g))
        assert [r.tobytes() for r in ours] == [r.tobytes() for r in theirs]
