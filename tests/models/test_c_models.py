"""Whole programs as C: one source file and a header, whose results are the bits of the same scheduled program through LLVM."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decoder_layer as example
import pliant
from c_programs import Model, c_source, compiler
from pliant import InOut, State, Tensor, dim, f32, function, i64, kernel, ops
from pliant.api import program_of
from pliant.interp.graph import run_graph
from pliant.target import target

n, u = dim("n", max=64), dim("u")
RNG = np.random.default_rng(3)
W1, W2 = (RNG.standard_normal(shape).astype(np.float32) for shape in ((24, 40), (40, 10)))
MEANS = RNG.standard_normal(40).astype(np.float32)


def random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@function
def mlp(x: Tensor[f32, n, 24], scale: f32) -> Tensor[f32, n, 10]:
    return ops.softmax(ops.gelu(x @ W1 + MEANS) @ W2 * scale)


@kernel
def add_to(x: Tensor[f32, n], total: InOut[f32, n]) -> None:
    for i in range(n):
        total[i] = total[i] * 0.5 + x[i]


@function
def stream(x: Tensor[f32, n], total: State[f32, n], times: i64) -> tuple[State[f32, n], Tensor[f32, n], i64]:
    y = x
    k = 0
    while k < times:
        y = ops.tanh(y + 1.0)
        total = add_to(y, total)
        k += 1
    if ops.max(y) > 0.5:
        y = y * 2.0
    return total, y, k


@function
def places(x: Tensor[f32, n]) -> tuple[Tensor[i64, u, 1], Tensor[f32, u]]:
    rows = ops.nonzero(x > 0.0, count=u)
    return rows, ops.exp(ops.take(x, ops.reshape(rows, (u,))))


@pytest.fixture(scope="module")
def small() -> Model:
    return Model(mlp)


@pytest.mark.parametrize("inside", [True, False], ids=["weights in the source", "weights in a file"])
def test_an_mlp(inside: bool) -> None:
    """With a scalar argument; close to what numpy's arithmetic gives, and equal to LLVM's code."""
    model = Model(mlp, inside=inside)
    assert set(model.files) == {"model.c", "model.h", *(() if inside else ("model.bin",))}
    for rows in (1, 7, 64):
        (y,) = model.compare({"x": random(rows, 24), "scale": 0.25})
        (wanted,) = run_graph(mlp.graph, [random(rows, 24), 0.25])
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


def test_a_cpu_with_fma_is_scheduled_with_it() -> None:
    """The software fma of the source rounds once, wherever it is built."""
    model = Model(mlp, "c:cortex-m7")
    assert b"pl_fma_f32" in model.files["model.c"]
    model.compare({"x": random(9, 24), "scale": 0.25})


def test_state_is_updated_in_place() -> None:
    model = Model(stream)
    total = random(9)
    for step in range(3):
        arguments = {"x": random(9) + step, "total": np.array(total), "times": step}
        model.compare(arguments)
        expected = [np.array(a) if isinstance(a, np.ndarray) else a for a in arguments.values()]
        run_graph(stream.graph, expected)
        native = {k: np.array(a) if isinstance(a, np.ndarray) else a for k, a in arguments.items()}
        model.native.run(native)
        np.testing.assert_allclose(native["total"], expected[1], rtol=1e-5)
        total = native["total"]


def test_sizes_that_only_a_run_tells_are_written_to_a_pointer() -> None:
    model = Model(places)
    assert "int64_t *count_u" in model.files["model.h"].decode()
    x = random(40)
    rows, values, count = np.full((40, 1), -7, np.int64), np.full(40, -7, np.float32), np.zeros(1, np.int64)
    assert model.run({"x": x}, [rows, values, count], {"n": 40}) == 0
    wanted_rows, wanted_values = model.native(x)
    np.testing.assert_array_equal(rows[: count[0], 0], np.flatnonzero(x > 0))
    np.testing.assert_array_equal(rows[: count[0]], wanted_rows)
    np.testing.assert_array_equal(values[: count[0]], wanted_values)


def test_a_convolutional_net_from_onnx() -> None:
    onnx = pytest.importorskip("onnx", reason="reads an ONNX model")
    graph = """g (float[b, 1, 12, 12] x) => (float[b, 10] y) {
        a = Conv<pads=[1,1,1,1]>(x, w1, b1)
        r = Relu(a)
        p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
        d = Conv<pads=[1,1,1,1], group=8>(p, w2, b2)
        c = Clip(d, zero, six)
        e = Conv<strides=[2,2]>(c, w3, b3)
        g = GlobalAveragePool(e)
        f = Flatten(g)
        m = Gemm<transB=1>(f, w4, b4)
        y = Softmax<axis=-1>(m)
    }"""
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + graph)
    shapes = {"w1": (8, 1, 3, 3), "b1": (8,), "w2": (8, 1, 3, 3), "b2": (8,), "w3": (16, 8, 3, 3), "b3": (16,), "w4": (10, 16), "b4": (10,)}
    weights = {name: random(*shape) for name, shape in shapes.items()} | {"zero": np.float32(0), "six": np.float32(6)}
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    program = pliant.from_onnx(model)
    net = Model(program)
    for batch in (1, 3):
        (y,) = net.compare({"x": random(batch, 1, 12, 12)})
        (wanted,) = run_graph(program.entry, [random(batch, 1, 12, 12)])
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-6)


def test_the_decoder_layer() -> None:
    weights = example.random_weights()
    cache = example.Cache(pages=4, slots=2, sequences=2)
    x = np.random.default_rng(5).standard_normal((22, example.WIDTH)).astype(np.float32)
    arguments = {"x": x, **cache.step({0: 18, 1: 4}), **weights, "keys": cache.keys, "values": cache.values}
    Model(example.decoder_layer).compare(arguments)


def test_what_the_header_promises(small: Model) -> None:
    """The arena's size is the plan's; too small, not aligned, or dims outside of the contract: a status with a sentence."""
    assert small.arena_bytes(n=5) == small.native.workspace(n=5)
    assert f"#define MODEL_ARENA_BYTES {small.native.workspace(n=64)} " in small.files["model.h"].decode()
    x, y = random(5, 24), np.zeros((5, 10), np.float32)
    assert small.run({"x": x, "scale": 1.0}, [y], {"n": 5}, arena=small.arena_bytes(n=5) - 1) == 3
    assert small.status_text(3) == "the arena is too small"
    for status in (small.run({"x": x, "scale": 1.0}, [y], {"n": 65}, arena=0), -small.arena_bytes(n=65)):
        assert status >= 16
        assert small.status_text(status) == "`n` is outside its contract: n in 0..64"
    assert small.status_text(0) == "ok"


def test_the_header_is_c_plus_plus_too(small: Model, tmp_path: Path) -> None:
    found = shutil.which("c++") or shutil.which("g++")
    if not found:
        pytest.skip("there is no C++ compiler on this machine")
    (tmp_path / "model.h").write_bytes(small.files["model.h"])
    (tmp_path / "use.cpp").write_text('#include "model.h"\nint main() { return model_status_text(MODEL_OK)[0] != 111; }\n')
    (tmp_path / "model.c").write_bytes(small.files["model.c"])
    subprocess.run([compiler(), "-std=c99", "-c", "model.c"], cwd=tmp_path, check=True)
    subprocess.run([found, "-Wall", "-Wextra", "-Werror", "use.cpp", "model.o", "-o", "use"], cwd=tmp_path, check=True)
    subprocess.run([str(tmp_path / "use")], check=True)


def test_a_c_program_that_was_exported(tmp_path: Path) -> None:
    """As docs/c.md says it: the arena is a static array, sized by the macro of the header."""
    files = pliant.export(mlp, "c", tmp_path, name="net")
    assert sorted(f.name for f in files) == ["net.c", "net.h"]
    x = random(64, 24)
    (tmp_path / "x.bin").write_bytes(x.tobytes())
    (tmp_path / "main.c").write_text(
        """#include "net.h"
