"""Patterns of users: where they are found and where not, and that the library is called with the right tensors."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, ops
from pliant.api import program_of
from pliant.graph import node as g
from pliant.graph.passes.call_libraries import call_libraries
from pliant.graph.patterns import Pattern
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from pliant.pipeline import compile_as_far_as
from pliant.support.errors import Error
from pliant.sym.expr import Const, const
from pliant.target import target

n = dim("n", max=64)
k = dim("k", max=64)
m = dim("m", max=64)


@function
def relu_matmul(x: Tensor[f32, n, k], w: Tensor[f32, k, m]) -> Tensor[f32, n, m]:
    return ops.relu(x @ w)


@function
def scaled(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 4]:
    return x * 0.5 + x


def reference(x: Any, w: Any, y: Any) -> None:
    y[...] = np.maximum(x @ w, 0)


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)


def calls(f: Any, *patterns: Any, when: Any = None) -> tuple[g.Function, list[g.CallLibrary]]:
    verify(f.graph)
    after = call_libraries(f.graph, [Pattern(p.graph, f"lib:{p.graph.name}", when) for p in patterns])
    verify(after)
    return after, [x for x in g.walk_nodes(after.nodes) if isinstance(x, g.CallLibrary)]


def test_a_part_becomes_a_call() -> None:
    @function
    def f(a: Tensor[f32, n, n], b: Tensor[f32, n, 3]) -> Tensor[f32, n, 3]:
        y = ops.relu(ops.relu(a @ a) @ b)
        return ops.exp(y)

    after, found = calls(f, relu_matmul)
    assert [(c.symbol, [v.tensor.shape for v in c.args]) for c in found] == [
        ("lib:relu_matmul", [(n, n), (n, n)]),
        ("lib:relu_matmul", [(n, n), (n, const(3))]),
    ]
    a, b = random(5, 5), random(5, 3, seed=1)
    (y,) = run_graph(after, [a, b], libraries={"lib:relu_matmul": reference})
    np.testing.assert_allclose(y, run_graph(f.graph, [a, b])[0], rtol=1e-5)


def test_numbers_of_the_pattern_must_be_those() -> None:
    @function
    def f(x: Tensor[f32, n, 4], y: Tensor[f32, n, 5]) -> tuple[Tensor[f32, n, 4], Tensor[f32, n, 5], Tensor[f32, n, 4]]:
        return x * 0.5 + x, y * 0.5 + y, x * 0.25 + x

    assert len(calls(f, scaled)[1]) == 1


def test_other_readers_and_other_operands_keep_it() -> None:
    @function
    def f(
        x: Tensor[f32, n, 4], z: Tensor[f32, n, 4], w: Tensor[f32, 4, m]
    ) -> tuple[Tensor[f32, n, 4], Tensor[f32, n, m], Tensor[f32, n, m]]:
        y = x @ w
        return x * 0.5 + z, ops.relu(y), y

    assert not calls(f, scaled, relu_matmul)[1]


def test_a_condition_on_dims_decides() -> None:
    @function
    def f(x: Tensor[f32, n, 8], w: Tensor[f32, 8, 16], u: Tensor[f32, 16, 3]) -> Tensor[f32, n, 3]:
        return ops.relu(ops.relu(x @ w) @ u)

    def wide(dims: dict[str, Any]) -> bool:
        return isinstance(dims["m"], Const) and dims["m"].value >= 16

    assert [c.args[1].name for c in calls(f, relu_matmul, when=wide)[1]] == ["w"]


def test_inside_of_branches_too() -> None:
    @function
    def f(x: Tensor[f32, n, n], b: bool) -> Tensor[f32, n, n]:
        if b:
            y = ops.relu(x @ x)
        else:
            y = ops.relu(x)
        return y

    assert len(calls(f, relu_matmul)[1]) == 1


def test_what_is_no_pattern_is_refused() -> None:
    @function
    def nothing(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return x

    for wrong in (nothing, 3):
        with pytest.raises(Error, match="register_library"):
            pliant.register_library(wrong, "lib:f")


SOURCE = r"""
#include <stdint.h>
int32_t relu_matmul(void *ctx, void **buffers, int64_t *dims) {
  const float *x = buffers[0], *w = buffers[1]; float *y = buffers[2];
  int64_t n = dims[0], k = dims[1], m = dims[3];
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < m; j++) {
      float t = 0;
      for (int64_t l = 0; l < k; l++) t += x[i * k + l] * w[l * m + j];
      y[i * m + j] = t > 0 ? t : 0;
    }
  return 0;
}
"""


@pytest.fixture
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to make a library with")
    folder = tmp_path_factory.mktemp("patterns")
    (folder / "x.c").write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / "libx.so"), str(folder / "x.c")], check=True)
    pattern = pliant.register_library(relu_matmul, f"{folder / 'libx.so'}:relu_matmul")
    yield
    pliant.unregister_library(pattern)


def test_compiled_programs_call_the_library(registered: None) -> None:
    @function
    def f(x: Tensor[f32, n, 6], w: Tensor[f32, 6, m]) -> Tensor[f32, n, m]:
        return ops.relu(x @ w) * 2.0

    x, w = random(3, 6), random(6, 5, seed=1)
    found = pliant.compile(f)
    assert [c.name for c in found.interface.calls] == ["relu_matmul"]
    np.testing.assert_allclose(found(x, w), np.maximum(x @ w, 0) * 2, rtol=1e-5)


@function
def affine(x: Tensor[f32, n, k], w: Tensor[f32, k, m], b: Tensor[f32, m]) -> Tensor[f32, n, m]:
    return x @ w + b


@function
def layer(x: Tensor[f32, n, k], w: Tensor[f32, m, k], b: Tensor[f32, m]) -> Tensor[f32, n, m]:
    return ops.relu(ops.linear(x, w, b))


def test_operands_in_either_order() -> None:
    @function
    def f(x: Tensor[f32, n, 4], w: Tensor[f32, 4, 3], b: Tensor[f32, 3]) -> Tensor[f32, n, 3]:
        return b + x @ w

    @function
    def differs(x: Tensor[f32, n, 4], w: Tensor[f32, 4, 3], b: Tensor[f32, 3]) -> Tensor[f32, n, 3]:
        return b - x @ w

    _, found = calls(f, affine)
    assert [[v.name for v in c.args] for c in found] == [["x", "w", "b"]]
    assert not calls(differs, affine)[1]

    @function
    def twice(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 4]:
        return x + 0.5 * x

    assert [c.symbol for c in calls(twice, scaled)[1]] == ["lib:scaled"]


def linear_relu(x: Any, w: Any, b: Any, y: Any) -> None:
    y[...] = np.maximum(x @ w.T + b, 0)


def test_linear_as_it_is_written() -> None:
    @function
    def written(x: Tensor[f32, n, 4], w: Tensor[f32, 3, 4], b: Tensor[f32, 3]) -> Tensor[f32, n, 3]:
        return ops.relu(x @ ops.permute(w, [1, 0]) + b)

    @function
    def turned(x: Tensor[f32, n, 4], w: Tensor[f32, 3, 4], b: Tensor[f32, 3]) -> Tensor[f32, n, 3]:
        return ops.relu(b + x @ ops.permute(w, [1, 0]))

    @function
    def by_matmul(x: Tensor[f32, n, 4], w: Tensor[f32, 3, 4], b: Tensor[f32, 3]) -> Tensor[f32, n, 3]:
        return ops.relu(ops.matmul(x, w, transpose_b=True) + b)

    @function
    def named(x: Tensor[f32, n, 4], w: Tensor[f32, 3, 4], b: Tensor[f32, 3]) -> Tensor[f32, n, 3]:
        return ops.relu(ops.linear(x, w, b))

    @function
    def read_twice(x: Tensor[f32, n, 4], w: Tensor[f32, 3, 4], b: Tensor[f32, 3]) -> Tensor[f32, n, 3]:
        y = x @ ops.permute(w, [1, 0])
        return ops.relu(y + b) + y

    for f in (written, turned, by_matmul, named):
        after, found = calls(f, layer)
        assert [[v.name for v in c.args] for c in found] == [["x", "w", "b"]], f
        assert [type(x) for x in after.nodes] == [g.CallLibrary]
        args = [random(2, 4), random(3, 4, seed=1), random(3, seed=2)]

        (result,) = run_graph(after, args, libraries={"lib:layer": linear_relu})
        np.testing.assert_allclose(result, f(*args), rtol=1e-5, atol=1e-6)
    assert not calls(read_twice, layer)[1]


def test_linear_by_a_matrix_as_it_is() -> None:
    """The library gets the transpose of the matrix, which is computed before the call."""

    @function
    def written(x: Tensor[f32, n, 4], w: Tensor[f32, 4, 3], b: Tensor[f32, 3]) -> Tensor[f32, n, 3]:
        return ops.relu(x @ w + b)

    @function
    def twice(x: Tensor[f32, n, 4], w: Tensor[f32, 4, 4], b: Tensor[f32, 4]) -> Tensor[f32, n, 4]:
        y = ops.relu(b + x @ w)
        return ops.relu(y @ w + b)

    @function
    def of_batches(x: Tensor[f32, n, 2, 4], w: Tensor[f32, 4, 3], b: Tensor[f32, 3]) -> Tensor[f32, n, 2, 3]:
        return ops.relu(x @ w + b)

    for f, out, count in ((written, 3, 1), (twice, 4, 2)):
        after, found = calls(f, layer)
        assert len(found) == count
        assert all([v.tensor.shape for v in c.args[1:]] == [(const(out), const(4)), (const(out),)] for c in found)
        args = [random(2, 4), random(4, out, seed=1), random(out, seed=2)]
        (result,) = run_graph(after, args, libraries={"lib:layer": linear_relu})
        np.testing.assert_allclose(result, f(*args), rtol=1e-5, atol=1e-6)
    assert not calls(of_batches, layer)[1]


def test_a_literal_is_not_transposed_in_each_run() -> None:
    w, b = random(4, 3), random(3, seed=1)

    @function
    def written(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 3]:
        return ops.relu(x @ ops.constant(w) + ops.constant(b))

    pattern = pliant.register_library(layer, "libfast.so:layer")
    try:
        state = compile_as_far_as("lift_constants", program_of(written), target("native"))
    finally:
        pliant.unregister_library(pattern)
    assert [type(x) for x in state.function.nodes if not isinstance(x, g.Const)] == [g.CallLibrary]
