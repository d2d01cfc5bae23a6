"""Mutated text of programs: refused at a place, or read as a program that verifies and prints as what is read back; nothing else."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest

import pliant
from counts import seeds
from generate_loops import make_program
from mutate_text import mutated
from pliant.loop.printer import print_func
from pliant.program import Program
from pliant.support.errors import Error, InternalError
from random_graphs import make_function

BATCH = 50
GOLDEN = Path(__file__).parent.parent / "golden"


@cache
def seed_texts() -> tuple[str, ...]:
    """What is mutated: hand-written programs, random loop programs, random graph functions."""
    written = [p.read_text() for p in sorted(GOLDEN.glob("loop_*.py")) + sorted(GOLDEN.glob("graph_*.py"))]
    loops = [print_func(make_program(seed)) for seed in range(30)]
    graphs = [str(Program.of(make_function(seed)[0])) for seed in range(30)]
    return (*written * 3, *loops, *graphs)


def check(seed: int) -> str:
    """What became of one mutated text: "read", "refused", or a description of what is wrong."""
    rng = random.Random(seed)
    text = mutated(rng.choice(seed_texts()), rng)
    try:
        program = pliant.parse(text, "mutated.py")
    except InternalError as error:
        return f"internal error: {error.what}"
    except Error as error:
        return (
            "refused" if error.where is not None or not text.strip() or "there is no function" in error.what else f"no place: {error.what}"
        )
    except RecursionError:
        return "recursion"
    except Exception as error:  # whatever it is, it is wrong
        return f"{type(error).__name__}: {error}"
    try:
        printed = str(program)
        again = pliant.parse(printed, "printed.py", program.named_constants)
        return "read" if str(again) == printed else "read back as another text"
    except Exception as error:
        return f"{type(error).__name__} when read back: {error}"


@pytest.mark.parametrize("first", seeds(250, 5000, BATCH))
def test_mutated_text_is_refused_or_right(first: int) -> None:
    found = {seed: check(seed) for seed in range(first, first + BATCH)}
    wrong = {seed: what for seed, what in found.items() if what not in ("read", "refused")}
    assert not wrong
