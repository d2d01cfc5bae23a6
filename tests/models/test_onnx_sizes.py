"""One program of a convolutional model serves many sizes of images: nothing is compiled again, and memory stays where it was.

A small net always, PP-OCR's detector and recognizer at 300 sizes each with PLIANT_LONG=1.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from test_onnx_assets import MODELS, path_of

import pliant
from pliant.codegen.background_compile import BackgroundCompile

onnx = pytest.importorskip("onnx", reason="models are made with the package onnx")
GROWTH = 4 << 20  # bytes that the process may grow by: pages that the allocator keeps, far less than images of all sizes

SIZES = {  # the largest first; so many that no two are alike
    "det": [(3, 3, 320, 320), *((n, 3, 32 * (1 + k % 10), 32 * (1 + k // 10)) for n in (1, 2, 3) for k in range(100))],
    "rec": [(2, 3, 48, 330), *((1 + k % 2, 3, 48, 28 + k) for k in range(300))],
}


def model() -> bytes:
    """Two convolutions with a pool between them and a mean over the image, for any height and width."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[n, 3, h, w] x, float[16, 3, 3, 3] a, float[8, 16, 3, 3] b) => (float[n, 8, 1, 1] y) {
        c = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, a)
        r = Relu(c)
        p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
        d = Conv<pads = [1, 1, 1, 1]>(p, b)
        y = GlobalAveragePool(d)
    }"""
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in (("a", (16, 3, 3, 3)), ("b", (8, 16, 3, 3))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    kept = [i for i in proto.graph.input if i.name == "x"]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    return proto.SerializeToString()


def resident() -> int:
    """Bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def refuse(*_: object) -> None:
    raise AssertionError("something is compiled again")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_many_sizes_by_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    ort = pytest.importorskip("onnxruntime", reason="results are compared with onnxruntime")
    file = model()
    f, session = pliant.compile(pliant.from_onnx(file)), ort.InferenceSession(file)

    monkeypatch.setattr(BackgroundCompile, "__enter__", refuse)
    rng = np.random.default_rng(1)
    sizes = [(2, 3, 160, 160), *((1 + k % 2, 3, 17 + 2 * k, 150 - 3 * k) for k in range(40))]  # the largest first
    images = [rng.random(size, np.float32) for size in sizes]
    for image in images:
        np.testing.assert_allclose(f(image), session.run(None, {"x": image})[0], rtol=1e-4, atol=1e-5)
    before = resident()
    for image in images * 3:
        f(image)
    assert resident() - before < GROWTH


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
@pytest.mark.skipif(os.environ.get("PLIANT_LONG") != "1", reason="compiles whole models: set PLIANT_LONG=1")
@pytest.mark.parametrize("name", SIZES)
def test_300_sizes_of_a_real_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f = pliant.compile(pliant.from_onnx(path_of(*MODELS[name][:2])))
    monkeypatch.setattr(BackgroundCompile, "__enter__", refuse)
    largest = np.random.default_rng(1).random(SIZES[name][0], np.float32)

    def all_sizes() -> int:
        for n, c, h, w in SIZES[name]:
            found = f(np.ascontiguousarray(largest[:n, :c, :h, :w]))
            assert np.isfinite(found).all() and len(found) == n
        return resident()

    before = all_sizes()
    grown = all_sizes() - before
    print(f"{name}: {len(SIZES[name])} sizes, and then once more: {grown / 2**20:.1f} MiB")
    assert grown < GROWTH
