"""Random loop programs mean the same everywhere: interpreted one at a time, as lanes, in shuffled order, printed and parsed
back, and as native code on one thread and two. Bit for bit; only the payload of a NaN is free.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counts import seeds
from generate_loops import clone, make_arguments, make_program
from native_loops import Lifted
from pliant.interp.loop import run_loop
from pliant.loop.parse import parse_module
from pliant.loop.printer import print_func
from pliant.loop.stmt import Func
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify

BATCH = 25
ROUNDS = 2  # sets of dims and arguments for each program
OPTIMIZED = 5  # one batch in so many is compiled at level 2


def run(func: Func, arguments: list[Any], dims: list[int], **options: Any) -> list[bytes]:
    """The bytes of all arguments after interpreting the program on copies of them."""
    mine = [clone(a) for a in arguments]
    run_loop(func, mine, dims, **options)
    return [canonical(a) for a in mine]


def canonical(a: Any) -> bytes:
    """The bytes of an array, every NaN made the same."""
    a = np.asarray(a)
    if a.dtype.kind in "biu":
        return bytes(a.tobytes())
    return bytes(np.where(np.isnan(a), np.array(np.nan, a.dtype), a).tobytes())


def compare(func: Func, what: str, expected: list[bytes], found: list[bytes], seed: int) -> None:
    """Fails with the program's text when an argument differs."""
    for p, a, b in zip(func.params, expected, found, strict=True):
        assert a == b, f"{what}: `{p.value}` differs for arguments {seed} of\n{print_func(func)}"


@pytest.mark.parametrize("first", seeds(300, 50_000, BATCH))
def test_a_program_means_the_same_everywhere(first: int) -> None:
    funcs = [make_program(seed) for seed in range(first, first + BATCH)]
    native = Lifted(funcs, level=2 if first // BATCH % OPTIMIZED == 0 else 0)
    for n, func in enumerate(funcs):
        verify(func)
        again = parse_module(print_func(func))[func.name]
        assert_same(func, again)
        for seed in range((first + n) * ROUNDS, (first + n + 1) * ROUNDS):
            arguments, dims = make_arguments(func, seed)
            expected = run(func, arguments, dims)
            if seed % ROUNDS == 0:  # these are slow, and native code is compared on every round
                compare(func, "one at a time", expected, run(func, arguments, dims, lanes=False), seed)
                compare(func, "shuffled", expected, run(again, arguments, dims, order="shuffled", seed=seed), seed)
            for threads in (1, 2):
                mine = [clone(a) for a in arguments]
                assert native.call(func, mine, dims, threads) == 0
                compare(func, f"native, {threads} threads", expected, [canonical(a) for a in mine], seed)
