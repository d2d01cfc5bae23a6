"""Machine code in pieces: the same bytes every time, calls between pieces, failures and interruptions of the thread."""

from __future__ import annotations

import sys
import threading
import time
from queue import SimpleQueue

import numpy as np
import pytest

import pliant
from pliant import Out, Tensor, dim, dtype, f32, function, kernel, ops
from pliant.api import program_of
from pliant.codegen import background_compile
from pliant.codegen.background_compile import BackgroundCompile
from pliant.graph.builder import Builder
from pliant.graph.node import Tensor as GraphTensor
from pliant.lower.callee import func_of
from pliant.pipeline import compile_as_far_as
from pliant.runtime.package import Package
from pliant.support.errors import InternalError
from pliant.sym.expr import Dim, const
from pliant.target import target

n = dim("n")


@kernel
def double(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[i] * 2.0


@kernel
def more(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[i] + 1.0


@kernel
def first(x: Tensor[f32, n], y: Out[f32, 1]) -> None:
    y[0] = 0.0
    for i in range(n):
        y[0] += x[i]


@function
def chain(x: Tensor[f32, n]) -> Tensor[f32, 1]:
    return first(more(double(x)))


def package() -> Package:
    found = compile_as_far_as("emit", program_of(chain), target("native")).package
    assert found is not None
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel is a piece of its own."""
    monkeypatch.setattr(background_compile, "_PIECE", 1)
    monkeypatch.setenv("PLIANT_DISABLE", "fuse")


def test_the_same_bytes_every_time(small: None) -> None:
    assert package().to_bytes() == package().to_bytes()


def test_pieces_call_each_other(small: None) -> None:
    f = pliant.compile(chain, cache=False)
    x = np.arange(9, dtype=np.float32)
    np.testing.assert_array_equal(f(x), [np.sum(x * 2 + 1)])


def test_nothing_is_left_running(small: None) -> None:
    package()
    assert not [t for t in threading.enumerate() if t.name == "pliant-llvm"]


def test_pythons_threads_are_left_as_they_were(small: None) -> None:
    before = sys.getswitchinterval()
    package()
    assert sys.getswitchinterval() == before


def test_a_failure_of_llvm_is_told(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str, *rest: object) -> bytes:
        raise InternalError("LLVM refuses the generated code")

    monkeypatch.setattr(background_compile, "emit_object", refuse)
    with pytest.raises(InternalError, match="LLVM refuses"):
        package()


def test_the_thread_may_be_done_before_the_compiler_goes_on(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    want = package().to_bytes()

    class Slow(SimpleQueue[object]):
        def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
            super().put(item, block, timeout)
            time.sleep(0.1)  # the thread compiles a piece meanwhile

    monkeypatch.setattr(background_compile, "SimpleQueue", Slow)
    assert package().to_bytes() == want


def test_an_error_elsewhere_stops_the_thread(small: None) -> None:
    scheduled = compile_as_far_as("schedule", program_of(chain), target("native")).function
    with pytest.raises(KeyboardInterrupt), BackgroundCompile(target("native")) as made:
        for node in scheduled.nodes:
            made.kernel(func_of(node.callee))  # type: ignore[attr-defined]
        raise KeyboardInterrupt
    assert not [t for t in threading.enumerate() if t.name == "pliant-llvm"]


@pytest.mark.parametrize("machine", ["llvm:x86-64-v3", "llvm:cortex-a76", "riscv64", "wasm"])
def test_pieces_for_other_machines(small: None, machine: str) -> None:
    found = compile_as_far_as("emit", program_of(chain), target(machine)).package
    assert found is not None
    assert set(found.blob.exports) >= {"prepare", "size", "run"}


def test_a_long_host_program_is_right_and_compiles_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    """Its code is made without LLVM's passes; nobody, LLVM neither, writes to the user's terminal."""
    builder = Builder("deep")
    x = y = builder.param("x", GraphTensor(dtype.f32, (Dim("n"), const(24))))
    weight = np.eye(24, dtype=np.float32)[::-1].copy()
    with builder:
        for _ in range(150):
            y = ops.softmax(ops.matmul(y, ops.constant(weight)))
    compiled = pliant.compile(builder.finish([y]), cache=False)
    value = np.random.default_rng(0).standard_normal((5, 24)).astype(np.float32)
    result = compiled(value)
    expected = value.astype(np.float64)
    for _ in range(150):
        expected = np.exp(expected[:, ::-1] - expected.max(axis=1, keepdims=True))
        expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert x is not y and capfd.readouterr() == ("", "")
