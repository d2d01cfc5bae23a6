"""Operators on features of ai.onnx.ml, as scikit-learn's exporter writes them, against their formulas in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="models are made with the package onnx")

from onnx import helper

import pliant.onnx_backend as backend
from pliant.support.errors import Error

X = np.array([[1.5, -2.0, 0.0], [7.0, 0.25, -3.0], [0.0, 0.0, 0.0], [-1.0, 4.0, 2.5]])


def model(op: str, kind: Any, dims: list[Any], **attributes: Any) -> Any:
    node = helper.make_node(op, ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), dims)
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def check(expected: Any, op: str, x: Any, **attributes: Any) -> None:
    """A program for any number of rows gives the expected f32: the standard says f32 for operands of all types."""
    result = backend.prepare(model(op, x.dtype, ["n", x.shape[-1]], **attributes)).run({"x": x})[0]
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "int32"])
def test_scaler(kind: str) -> None:
    x, offset, scale = X.astype(kind), [0.5, -1.0, 2.0], [2.0, 0.25, 3.0]
    check((x - np.array(offset)) * scale, "Scaler", x, offset=offset, scale=scale)
    check((x - 0.5) * 2.0, "Scaler", x, offset=[0.5], scale=[2.0])


def test_scaler_wants_a_number_for_each_feature() -> None:
    with pytest.raises(Error, match="Scaler"):
        backend.prepare(model("Scaler", "float32", ["n", 3], offset=[0.5, 1.0], scale=[1.0]))


def test_imputer() -> None:
    x = X.astype(np.float32)
    check(np.where(x == 0, [7, 8, 9], x), "Imputer", x, imputed_value_floats=[7.0, 8.0, 9.0])
    x[1, 1] = np.nan
    check(np.where(np.isnan(x), 0.5, x), "Imputer", x, imputed_value_floats=[0.5], replaced_value_float=float("nan"))


def test_imputer_of_integers() -> None:
    x = X.astype(np.int64)
    result = backend.prepare(model("Imputer", x.dtype, ["n", 3], imputed_value_int64s=[5], replaced_value_int64=-2)).run({"x": x})[0]
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, np.where(x == -2, 5, x))


@pytest.mark.parametrize("after", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_regressor(after: str) -> None:
    weights, shifts = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]), [0.1, -0.2]
    y = X @ weights.T + shifts
    expected = {"NONE": y, "LOGISTIC": 1 / (1 + np.exp(-y)), "SOFTMAX": np.exp(y) / np.exp(y).sum(1, keepdims=True)}[after]
    listed = weights.reshape(-1).tolist()
    for kind in ("float32", "float64"):
        check(expected, "LinearRegressor", X.astype(kind), coefficients=listed, intercepts=shifts, targets=2, post_transform=after)


def test_linear_regressor_wants_coefficients_for_each_target() -> None:
    with pytest.raises(Error, match="5 coefficients for 2 targets"):
        backend.prepare(model("LinearRegressor", "float32", ["n", 3], coefficients=[1.0] * 5, targets=2))


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Scaler", {"offset": [0.5], "scale": [1.0]}),
        ("Imputer", {"imputed_value_floats": [0.5]}),
        ("LinearRegressor", {"coefficients": [1.0] * 3}),
    ],
)
def test_an_operand_without_features_is_refused(op: str, attributes: dict[str, Any]) -> None:
    for dims in ([], ["n"]) if op == "LinearRegressor" else ([],):
        with pytest.raises(Error, match="dims"):
            backend.prepare(model(op, "float32", dims, **attributes))
