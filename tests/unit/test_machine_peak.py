"""The programs that measure the machine do the work that their rates count."""

from __future__ import annotations

import numpy as np
import pytest

from pliant import compile, machine_peak
from pliant.interp.loop import run_loop
from pliant.loop.stmt import Func
from pliant.machine_peak import best_time, multiply_add, read_all
from pliant.target import target

TARGETS = ["native", "llvm:x86-64", "llvm:x86-64-v3", "llvm:skylake-avx512", "llvm:cortex-a76"]


def extents(func: Func, buffer: int) -> tuple[int, ...]:
    """The constant extents of a parameter."""
    return tuple(int(str(n)) for n in func.buffers[buffer].shape if str(n).isdecimal())


@pytest.mark.parametrize("name", TARGETS)
def test_multiply_add(name: str) -> None:
    machine = target(name)
    func = multiply_add(machine).func
    accumulators, lanes = extents(func, 1)
    assert lanes * 32 == machine.vector_bits and accumulators + 2 < machine.n_vector_registers  # nothing goes to memory
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 8, (3, 2, lanes)).astype(np.float32)  # small integers: exact, fused or not
    y = np.empty((3, accumulators, lanes), np.float32)
    run_loop(func, [x, y, 5])
    expected = np.broadcast_to((5 * x[:, 0] * x[:, 1])[:, None], y.shape)
    np.testing.assert_array_equal(y, expected)
    if name == "native":
        np.testing.assert_array_equal(compile(func, threads=2)(x, 5), expected)


@pytest.mark.parametrize("name", TARGETS)
def test_read_all(name: str) -> None:
    func = read_all(target(name)).func
    accumulators, lanes = extents(func, 1)
    x = np.random.default_rng(0).integers(-8, 8, (3, 5, accumulators, lanes)).astype(np.float32)
    y = np.empty((3, accumulators, lanes), np.float32)
    run_loop(func, [x, y])
    np.testing.assert_array_equal(y, x.sum(axis=1))
    if name == "native":
        np.testing.assert_array_equal(compile(func, threads=2)(x), x.sum(axis=1))


def test_best_time_runs_at_least_three_times() -> None:
    calls: list[int] = []
    assert best_time(lambda: calls.append(1), 0.0) >= 0.0
    assert len(calls) == 3


def test_a_part_that_a_cache_holds_is_not_the_memorys_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, now = np.ones((8, 2, 1, 1, 16), np.float32), [0.0]

    def read(part: np.ndarray, out: np.ndarray) -> None:
        now[0] += 0.1 if np.shares_memory(part, held) else 2.0 if now[0] == 0.0 else 1.0

    held = parts[3]
    monkeypatch.setattr(machine_peak, "_large_buffer", lambda: parts)
    monkeypatch.setattr(machine_peak, "compile", lambda program, threads: read)
    monkeypatch.setattr(machine_peak.time, "perf_counter", lambda: now[0])
    assert machine_peak.read_bandwidth(2, seconds=30.0) == pytest.approx(parts[0].nbytes / 1.0)
