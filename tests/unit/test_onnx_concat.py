"""A Concat of images that were halved and doubled: at sizes where they cannot match, the error names the node and the sizes that fit."""

from __future__ import annotations

import numpy as np
import pytest

import pliant
from pliant.sym.expr import Var

onnx = pytest.importorskip("onnx", reason="ONNX models need the package onnx")

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1, 1, height, width] x) => (float[1, 2, a, b] y) {
    small = MaxPool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1>(x)
    tiny = MaxPool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1>(small)
    none = Constant<value = float[0] {}>()
    scales = Constant<value = float[4] {1.0, 1.0, 4.0, 4.0}>()
    large = Resize<mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric">(tiny, none, scales)
    y = Concat<axis = 1>(x, large)
}"""


def test_the_error_names_the_node_and_the_sizes_that_fit() -> None:
    proto = onnx.parser.parse_model(TEXT)
    proto.graph.node[-1].name = "/neck/Concat"
    run = pliant.compile(pliant.from_onnx(proto))
    for height, width in ((8, 12), (4, 4)):
        assert run(np.zeros((1, 1, height, width), np.float32)).shape == (1, 2, height, width)
    with pytest.raises(pliant.ShapeError) as caught:
        run(np.zeros((1, 1, 8, 10), np.float32))
    assert 'onnx: node "/neck/Concat" (Concat, opset 17): dim 3 of input 1 is 12, that of input 0 is 10' in str(caught.value)
    assert "they are equal where width is a multiple of 4" in str(caught.value)


def test_multiples_at_which_sizes_agree() -> None:
    from pliant.frontends.onnx.multiples import fit_text, fitting_multiple

    h, w = Var("h"), Var("w")
    ceil = lambda e, n: (e + (n - 1)) // n  # noqa: E731
    assert fitting_multiple(ceil(h, 32) * 2, ceil(h, 16)) == 32 and fitting_multiple(ceil(ceil(h, 2), 2) * 4, h) == 4
    assert fitting_multiple(h // 3 * 3, h) == 3 and fitting_multiple(h // 2 + 1, h) is None and fitting_multiple(h, h + 1) is None
    assert fit_text(h // 2 * 2 * w, h * w) == "they are equal where h and w are multiples of 2"
    for size in range(1, 200):  # what it says holds for every such size
        assert size % 32 or -(-size // 32) * 2 == -(-size // 16)
