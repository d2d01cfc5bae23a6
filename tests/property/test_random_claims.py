"""Kernels with random claims are refused at a line or right: they give what the same loops give in plain Python, however they run."""

from __future__ import annotations

import numpy as np
import pytest

import pliant
from counts import seeds
from generate_claims import Array, Case, make_arguments, make_block, make_loop
from pliant.interp.loop import run_loop
from pliant.program import Program
from pliant.support.errors import Error, InternalError

BATCH = 10


def parsed(case: Case) -> Program | None:
    """The program, None where it is refused at a line."""
    try:
        program = pliant.parse(case.text, "claims.py")
    except InternalError:
        raise
    except Error as error:
        assert error.where is not None and error.help, str(error)
        return None
    assert str(pliant.parse(str(program))) == str(program)
    return program


def same(case: Case, how: str, expected: list[Array], arguments: list[Array]) -> None:
    for name, a, b in zip("yw", expected, arguments[3:], strict=True):
        assert np.array_equal(a, b), f"{how}: `{name}` differs for\n{case.text}"


@pytest.mark.parametrize("first", seeds(300, 20_000, BATCH))
def test_a_block_is_refused_or_right(first: int) -> None:
    for seed in range(first, first + BATCH):
        case = make_block(seed)
        program = parsed(case)
        if program is None:
            continue
        native = pliant.compile(program, threads=2, cache=False)
        for k in range(2):
            arguments = make_arguments(2 * seed + k)
            expected = case.expected(arguments)
            for order in ("serial", "shuffled"):
                mine = [a.copy() for a in arguments]
                run_loop(program.kernels[0], mine, order=order, seed=seed)  # type: ignore[arg-type]
                same(case, f"interpreted, {order}", expected, mine)
            mine = [a.copy() for a in arguments]
            native(*mine)
            same(case, "native", expected, mine)


@pytest.mark.parametrize("first", seeds(100, 5_000, BATCH))
def test_a_concurrent_loop_is_refused_or_found_or_right(first: int) -> None:
    for seed in range(first, first + BATCH):
        case = make_loop(seed)
        program = parsed(case)
        if program is None:
            continue
        native = pliant.compile(program, threads=2, cache=False)
        checked = pliant.compile(program, checked=True, cache=False)
        for k in range(2):
            arguments = make_arguments(2 * seed + k)
            mine = [a.copy() for a in arguments]
            try:
                checked(*mine)
            except Error as error:
                assert "depend on each other" in error.what, str(error)
                continue
            expected = case.expected(arguments)
            same(case, "checked", expected, mine)
            mine = [a.copy() for a in arguments]
            native(*mine)
            same(case, "native", expected, mine)


def test_many_are_taken_and_many_are_not() -> None:
    taken = [parsed(make_block(seed)) is not None for seed in range(200)]
    assert 20 < sum(taken) < 180