#include <stdio.h>
static float x[64 * 24], y[64 * 10];
static uint64_t arena[(NET_ARENA_BYTES + 7) / 8 + 1];
int main(void) {
  FILE *file = fopen("x.bin", "rb");
  size_t got = fread(x, sizeof(float), 64 * 24, file);
  int32_t status = net(x, 0.25f, y, 64, arena, sizeof arena);
  file = fopen("y.bin", "wb");
  fwrite(y, sizeof(float), 64 * 10, file);
  fclose(file);
  return got == 64 * 24 ? (int)status : 99;
}
"""
    )
    flags = ["-std=c99", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler(), *flags, "main.c", "net.c", "-o", "net"], cwd=tmp_path, check=True)
    subprocess.run([str(tmp_path / "net")], cwd=tmp_path, check=True)
    y = np.frombuffer((tmp_path / "y.bin").read_bytes(), np.float32).reshape(64, 10)
    np.testing.assert_allclose(y, run_graph(mlp.graph, [x, 0.25])[0], rtol=1e-5, atol=1e-6)


@function
def named(size: Tensor[f32, n], run: Tensor[f32, n], dims: f32, arena: f32) -> Tensor[f32, n]:
    return size * dims + run * arena


def test_arguments_may_be_called_as_anything() -> None:
    Model(named).compare({"size": random(5), "run": random(5) + 1, "dims": 0.5, "arena": 3.0})


@pytest.mark.parametrize("name", ["main", "run", "double", "f_x", "1st", "größe"])
def test_any_name_will_do(name: str, tmp_path: Path) -> None:
    files = c_source(program_of(stream), target("c"), name)
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    source = next(file for file in files if file.endswith(".c"))
    subprocess.run([compiler(), "-std=c99", "-Wall", "-Wextra", "-Werror", "-c", source, "-o", "x.o"], cwd=tmp_path, check=True)


def test_files_are_the_same_each_time() -> None:
    once, again = (c_source(program_of(mlp), target("c"), "mlp") for _ in range(2))
    assert once == again
