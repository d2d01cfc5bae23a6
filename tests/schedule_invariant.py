"""What holds of every schedule that its primitives let pass; asserted in one place for all tests.

    s = Schedule(kernel("matmul")); s.split(s.loops("c")[0], 4)
    check_schedule(kernel("matmul"), s, [{"n": 7}, {"n": 0}])

The program verifies, prints, parses back and compiles. Replay of its trace gives it again. Native code equals the interpreter bit for bit,
and so does the interpreter in shuffled order. All of them equal the program as it was before: bit for bit, or up to the error of
a sum in another order where the schedule declares one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from native_loops import Lifted, same_bits
from pliant.interp.loop import run_loop
from pliant.loop.parse import parse_module
from pliant.loop.printer import print_func
from pliant.loop.stmt import Func
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify
from pliant.lower.host.lift_workspace import lift_workspace
from pliant.schedule import Schedule, Trace
from pliant.support.errors import UnsupportedError
from schedule_kernels import make_arguments, pack, unpack

SIZES = (0, 1, 2, 3, 5, 7, 12, 13, 31)
Arrays = list[Any]


def check_schedule(func: Func, s: Schedule, sizes: Sequence[Mapping[str, int]] | None = None, *, seed: int = 0) -> None:
    """Fails, with the scheduled program's text, where a schedule of `func` breaks the invariant for some values of its dims."""
    check_text(func, s)
    native = compiled(s)
    for n, dims in enumerate(default_sizes(func) if sizes is None else sizes):
        check_values(func, s, native, dims, make_arguments(func, dims, seed + n), seed + n)


@dataclass(frozen=True)
class Compiled:
    """A scheduled program as native code; None where loops around its register buffers are still to be unrolled."""

    func: Func
    native: Lifted | None

    def run(self, arguments: Arrays, dims: Sequence[int]) -> bool:
        """Run it on arrays in place; False where there is no code."""
        if self.native is None:
            return False
        assert self.native.call(self.func, arguments, dims, threads=2) == 0
        return True


def compiled(s: Schedule) -> Compiled:
    """The program compiled as it stands."""
    func = s.func
    verify(lift_workspace(func)[0], claims=False)  # whose lifetimes are gone
    try:
        return Compiled(func, Lifted([func], level=0))
    except UnsupportedError as error:
        if not error.what.startswith("register buffer"):
            raise
        return Compiled(func, None)


def check_text(func: Func, s: Schedule) -> None:
    """The program verifies, prints and parses back; replay gives it again."""
    verify(s.func)
    text = print_func(s.program)
    back = parse_module(text)[s.program.name]
    assert_same(back, s.program)
    assert print_func(back) == text
    again = Trace.from_json(s.trace.to_json())
    assert str(again) == str(s.trace)
    assert_same(again.apply(func), s.program)


def check_values(func: Func, s: Schedule, native: Compiled, dims: Mapping[str, int], arguments: Arrays, seed: int = 0) -> None:
    """The program's results: interpreted in order, shuffled and native equal; and equal to those of `func`."""
    values = [dims[v.name] for v in s.program.symbols]  # layouts may change their order
    serial, shuffled, machine = (pack(s.program, arguments, values) for _ in range(3))
    run_loop(s.program, serial, values)
    run_loop(s.program, shuffled, values, order="shuffled", seed=seed)
    ran = native.run(machine, values)
    expected = [a.copy() for a in arguments]
    run_loop(func, expected, [dims[v.name] for v in func.symbols])
    found = unpack(s.program, serial, expected)
    shown = f"for {dict(dims)} in\n{print_func(s.program)}\n{s.trace}"
    for n, p in enumerate(func.params):
        assert same_bits(serial[n], shuffled[n]), f"`{p.value}` depends on the order {shown}"
        assert not ran or same_bits(serial[n], machine[n]), f"native code makes another `{p.value}` {shown}"
        assert _agrees(expected[n], found[n], s.rounding), f"`{p.value}` differs from what the program made before {shown}"


def _agrees(expected: Any, found: Any, rounding: Sequence[str]) -> bool:
    if not rounding or expected.dtype.kind != "f":
        return same_bits(expected, found)
    return bool(np.allclose(expected, found, rtol=1e-4, atol=1e-4, equal_nan=True))


def default_sizes(func: Func) -> list[dict[str, int]]:
    """Odd, prime, tiny and zero values of a program's dims, in many pairings."""
    steps = range(len(SIZES)) if func.symbols else range(1)
    return [{v.name: SIZES[(n * (m + 1) + m) % len(SIZES)] for m, v in enumerate(func.symbols)} for n in steps]
