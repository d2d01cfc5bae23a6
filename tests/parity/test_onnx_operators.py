"""Forms of operators that ONNX's own suite has no case for, against onnxruntime; a net of 8-bit codes as tools write it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="models are made with the package onnx")
pytest.importorskip("onnxruntime", reason="it is what results are compared with")

from onnx import helper

import pliant.onnx_backend as backend
from onnx_peer import session
from qdq_models import residual_net

RNG = np.random.default_rng(4)


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


ROIS = np.array([[0, 1, 1, 9, 7], [1, 0, 0, 3, 11], [0, 5, 2, 5, 2]], np.float32)
CASES: dict[str, tuple[str, list[Any], int, int, dict[str, Any]]] = {
    "max_roi_pool": ("MaxRoiPool", [f(2, 3, 8, 12), ROIS], 1, 17, {"pooled_shape": [2, 3], "spatial_scale": 0.8}),
    "roi_align_adaptive": (
        "RoiAlign", [f(2, 3, 8, 12), ROIS[:, 1:], np.array([0, 1, 0], np.int64)], 1, 16,
        {"output_height": 2, "output_width": 3, "sampling_ratio": 0, "spatial_scale": 0.9},
    ),
    "max_pool_columns_first": ("MaxPool", [f(2, 3, 6, 7)], 2, 12, {"kernel_shape": [2, 3], "strides": [2, 2], "storage_order": 1}),
    "conv_one_wide": ("Conv", [f(2, 4, 9, 1), f(6, 2, 3, 1), f(6)], 1, 11, {"group": 2, "pads": [1, 0, 2, 0], "strides": [2, 3]}),
    "max_pool_dilated": ("MaxPool", [f(1, 2, 9)], 2, 12, {"kernel_shape": [3], "dilations": [2], "pads": [1, 1]}),
    "unique_unsorted": ("Unique", [RNG.integers(0, 2, (9, 2)).astype(np.float32)], 4, 17, {"axis": 0, "sorted": 0}),
    "grid_sample_border_cubic": (
        "GridSample", [f(1, 2, 5, 6), f(1, 4, 3, 2)], 1, 16, {"mode": "bicubic", "padding_mode": "border", "align_corners": 1}
    ),
    "dft_longer": ("DFT", [f(2, 6, 1), np.int64(9)], 1, 17, {"axis": 1, "onesided": 1}),
    "resize_antialias": (
        "Resize", [f(1, 2, 9, 11), None, None, np.array([1, 2, 4, 5], np.int64)], 1, 18,
        {"mode": "linear", "antialias": 1, "exclude_outside": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("interpret", [True, False], ids=["interpreted", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str, interpret: bool) -> None:
    op, arrays, results, version, attributes = CASES[name]
    given = {f"x{k}": np.asarray(a) for k, a in enumerate(arrays) if a is not None}
    outs = [f"y{k}" for k in range(results)]
    node = helper.make_node(op, ["" if a is None else f"x{k}" for k, a in enumerate(arrays)], outs, **attributes)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(n) for n in outs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    wanted = session(model).run(None, given)
    for a, b in zip(backend.prepare(model, interpret=interpret).run(list(given.values())), wanted, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("signed", [False, True])
def test_a_net_of_codes(signed: bool) -> None:
    model = residual_net(True, 8, (1, 1), 32, signed)
    x = f(2, 3, 32, 32)
    (wanted,) = session(model).run(None, {"x": x})
    (exact,) = backend.prepare(residual_net(False, 8, (1, 1), 32, signed), interpret=True).run([x])
    (found,) = backend.prepare(model, interpret=True).run([x])
    np.testing.assert_allclose(found, wanted, atol=0.05)  # a code here and there
    assert 0 < np.abs(found - exact).max() < 0.5
