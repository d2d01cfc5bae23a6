"""The persistent child that measures candidates: whatever they do, the next one is measured, and nothing wrong has a time."""

from __future__ import annotations

import platform

import numpy as np
import pytest

import pliant
from pliant import Out, Tensor, alloc, dim, f32, kernel
from pliant.runtime.package import Package
from pliant.schedule.decisions import Decisions
from pliant.target import target
from pliant.tune.kernel_code import compile_kernel
from pliant.tune.runner import Runner
from tuning_kernels import matmul

n = dim("n")
SETS = [[np.ones((rows, 16), np.float32), np.ones((16, 32), np.float32)] for rows in (3, 8)]


@kernel
def almost(a: Tensor[f32, n, 16], b: Tensor[f32, 16, 32], c: Out[f32, n, 32]) -> None:
    for i in range(n):
        for j in range(32):
            c[i, j] = a[i, 0] * 16.000001


@kernel(scheduled=True)  # as it stands, with its memory
def hungry(a: Tensor[f32, n, 16], b: Tensor[f32, 16, 32], c: Out[f32, n, 32]) -> None:
    t = alloc((n, 1000000, 32), f32)
    for k in range(1000000):
        for i in range(n):
            for j in range(32):
                t[i, k, j] = a[i, 0]
    for i in range(n):
        for j in range(32):
            c[i, j] = t[i, 999999 - j, j]


def compiled(**decisions: object) -> Package:
    return compile_kernel(matmul.func, target("native"), Decisions({f"c.{k}": v for k, v in decisions.items()}))


def with_code(word: bytes) -> Package:
    """The program with code that is this instruction over and over."""
    package = compiled()
    code = (word * (len(package.blob.code) // len(word) + 1))[: len(package.blob.code)]
    return package._replace(blob=package.blob._replace(code=code))


def test_both_are_timed_and_have_the_same_bits() -> None:
    with Runner() as runner:
        runner.arguments(SETS)
        trial = runner.measure([compiled(), compiled(tile=(2, 1))], 0.001)
    assert trial.status == "ok" and len(trial.times) == len(SETS) and all(len(of_set) == 2 for of_set in trial.times)
    assert all(r > 0 for r in (*trial.ratios, *trial.medians, *trial.seconds))


def test_a_wrong_result_has_no_time() -> None:
    expected = SETS[0][0] @ SETS[0][1]
    assert np.allclose(almost(*SETS[0]), expected) and not np.array_equal(almost(*SETS[0]), expected), "it is wrong in the last bits"
    with Runner() as runner:
        runner.arguments(SETS)
        trial = runner.measure([compiled(), pliant.compile(almost).package], 0.001)
    assert trial.status == "wrong" and trial.times == ()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the broken code is x86's")
def test_the_child_is_replaced_when_it_breaks() -> None:
    good = compiled()
    with Runner(timeout=1.0) as runner:
        runner.arguments(SETS)
        assert runner.measure([good, with_code(b"\x0f\x0b")], 0.001).status == "crashed"
        assert runner.measure([good, with_code(b"\xeb\xfe")], 0.001).status == "timeout"
        runner.timeout = 30.0
        assert runner.measure([good, good], 0.001).status == "ok"
        assert runner.count == 3


@pytest.mark.skipif(platform.system() != "Linux", reason="the limit of memory is one of Linux")
def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pliant.tune.runner.MEMORY", 1 << 30)  # the program wants 1 GB and more
    with Runner() as runner:
        runner.arguments([[np.ones((9, 16), np.float32), np.ones((16, 32), np.float32)]])
        trial = runner.measure([compiled(), pliant.compile(hungry).package], 0.001)
        assert trial.status in ("failed", "crashed") and trial.times == ()
        assert runner.measure([compiled(), compiled()], 0.001).status == "ok"
