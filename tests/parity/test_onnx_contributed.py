"""Forms of com.microsoft operators that random nodes found wrong or refused, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="models are made with the package onnx")

from onnx import helper

import pliant.onnx_backend as backend
from pliant.support.errors import ModelFileError
from random_microsoft import attended, split_heads, turned

RNG = np.random.default_rng(5)


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def model(op: str, inputs: dict[str, tuple[Any, list[Any]]], **attributes: Any) -> Any:
    """A node over inputs, each an array and the dims that the model says."""
    node = helper.make_node(op, list(inputs), ["y"], name="it", domain="com.microsoft", **attributes)
    infos = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), dims) for k, (a, dims) in inputs.items()]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(op: str, inputs: dict[str, tuple[Any, list[Any]]], **attributes: Any) -> Any:
    proto = model(op, inputs, **attributes)
    return backend.prepare(proto, interpret=True).run({k: a for k, (a, _) in inputs.items()})[0]


def test_values_may_be_wider_than_keys_where_no_cache_is_asked_for() -> None:
    x, w = f(2, 3, 6), f(6, 16)
    found = run("Attention", {"x": (x, [2, 3, 6]), "w": (w, [6, 16])}, num_heads=2, qkv_hidden_sizes=[4, 4, 8])
    q, k, v = (split_heads(t, 2) for t in np.split(x.astype(np.float64) @ w, [4, 8], axis=2))
    np.testing.assert_allclose(found, attended(q, k, v, 2**-0.5, 0.0, False), rtol=1e-4, atol=1e-5)


def rotary(x: Any, place: Any, dims: list[Any], **attributes: Any) -> tuple[Any, Any]:
    """What the node gives, and what it should: angles of half of the first 8 numbers of each head."""
    cos, sin = f(9, 4), f(9, 4)
    inputs = {"x": (x, list(x.shape)), "p": (place, dims), "cos": (cos, [9, 4]), "sin": (sin, [9, 4])}
    rows = place.reshape(-1)[0] + np.arange(x.shape[2])
    return run("RotaryEmbedding", inputs, **attributes), turned(x, cos[rows], sin[rows], False)


def test_four_dims_may_come_with_the_number_of_heads() -> None:
    found, wanted = rotary(f(2, 3, 4, 10), np.array([2], np.int64), [1], num_heads=3, rotary_embedding_dim=8)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_one_place_of_an_unknown_number() -> None:
    """It was taken for a place of each sequence: wrong numbers without a word."""
    found, wanted = rotary(f(1, 3, 4, 8), np.array([2], np.int64), ["many"])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attributes", [{"num_heads": 2}, {"num_heads": 3, "rotary_embedding_dim": 6}])
def test_heads_and_angles_that_do_not_fit_are_refused(attributes: dict[str, int]) -> None:
    with pytest.raises(ModelFileError, match="attribute"):
        rotary(f(1, 3, 4, 8), np.array([2], np.int64), [1], **attributes)
