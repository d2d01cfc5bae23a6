"""How far compiled models are from the truth: at most four times as far as onnxruntime is, at a small shape.

The truth is onnx.reference on the model with every float as a double. Compiling such models takes long: with PLIANT_LONG=1 only.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from test_onnx_assets import MODELS, path_of

import pliant

onnx = pytest.importorskip("onnx", reason="ONNX models need the package onnx")
pytestmark = pytest.mark.skipif(os.environ.get("PLIANT_LONG") != "1", reason="compiles whole models: set PLIANT_LONG=1")
FACTOR = 4.0
FLOOR = 1e-6  # of the largest element: nobody is nearer than the rounding of a few sums


def as_double(model: Any) -> Any:
    """The model with doubles in place of floats."""
    from onnx import TensorProto, numpy_helper

    def tensor(t: Any) -> None:
        if t.data_type == TensorProto.FLOAT:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float64), t.name))

    for t in model.graph.initializer:
        tensor(t)
    for node in model.graph.node:
        for a in node.attribute:
            if a.HasField("t"):
                tensor(a.t)
            if node.op_type == "Cast" and a.name == "to" and a.i == TensorProto.FLOAT:
                a.i = TensorProto.DOUBLE
    for v in (*model.graph.input, *model.graph.output):
        if v.type.tensor_type.elem_type == TensorProto.FLOAT:
            v.type.tensor_type.elem_type = TensorProto.DOUBLE
    del model.graph.value_info[:]
    return model


@pytest.mark.parametrize("model", ["det", "rec", "cls", "yolov8n"])
def test_errors_are_those_of_floats(model: str) -> None:
    ort = pytest.importorskip("onnxruntime", reason="errors are compared with those of onnxruntime")
    from onnx.reference import ReferenceEvaluator

    package, file, shapes = MODELS[model]
    path = path_of(package, file)
    ((name, shape),) = shapes[0].items()
    x = np.random.default_rng(0).random(shape, np.float32)
    truth = ReferenceEvaluator(as_double(onnx.load(path))).run(None, {name: x.astype(np.float64)})
    theirs = ort.InferenceSession(str(path)).run(None, {name: x})
    found = pliant.compile(pliant.from_onnx(path))(x)
    ours = found if isinstance(found, tuple) else (found,)
    for value, peer, true in zip(ours, theirs, truth, strict=True):
        scale = np.max(np.abs(true))
        assert np.max(np.abs(value - true)) <= max(FACTOR * np.max(np.abs(peer - true)), FLOOR * scale)
