"""Calls that leave compiled code: Python functions and symbols of shared libraries, inside of native programs."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, f64, function, i32, ops
from pliant.interp.graph import run_graph
from pliant.runtime.package import Package
from pliant.support.errors import Error, ShapeError

n = dim("n", max=4096)
m = dim("m", max=64)


def sorted_rows(x: Any) -> Any:
    return np.sort(x, axis=1)


@function
def sort_and_add(x: Tensor[f32, n, m], y: Tensor[f32, n, m]) -> Tensor[f32, n, m]:
    return ops.call_host(sorted_rows, [x * 2.0], out=Tensor[f32, n, m]) + y


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (0, 4), (3, 0)])
def test_a_python_function_is_called_from_native_code(shape: tuple[int, int]) -> None:
    x, y = random(*shape), random(*shape, seed=1)
    expected = np.sort(x * 2, axis=1) + y
    np.testing.assert_array_equal(sort_and_add(x, y), expected)
    np.testing.assert_array_equal(run_graph(sort_and_add.graph, [x, y])[0], expected)


def test_scalars_several_results_and_two_functions() -> None:
    def scaled(a: Any, x: Any, k: Any) -> Any:
        assert isinstance(a, np.float64)
        assert isinstance(k, np.int32)
        return (x * np.float32(a)), np.full(x.shape[:1], k, np.int32)

    def shifted(x: Any) -> Any:
        return x + np.float32(1)

    @function
    def f(x: Tensor[f32, n, m], a: f64, k: i32) -> tuple[Tensor[f32, n, m], Tensor[i32, n]]:
        y, z = ops.call_host(scaled, [a, x, k], out=(Tensor[f32, n, m], Tensor[i32, n]))
        return ops.call_host(shifted, [y], out=Tensor[f32, n, m]), z

    y, z = f(random(3, 4), 0.5, -7)
    np.testing.assert_array_equal(y, random(3, 4) * np.float32(0.5) + 1)
    np.testing.assert_array_equal(z, [-7, -7, -7])


def test_it_is_called_inside_of_branches() -> None:
    @function
    def f(x: Tensor[f32, n, m], b: bool) -> Tensor[f32, n, m]:
        if b:
            y = ops.call_host(sorted_rows, [x], out=Tensor[f32, n, m])
        else:
            y = x + 1.0
        return y * 2.0

    np.testing.assert_array_equal(f(random(3, 4), True), np.sort(random(3, 4), 1) * 2)
    np.testing.assert_array_equal(f(random(3, 4), False), (random(3, 4) + 1) * 2)


class Refused(Exception):
    """A user's own exception."""


def test_what_it_raises_comes_out_as_it_is() -> None:
    def refuse(x: Any) -> Any:
        raise Refused("not today")

    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return ops.call_host(refuse, [x + 1.0], out=Tensor[f32, n]) * 2.0

    for _ in range(2):
        with pytest.raises(Refused, match="not today"):
            f(random(3))


def test_a_result_that_is_not_what_was_said_is_an_error() -> None:
    def wrong(x: Any) -> Any:
        return x.astype(np.float64)

    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return ops.call_host(wrong, [x], out=Tensor[f32, n])

    with pytest.raises(ShapeError, match="result 0 of `wrong` is not what `out` says"):
        f(random(3))


def test_its_arguments_cannot_be_written() -> None:
    def writes(x: Any) -> Any:
        x[0] = 0
        return x

    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return ops.call_host(writes, [x], out=Tensor[f32, n])

    with pytest.raises(ValueError, match="read-only"):
        f(random(3))


def test_several_threads_call_at_once() -> None:
    f = pliant.compile(sort_and_add)
    found: dict[int, Any] = {}

    def work(seed: int) -> None:
        for _ in range(20):
            found[seed] = f(random(30, 8, seed=seed), random(30, 8))

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for seed, y in found.items():
        np.testing.assert_array_equal(y, np.sort(random(30, 8, seed=seed) * 2, 1) + random(30, 8))


def test_a_package_tells_which_function_it_needs() -> None:
    package = Package.from_bytes(pliant.compile(sort_and_add).package.to_bytes())
    assert [c.name for c in package.interface.calls] == ["sorted_rows"]
    with pytest.raises(Error, match="calls the Python function `sorted_rows`, which does not come with it"):
        package.interface.memory([])


SOURCE = r"""
#include <stdint.h>
#include <string.h>
int32_t halve(void *ctx, void **buffers, int64_t *dims) {
  const float *x = buffers[0]; float *y = buffers[1];
  for (int64_t i = 0; i < dims[0] * dims[1]; i++) y[i] = x[i] / 2;
  return 0;
}
int32_t scale(void *ctx, void **buffers, int64_t *dims) {
  const float *x = buffers[0]; float *y = buffers[1]; double a; memcpy(&a, dims + 2, 8);
  for (int64_t i = 0; i < dims[0]; i++) y[i] = x[i] * a;
  return dims[0] > 9 ? 77 : 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to make a library with")
    folder: Path = tmp_path_factory.mktemp("library")
    (folder / "x.c").write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / "libx.so"), str(folder / "x.c")], check=True)
    return str(folder / "libx.so")


def test_a_symbol_of_a_library_is_called(library: str) -> None:
    halve, scale = f"{library}:halve", f"{library}:scale"

    @function
    def f(x: Tensor[f32, n, m]) -> Tensor[f32, n, m]:
        return ops.call_library(halve, [x + 1.0], out=Tensor[f32, n, m]) * 3.0

    @function
    def h(x: Tensor[f32, n], a: f64) -> Tensor[f32, n]:
        return ops.call_library(scale, [x, a], out=Tensor[f32, n])

    np.testing.assert_array_equal(f(random(3, 5)), (random(3, 5) + 1) / 2 * 3)
    np.testing.assert_array_equal(h(random(5), 0.25), random(5) * np.float32(0.25))
    with pytest.raises(Error, match="the function `scale` answered code 77"):
        h(random(10), 0.25)


def test_what_is_not_there_is_named(library: str) -> None:
    missing, nowhere = f"{library}:nothing", "/no/such/lib.so:f"

    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return ops.call_library(missing, [x], out=Tensor[f32, n])

    @function
    def g(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return ops.call_library(nowhere, [x], out=Tensor[f32, n])

    with pytest.raises(Error, match="has no symbol `nothing`"):
        f(random(3))
    with pytest.raises(Error, match=r"library `/no/such/lib\.so` cannot be loaded"):
        g(random(3))


def test_two_functions_of_one_name_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the code cache tells whether a function is called twice, or two functions of one name once each."""
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path))

    def times(factor: float) -> Any:
        def helper(x: np.ndarray) -> np.ndarray:
            return x * np.float32(factor)

        return helper

    def two(first: Any, second: Any) -> Any:
        @function
        def both(x: Tensor[f32, n]) -> tuple[Tensor[f32, n], Tensor[f32, n]]:
            return ops.call_host(first, [x], out=Tensor[f32, n]), ops.call_host(second, [x], out=Tensor[f32, n])

        return pliant.compile(both)

    a, b, x = times(2), times(3), np.ones(2, np.float32)
    assert [y[0] for y in two(a, a)(x)] == [2, 2]
    assert [y[0] for y in two(a, b)(x)] == [2, 3]
