"""One program of a convolutional model serves many sizes of images: nothing is compiled again, and memory stays where it was."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import pliant
from pliant.codegen.pieces import Pieces

onnx = pytest.importorskip("onnx", reason="models are made with the package onnx")
GROWTH = 4 << 20  # bytes that the process may grow by: pages that the allocator keeps, far less than images of all sizes


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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_many_sizes_by_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    ort = pytest.importorskip("onnxruntime", reason="results are compared with onnxruntime")
    file = model()
    f, session = pliant.compile(pliant.from_onnx(file)), ort.InferenceSession(file)

    def refuse(*_: object) -> None:
        raise AssertionError("something is compiled again")

    monkeypatch.setattr(Pieces, "__enter__", refuse)
    rng = np.random.default_rng(1)
    sizes = [(2, 3, 160, 160), *((1 + k % 2, 3, 17 + 2 * k, 150 - 3 * k) for k in range(40))]  # the largest first
    images = [rng.random(size, np.float32) for size in sizes]
    for image in images:
        np.testing.assert_allclose(f(image), session.run(None, {"x": image})[0], rtol=1e-4, atol=1e-5)
    before = resident()
    for image in images * 3:
        f(image)
    assert resident() - before < GROWTH
