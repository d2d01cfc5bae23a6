"""onnxruntime as an oracle: sessions whose results are the same on every machine."""

from __future__ import annotations

from typing import Any

import pytest


def session(model: Any) -> Any:
    """A session of onnxruntime for an ONNX model; the test is skipped where onnxruntime is not installed."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    # Without VNNI, onnxruntime adds pairs of u8 * s8 products in 16 bits with saturation; this makes its products exact.
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.intra_op_num_threads = 1  # of a recurrent layer, each thread finds codes for its own part of the batch
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
