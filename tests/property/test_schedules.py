"""No accepted schedule changes a result beyond what it declares: random sequences of primitives, and the default rules.

Each program that comes out verifies, prints and parses back, replays, and equals its own interpretation bit for bit as native code, in
order and in shuffled order; and it equals the program that it was made from, for odd, prime, tiny and zero dims (`schedule_checks.py`).
The programs are random kernels (`generate_kernels.py`), loop programs (`generate_loops.py`), and the kernels that rules are made for.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import pytest

import schedule_moves
from counts import seeds
from generate_kernels import make_kernel
from generate_loops import make_program
from pliant.loop.stmt import Func
from pliant.schedule import Schedule
from rule_forms import Form
from schedule_checks import Case, Played, Ruled, RuledLoops, check_all
from schedule_kernels import KERNELS, kernel
from schedule_sketches import sketch

BATCH = 20
OPTIMIZED = 5  # one batch in so many is compiled at level 2
TARGETS = ["llvm:x86-64-v3", "llvm:x86-64-v4", "wasm+simd128", "llvm:x86-64-v2"]
NAMES = sorted(KERNELS)


def program(seed: int) -> Func:
    """A kernel of the list now and then, else a random one."""
    return kernel(NAMES[seed // 5 % len(NAMES)]) if seed % 5 == 0 else make_kernel(seed)


def check(cases: Sequence[Case], first: int) -> None:
    """Fails with everything that is wrong."""
    wrong = check_all(cases, level=2 if first // BATCH % OPTIMIZED == 0 else 0)
    assert not wrong, f"{len(wrong)} of {len(cases)} are wrong\n" + "\n\n".join(map(str, wrong))


@pytest.mark.parametrize("first", seeds(600, 100_000, BATCH))
def test_random_schedules_keep_the_meaning(first: int) -> None:
    check([Played(program(seed), seed) for seed in range(first, first + BATCH)], first)


@pytest.mark.parametrize("first", seeds(200, 10_000, BATCH))
def test_what_is_legal_is_accepted(first: int) -> None:
    check([sketch(seed) for seed in range(first, first + BATCH)], first)


def test_every_primitive_is_a_move() -> None:
    moves = "".join(map(inspect.getsource, schedule_moves.FAMILIES))
    methods = {name for name, value in vars(Schedule).items() if callable(value) and not name.startswith("_")}
    assert {name for name in methods if f"s.{name}" not in moves} == set()


@pytest.mark.parametrize("first", seeds(200, 20_000, BATCH))
def test_default_rules_keep_the_meaning(first: int) -> None:
    check([Ruled(make_kernel(seed), seed, TARGETS[seed % len(TARGETS)]) for seed in range(first, first + BATCH)], first)


@pytest.mark.parametrize("first", seeds(100, 10_000, BATCH))
def test_default_rules_keep_the_meaning_of_loop_programs(first: int) -> None:
    check([RuledLoops(make_program(seed), seed, TARGETS[seed % len(TARGETS)]) for seed in range(first, first + BATCH)], first)


@pytest.mark.parametrize("first", seeds(100, 5_000, BATCH))
def test_default_rules_take_the_forms_that_they_are_for(first: int) -> None:
    check([Form(seed) for seed in range(first, first + BATCH)], first)


@pytest.mark.parametrize("to", TARGETS)
def test_default_rules_on_the_kernels(to: str) -> None:
    check([Ruled(kernel(name), n, to) for n, name in enumerate(NAMES)], 0)
