"""Measuring in a child process: whatever the program does, the parent gets a record."""

from __future__ import annotations

import platform

import numpy as np
import pytest

import pliant
from pliant import Out, Tensor, check, dim, f32, i64, kernel
from pliant.runtime.package import Package
from pliant.tune.measure import Measurement, measure

n = dim("n")


@kernel
def scaled(x: Tensor[f32, n], by: f32, y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[i] * by


@kernel
def refused(x: Tensor[f32, n], k: i64, y: Out[f32, n]) -> None:
    check(k < 3, "k is {0}", k)
    for i in range(n):
        y[i] = x[i]


def test_times_of_a_program() -> None:
    found = measure(pliant.compile(scaled), [np.ones(1000, np.float32), 2.0], seconds=0.02)
    assert found.status == "ok" and found.message == ""
    assert found.times and 0 < found.best <= found.median < 1


def test_an_error_of_the_program_is_told() -> None:
    found = measure(pliant.compile(refused), [np.ones(4, np.float32), 5], seconds=0.01)
    assert found.status == "failed" and "k is 5" in found.message and not found.times
    assert found.best == found.median == float("inf")
    found = measure(pliant.compile(scaled), [np.ones((2, 2), np.float32), 2.0], seconds=0.01)
    assert found.status == "failed" and "x" in found.message


def with_code(word: bytes) -> Package:
    """A program whose code is this instruction over and over."""
    package = pliant.compile(scaled).package
    code = (word * (len(package.blob.code) // len(word) + 1))[: len(package.blob.code)]
    return package._replace(blob=package.blob._replace(code=code))


x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the broken code is x86's")


@x86
def test_a_crash_is_told() -> None:
    found = measure(with_code(b"\x0f\x0b"), [np.ones(4, np.float32), 2.0], seconds=0.01)
    assert found.status == "crashed" and found.message


@x86
def test_a_hang_ends() -> None:
    found = measure(with_code(b"\xeb\xfe"), [np.ones(4, np.float32), 2.0], seconds=0.01, timeout=1.5)
    assert found == Measurement("timeout", message="it did not end within 1.5 s")
