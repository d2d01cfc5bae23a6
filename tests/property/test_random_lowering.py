"""The passes before code is written, on random loop programs: each makes a program that verifies, and that computes the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counts import seeds
from generate_loops import clone, make_arguments, make_program
from pliant.interp.loop import run_loop
from pliant.loop.lowering import LOOP_PASSES, Machine
from pliant.loop.passes.outline_parallel import chunks
from pliant.loop.source_lowering import SOURCE_PASSES
from pliant.loop.stmt import Func
from pliant.loop.verify import verify

BATCH = 10


def run(func: Func, arguments: list[Any], dims: list[int]) -> list[bytes]:
    """The bytes of all arguments after interpreting the program on copies of them, every NaN made the same."""
    mine = [clone(a) for a in arguments]
    run_loop(func, mine, dims)
    arrays = [np.asarray(a) for a in mine]
    return [(a if a.dtype.kind in "biu" else np.where(np.isnan(a), np.array(np.nan, a.dtype), a)).tobytes() for a in arrays]


@pytest.mark.parametrize("first", seeds(100, 10_000, BATCH))
def test_every_pass_keeps_what_a_program_computes(first: int) -> None:
    for seed in range(first, first + BATCH):
        func = make_program(seed)
        arguments, dims = make_arguments(func, seed)
        expected = run(func, arguments, dims)
        for step in (*LOOP_PASSES, *SOURCE_PASSES):
            after = step.run(func, Machine())
            if after is not func:
                for changed in (*chunks(after), after):
                    verify(changed)
                assert run(after, arguments, dims) == expected, f"seed {seed}, {step.name} made of\n{func}\nthis:\n{after}"
            func = func if step.name == "outline_parallel" else after  # renderers of source text do without it
