"""Attention with a cache and rotary embeddings (com.microsoft) against onnxruntime, one program for all lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="models are made with the package onnx")
pytest.importorskip("onnxruntime", reason="it is what results are compared with")
import onnxruntime as ort
from onnx import TensorProto, helper

import pliant
from pliant.support.errors import UnsupportedError

RNG = np.random.default_rng(4)
HEADS, KV, D = 4, 2, 32
INPUTS = ("q", "k", "v", "past_k", "past_v", "lengths", "total", "cos", "sin", "places", "bias", "sink")


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


SHAPES: Mapping[str, list[Any]] = {
    "q": ["b", "n", HEADS * D], "k": ["b", "n", KV * D], "v": ["b", "n", KV * D], "past_k": ["b", KV, "p", D], "past_v": ["b", KV, "p", D],
    "lengths": ["b"], "total": [],
    "cos": [64, D // 2], "sin": [64, D // 2], "places": ["b", "n"], "bias": [1, 1, "n", "t"], "sink": [HEADS],
}  # fmt: skip


def model(used: tuple[str, ...], shapes: Mapping[str, list[Any]] = SHAPES, **attributes: Any) -> Any:
    """A model of one GroupQueryAttention that takes these inputs."""
    names = [n if n in used else "" for n in INPUTS]
    while not names[-1]:
        names.pop()
    kinds = {"lengths": TensorProto.INT32, "total": TensorProto.INT32, "places": TensorProto.INT64}
    infos = [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), shapes[n]) for n in used]
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "k1", "v1"], domain="com.microsoft", num_heads=HEADS, kv_num_heads=KV, **attributes
    )
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(n) for n in ("y", "k1", "v1")])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def given(batch: int, n: int, past: int, used: tuple[str, ...], lengths: list[int] | None = None) -> dict[str, Any]:
    total = past + n
    angles = np.arange(64)[:, None] * (0.3 ** np.arange(D // 2))
    made = {
        "q": f(batch, n, HEADS * D), "k": f(batch, n, KV * D), "v": f(batch, n, KV * D), "past_k": f(batch, KV, past, D),
        "past_v": f(batch, KV, past, D), "lengths": np.array(lengths or [total] * batch, np.int32) - 1, "total": np.int32(total),
        "cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32), "bias": f(1, 1, n, total), "sink": f(HEADS),
        "places": np.tile(np.arange(past, total), (batch, 1)),
    }  # fmt: skip
    return {k: np.asarray(v) for k, v in made.items() if k in used}


PLAIN = ("q", "k", "v", "past_k", "past_v", "lengths", "total")
ROTARY = (*PLAIN, "cos", "sin")
CASES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "plain": (PLAIN, {}),
    "rotary": (ROTARY, {"do_rotary": 1}),
    "interleaved": (ROTARY, {"do_rotary": 1, "rotary_interleaved": 1}),
    "places": ((*ROTARY, "places"), {"do_rotary": 1}),
    "window": (PLAIN, {"local_window_size": 3, "scale": 0.3}),
    "softcap": (PLAIN, {"softcap": 0.7, "local_window_size": 4}),
    "smooth": (PLAIN, {"smooth_softmax": 1}),
    "sink": ((*PLAIN, "sink"), {}),
    "bias": ((*PLAIN, "bias"), {}),
}
LENGTHS = [(1, 5, 0), (1, 1, 5), (2, 1, 9), (3, 7, 0), (1, 4, 6)]  # batch, new tokens, cached ones: one program for all


def compare(proto: Any, cases: list[dict[str, Any]], lengths: list[list[int]] | None = None) -> None:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    program = pliant.compile(pliant.from_onnx(proto))
    for number, feeds in enumerate(cases):
        wanted = session.run(None, feeds)
        found = [np.asarray(a) for a in program.run(feeds).values()]
        ends = lengths[number] if lengths else [wanted[1].shape[2]] * len(wanted[0])
        new = wanted[0].shape[1]
        for b, end in enumerate(ends):
            rows = min(new, end)
            np.testing.assert_allclose(found[0][b, :rows], wanted[0][b, :rows], rtol=1e-4, atol=1e-5)
            for a, w in zip(found[1:], wanted[1:], strict=True):
                np.testing.assert_allclose(a[b, :, :end], w[b, :, :end], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str) -> None:
    used, attributes = CASES[name]
    compare(model(used, **attributes), [given(*sizes, used) for sizes in LENGTHS])


def test_sequences_of_different_lengths() -> None:
    cases = [given(3, 6, 0, ROTARY, [6, 2, 4]), given(3, 1, 7, ROTARY, [8, 3, 5])]
    compare(model(ROTARY, do_rotary=1, local_window_size=3), cases, [[6, 2, 4], [8, 3, 5]])


def test_one_operand_for_all_three() -> None:
    used = ("q", "past_k", "past_v", "lengths", "total", "cos", "sin")
    cases = []
    for batch, n, past in LENGTHS:
        feeds = given(batch, n, past, ROTARY)
        feeds["q"] = np.concatenate([feeds.pop("q"), feeds.pop("k"), feeds.pop("v")], axis=2)
        cases.append(feeds)
    compare(model(used, {**SHAPES, "q": ["b", "n", (HEADS + 2 * KV) * D]}, do_rotary=1), cases)


def test_a_part_of_each_head_is_turned() -> None:
    shapes = {**SHAPES, "cos": [64, 8], "sin": [64, 8]}
    cases = [given(*sizes, ROTARY) for sizes in LENGTHS[:3]]
    for feeds in cases:
        feeds.update({name: feeds[name][:, :8].copy() for name in ("cos", "sin")})
    compare(model(ROTARY, shapes, do_rotary=1), cases)


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="scores as a result, caches that slide"):
        pliant.from_onnx(model(PLAIN, qk_output=1))


def heads(shapes: dict[str, list[Any]]) -> Any:
    """A model of one MultiHeadAttention."""
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    node = helper.make_node("MultiHeadAttention", list(shapes), ["y"], domain="com.microsoft", num_heads=HEADS)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)


@pytest.mark.parametrize("count", [2, 3])
def test_packed_operands(count: int) -> None:
    """onnxruntime's own kernel for CPUs takes these only apart."""
    parts = {"q": f(2, 5, HEADS, D), "k": f(2, 5, HEADS, D), "v": f(2, 5, HEADS, D)}
    flat = {name: a.reshape(2, 5, HEADS * D) for name, a in parts.items()}
    shapes = {name: ["b", "n", HEADS * D] for name in parts}
    (wanted,) = ort.InferenceSession(heads(shapes).SerializeToString(), providers=["CPUExecutionProvider"]).run(None, flat)
    packed = {"x": np.stack(list(parts.values())[-count:], axis=3)}
    feeds = packed if count == 3 else {"q": flat["q"], **packed}
    proto = heads({name: ["b", "n", *a.shape[2:]] for name, a in feeds.items()})
    np.testing.assert_allclose(pliant.compile(pliant.from_onnx(proto)).run(feeds)["y"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding_of_a_part(interleaved: int) -> None:
    node = helper.make_node("RotaryEmbedding", ["x", "places", "cos", "sin"], ["y"], domain="com.microsoft", num_heads=HEADS,
                            rotary_embedding_dim=8, interleaved=interleaved)  # fmt: skip
    shapes = {"x": ["b", "n", HEADS * D], "places": ["b", "n"], "cos": [20, 4], "sin": [20, 4]}
    infos = [helper.make_tensor_value_info(k, TensorProto.INT64 if k == "places" else TensorProto.FLOAT, s) for k, s in shapes.items()]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    feeds = {"x": f(2, 3, HEADS * D), "places": RNG.integers(0, 20, (2, 3)), "cos": f(20, 4), "sin": f(20, 4)}
    (wanted,) = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(pliant.compile(pliant.from_onnx(proto)).run(feeds)["y"], wanted, rtol=1e-5, atol=1e-5)
