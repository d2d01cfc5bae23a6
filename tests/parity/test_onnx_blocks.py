"""Weights of codes in blocks (com.microsoft): products and rows against onnxruntime and numpy; that they stay codes; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="models are made with the package onnx")
pytest.importorskip("onnxruntime", reason="it is what results are compared with")
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import pliant
from pliant.graph.node import Op
from pliant.support.errors import ModelFileError, UnsupportedError

Array = Any
RNG = np.random.default_rng(3)


def packed(codes: Array, bits: int) -> Array:
    """Codes in bytes, rows filled up."""
    if bits == 8:
        return codes.astype(np.uint8)
    even = np.pad(codes, [*[(0, 0)] * (codes.ndim - 1), (0, codes.shape[-1] % 2)]).astype(np.uint8)
    return even[..., ::2] | even[..., 1::2] << 4


def of_node(op: str, given: dict[str, Array], known: dict[str, Array], shapes: dict[str, list[Any]], **attributes: Any) -> Any:
    """A model of one node; the dims of its inputs have names."""
    inputs = [*given, *known]
    node = helper.make_node(op, [n if not n.startswith("_") else "" for n in inputs], ["y"], domain="com.microsoft", **attributes)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), shapes[n]) for n, a in given.items()]
    weights = [a if isinstance(a, TensorProto) else numpy_helper.from_array(a, n) for n, a in known.items() if not n.startswith("_")]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


class Weight:
    """A random matrix (n, k) of codes."""

    def __init__(self, n: int, k: int, bits: int, size: int, zeros: str) -> None:
        blocks = -(-k // size)
        codes = RNG.integers(0, 1 << bits, (n, blocks, size))
        self.scale = (RNG.random((n, blocks)) * 0.02 + 0.001).astype(np.float32)
        zero = RNG.integers(0, 1 << bits, (n, blocks))
        self.known: dict[str, Array] = {"w": packed(codes, bits), "scale": self.scale}
        if zeros == "codes":
            self.known["zero"] = packed(zero, bits)
        elif zeros == "floats":
            self.known["zero"] = zero.astype(np.float32)
        else:
            zero = np.full_like(zero, 1 << (bits - 1))
        self.attributes = {"K": k, "N": n, "bits": bits, "block_size": size}
        self.numbers = ((codes - zero[..., None]) * self.scale.astype(np.float64)[..., None]).reshape(n, -1)[:, :k]


def both(proto: Any, given: dict[str, Array]) -> tuple[Array, Array]:
    wanted = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)[0]
    return np.asarray(pliant.compile(pliant.from_onnx(proto))(*given.values())), wanted


PRODUCTS = [
    (4, 32, 96, "none", 0), (4, 16, 96, "codes", 0), (4, 128, 256, "codes", 1), (4, 64, 100, "codes", 0), (4, 32, 64, "floats", 0),
    (8, 32, 64, "codes", 0), (8, 256, 256, "none", 1), (4, 512, 1024, "codes", 0),
    (4, 32, 96, "codes", 4), (4, 16, 48, "none", 4), (4, 128, 200, "codes", 4), (8, 64, 128, "codes", 4),
]  # fmt: skip


@pytest.mark.parametrize(("bits", "size", "k", "zeros", "level"), PRODUCTS)
def test_products(bits: int, size: int, k: int, zeros: str, level: int) -> None:
    weight = Weight(21, k, bits, size, zeros)
    x = RNG.standard_normal((2, 5, k)).astype(np.float32)
    proto = of_node("MatMulNBits", {"x": x}, weight.known, {"x": ["b", "n", k]}, **weight.attributes, accuracy_level=level)
    exact = x.astype(np.float64) @ weight.numbers.T
    size_of = np.abs(x).astype(np.float64) @ np.abs(weight.numbers).T
    if zeros == "floats" or size > 256:  # what this onnxruntime has no kernel for
        found = np.asarray(pliant.compile(pliant.from_onnx(proto))(x))
    else:
        found, wanted = both(proto, {"x": x})
        assert (np.abs(found - wanted) <= size_of * (2e-2 if level == 4 else 2e-6)).all()
    assert found.shape == (2, 5, 21)
    assert (np.abs(found - exact) <= size_of * (1 / 100 if level == 4 else 1e-6)).all()


def test_codes_of_activations_are_truer_than_those_of_onnxruntime() -> None:
    """At level 4 both round activations to 8 bits, onnxruntime in groups of a block, we in parts of it: never rougher, and mostly finer."""
    weight = Weight(40, 256, 4, 32, "codes")
    x = RNG.standard_normal((64, 256)).astype(np.float32)
    x[:, ::32] *= 8  # elements that are much larger than their neighbors
    found, wanted = both(of_node("MatMulNBits", {"x": x}, weight.known, {"x": ["n", 256]}, **weight.attributes, accuracy_level=4), {"x": x})
    exact = x.astype(np.float64) @ weight.numbers.T
    assert ((found - exact) ** 2).mean() < 0.7 * ((wanted - exact) ** 2).mean()
    assert 1e-3 < np.abs(found - exact).max() / np.abs(exact).std() < 0.1  # codes, not floats


@pytest.mark.parametrize(("level", "used"), [(0, "block_matmul_exact"), (2, "block_matmul_exact"), (4, "block_matmul")])
def test_weights_stay_codes(level: int, used: str) -> None:
    weight = Weight(32, 64, 4, 32, "codes")
    x = RNG.standard_normal((3, 64)).astype(np.float16)
    proto = of_node("MatMulNBits", {"x": x}, weight.known, {"x": ["n", 64]}, **weight.attributes, accuracy_level=level)
    program = pliant.from_onnx(proto)
    assert used in [n.op for n in program.entry.nodes if isinstance(n, Op)]
    found = np.asarray(pliant.compile(program)(x))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, x.astype(np.float64) @ weight.numbers.T, rtol=0.02, atol=0.1)


def test_a_bias() -> None:
    weight, bias = Weight(16, 64, 4, 32, "none"), RNG.standard_normal(16).astype(np.float32)
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    known = {**weight.known, "_zero": None, "_order": None, "bias": bias}
    found, wanted = both(of_node("MatMulNBits", {"x": x}, known, {"x": ["n", 64]}, **weight.attributes), {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_what_is_refused() -> None:
    x = np.zeros((3, 64), np.float32)
    weight = Weight(16, 64, 4, 32, "codes")

    def imported(known: dict[str, Array], **changed: Any) -> None:
        pliant.from_onnx(of_node("MatMulNBits", {"x": x}, known, {"x": ["n", 64]}, **{**weight.attributes, **changed}))

    with pytest.raises(UnsupportedError, match="g_idx, an order of the blocks, is not supported"):
        imported({**weight.known, "order": np.zeros(64, np.int32)})
    with pytest.raises(UnsupportedError, match="codes of 3 bits are not supported"):
        imported(weight.known, bits=3)
    with pytest.raises(ModelFileError, match="blocks of 48"):
        imported(weight.known, block_size=48)
    with pytest.raises(ModelFileError, match=r"input 1 is uint8.*512 bytes are expected"):
        imported({**weight.known, "w": np.zeros((16, 2, 15), np.uint8)})
    with pytest.raises(ModelFileError, match=r"input 2 is f32\[5\]"):
        imported({**weight.known, "scale": np.zeros(5, np.float32)})
    with pytest.raises(ModelFileError, match="16 bytes are expected"):
        imported({**weight.known, "zero": np.zeros(7, np.uint8)})


@pytest.mark.parametrize("kind", ["bytes", "uint4", "int4"])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows(kind: str, zeros: bool) -> None:
    low, high = (-8, 8) if kind == "int4" else (0, 16)
    codes, zero = RNG.integers(low, high, (9, 64)), RNG.integers(low, high, (9, 4))
    scale = RNG.random((9, 4)).astype(np.float32)
    of = {"bytes": TensorProto.UINT8, "uint4": TensorProto.UINT4, "int4": TensorProto.INT4}[kind]

    def literal(name: str, a: Array) -> Any:
        bytes_ = packed(a & 15, 4)
        return helper.make_tensor(name, of, bytes_.shape if kind == "bytes" else a.shape, bytes_.tobytes(), raw=True)

    ids = RNG.integers(0, 9, (2, 3))
    known = {"w": literal("w", codes)}
    node = helper.make_node("GatherBlockQuantized", ["w", "ids", "scale", *(["zero"] if zeros else [])], ["y"], domain="com.microsoft",
                            block_size=16, quantize_axis=1, gather_axis=0)  # fmt: skip
    weights = [known["w"], numpy_helper.from_array(scale, "scale"), *([literal("zero", zero)] if zeros else [])]
    infos = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["b", "n"])]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    found, wanted = both(helper.make_model(graph, opset_imports=opsets, ir_version=10), {"ids": ids})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
