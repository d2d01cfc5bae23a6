"""Operators of the domain com.microsoft against onnxruntime, in the interpreter and (some) compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="models are made with the package onnx")
pytest.importorskip("onnxruntime", reason="it is what results are compared with")

from onnx import helper

import pliant.onnx_backend as backend
from onnx_peer import session
from pliant.support.errors import UnsupportedError

RNG = np.random.default_rng(11)


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def u(*shape: int) -> Any:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i(*shape: int) -> Any:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def i7(*shape: int) -> Any:
    """Codes of 7 bits: of larger ones onnxruntime saturates sums of two products, on machines without VNNI."""
    return RNG.integers(-64, 64, shape).astype(np.int8)


def scale(value: float) -> Any:
    return np.float32(value)


def zero(value: int = 128) -> Any:
    return np.uint8(value)


def codes_of(scales: Any, zeros: Any) -> tuple[Any, Any]:
    """Scales, of which none is 0, and zero points."""
    return (scales + 1e-3).astype(np.float32), zeros


def model(op: str, arrays: list[Any], known: tuple[int, ...], outputs: tuple[str, ...], attributes: dict[str, Any]) -> tuple[Any, dict]:
    names = ["" if a is None else f"x{k}" for k, a in enumerate(arrays)]
    node = helper.make_node(op, names, list(outputs), domain="com.microsoft", **attributes)
    given = {f"x{k}": np.asarray(a) for k, a in enumerate(arrays) if a is not None and k not in known}
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()]
    weights = [helper.make_tensor(f"x{k}", helper.np_dtype_to_tensor_dtype(arrays[k].dtype), arrays[k].shape, arrays[k].tobytes(), raw=True)
               for k in known]  # fmt: skip
    results = [helper.make_empty_tensor_value_info(n) for n in outputs if n]
    graph = helper.make_graph([node], "g", infos, results, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), given


CASES: dict[str, tuple[str, list[Any], tuple[int, ...], tuple[str, ...], dict[str, Any]]] = {
    "gelu": ("Gelu", [f(3, 5)], (), ("y",), {}),
    "bias_gelu": ("BiasGelu", [f(3, 5), f(5)], (), ("y",), {}),
    "fast_gelu": ("FastGelu", [f(3, 5), f(5)], (), ("y",), {}),
    "quick_gelu": ("QuickGelu", [f(3, 5)], (), ("y",), {"alpha": 1.5}),
    "skip_layer_norm": ("SkipLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)], (), ("y", "", "", "s"), {"epsilon": 1e-5}),
    "skip_simplified": ("SkipSimplifiedLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8)], (), ("y", "", "", "s"), {"epsilon": 1e-5}),
    "embed_layer_norm": (
        "EmbedLayerNormalization",
        [RNG.integers(0, 9, (2, 4)).astype(np.int32), RNG.integers(0, 2, (2, 4)).astype(np.int32), f(9, 8), f(6, 8), f(2, 8), f(8), f(8),
         np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)],
        (), ("y", "m"), {"epsilon": 1e-5},
    ),
    "fused_matmul": ("FusedMatMul", [f(2, 4, 3), f(2, 5, 4)], (), ("y",), {"transA": 1, "transB": 1, "alpha": 0.5}),
    "fused_conv": ("FusedConv", [f(1, 3, 6, 6), f(4, 3, 3, 3), f(4)], (), ("y",), {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    "fused_conv_leaky": (
        "FusedConv", [f(1, 3, 6, 6), f(4, 3, 3, 3)], (), ("y",), {"activation": "LeakyRelu", "activation_params": [0.2]}
    ),
    "matmul_4_bits": ("MatMulNBits", [f(3, 64), u(6, 2, 16), f(12)], (1, 2), ("y",), {"K": 64, "N": 6, "bits": 4, "block_size": 32}),
    "matmul_4_bits_zeros": (
        "MatMulNBits", [f(2, 3, 48), u(6, 3, 8), f(18), u(12)], (1, 2, 3), ("y",), {"K": 48, "N": 6, "bits": 4, "block_size": 16}
    ),
    "rotary": (
        "RotaryEmbedding", [f(2, 3, 4, 8), np.array([[0, 1, 2, 3], [3, 4, 5, 6]], np.int64), f(9, 4), f(9, 4)], (), ("y",), {}
    ),
    "rotary_flat_interleaved": (
        "RotaryEmbedding", [f(2, 4, 24), np.array([2], np.int64), f(9, 4), f(9, 4)], (), ("y",), {"interleaved": 1}
    ),
    "attention": ("Attention", [f(2, 5, 12), f(12, 36), f(36)], (), ("y",), {"num_heads": 3}),
    "attention_lengths": (
        "Attention", [f(2, 5, 12), f(12, 36), f(36), np.array([3, 5], np.int32)], (), ("y",), {"num_heads": 3}
    ),
    "attention_mask": (
        "Attention", [f(2, 4, 12), f(12, 36), f(36), np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)], (), ("y",), {"num_heads": 2}
    ),
    "attention_causal": ("Attention", [f(2, 5, 12), f(12, 36), f(36)], (), ("y",), {"num_heads": 3, "unidirectional": 1}),
    "attention_past": (
        "Attention", [f(2, 3, 12), f(12, 36), f(36), None, f(2, 2, 3, 4, 4)], (), ("y", "p"), {"num_heads": 3, "unidirectional": 1}
    ),
    "multi_head": ("MultiHeadAttention", [f(2, 3, 12), f(2, 5, 12), f(2, 5, 12)], (), ("y",), {"num_heads": 3}),
    "multi_head_bias": ("MultiHeadAttention", [f(2, 3, 12), f(2, 5, 12), f(2, 5, 12), f(36)], (), ("y",), {"num_heads": 3}),
    "multi_head_scores": (
        "MultiHeadAttention", [f(2, 3, 12), f(2, 5, 12), f(2, 5, 12), None, None, f(1, 3, 3, 5)], (), ("y",), {"num_heads": 3}
    ),
    "qlinear_add": ("QLinearAdd", [u(3, 5), scale(0.1), zero(), u(5), scale(0.2), zero(7), scale(0.3), zero(90)], (), ("y",), {}),
    "qlinear_mul": ("QLinearMul", [u(3, 5), scale(0.1), zero(), u(3, 5), scale(0.2), zero(7), scale(2.5), zero(90)], (), ("y",), {}),
    "qlinear_sigmoid": ("QLinearSigmoid", [u(3, 5), scale(0.05), zero(), scale(1 / 256), zero(0)], (1, 2, 3, 4), ("y",), {}),
    "qlinear_leaky": ("QLinearLeakyRelu", [u(3, 5), scale(0.05), zero(), scale(0.05), zero()], (1, 2, 3, 4), ("y",), {"alpha": 0.1}),
    "qlinear_softmax": (
        "QLinearSoftmax", [u(3, 5), scale(0.05), zero(), scale(1 / 256), zero(0)], (1, 2, 3, 4), ("y",), {"axis": -1, "opset": 13}
    ),
    "qlinear_average_pool": (
        "QLinearAveragePool", [u(1, 2, 6, 6), scale(0.05), zero(), scale(0.06), zero(100)], (1, 2, 3, 4), ("y",), {"kernel_shape": [2, 2]}
    ),
    "qlinear_global_pool": (
        "QLinearGlobalAveragePool", [u(1, 2, 6, 6), scale(0.05), zero(), scale(0.02), zero(100)], (1, 2, 3, 4), ("y",), {}
    ),
    "qlinear_concat": (
        "QLinearConcat", [scale(0.1), zero(), u(2, 3), scale(0.1), zero(), u(2, 4), scale(0.05), zero(3)], (0, 1, 3, 4, 6, 7), ("y",),
        {"axis": 1},
    ),
    "qgemm": (
        "QGemm", [u(3, 8), scale(0.1), zero(), i7(5, 8), f(5) ** 2, i(5), RNG.integers(-99, 99, 5).astype(np.int32), scale(9.0), zero()],
        (1, 2, 3, 4, 5, 6, 7, 8), ("y",), {"transB": 1},
    ),
    "dynamic_quantize_matmul": ("DynamicQuantizeMatMul", [f(3, 8), i7(8, 5), scale(0.02), np.int8(3), f(5)], (1, 2, 3, 4), ("y",), {}),
    "matmul_integer_to_float": (
        "MatMulIntegerToFloat", [u(3, 8), i7(8, 5), scale(0.02), scale(0.1), zero(7)], (1, 2, 3, 4), ("y",), {}
    ),
    "dynamic_quantize_lstm": (
        "DynamicQuantizeLSTM",
        [f(5, 2, 6), i7(1, 6, 12), i7(1, 3, 12), f(1, 24), None, None, None, None, *codes_of(f(1) ** 2 / 99, i(1) // 9),
         *codes_of(f(1) ** 2 / 99, i(1) // 9)],
        (1, 2, 8, 9, 10, 11), ("y", "h", "c"), {"hidden_size": 3},
    ),
    "dynamic_quantize_lstm_both_ways": (
        "DynamicQuantizeLSTM",
        [f(5, 2, 6), u(2, 6, 12), u(2, 3, 12), None, None, f(2, 2, 3), f(2, 2, 3), f(2, 9),
         *codes_of(f(2, 12) ** 2 / 99, np.full((2, 12), 120, np.uint8)), *codes_of(f(2, 12) ** 2 / 99, np.full((2, 12), 130, np.uint8))],
        (1, 2, 8, 9, 10, 11), ("y", "h", "c"), {"hidden_size": 3, "direction": "bidirectional", "input_forget": 0},
    ),
}  # fmt: skip
COMPILED = (
    "matmul_4_bits_zeros",
    "attention_past",
    "qlinear_add",
    "qgemm",
    "dynamic_quantize_matmul",
    "rotary_flat_interleaved",
    "dynamic_quantize_lstm",
)


def check(name: str, interpret: bool) -> None:
    proto, given = model(*CASES[name])
    wanted = session(proto).run(None, given)
    found = backend.prepare(proto, interpret=interpret).run(list(given.values()))
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if a.dtype == np.uint8:  # onnxruntime rounds twice in some of these
            assert np.abs(a.astype(int) - b.astype(int)).max() <= 1
        else:
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4 if "fast" in name else 2e-5)


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str) -> None:
    check(name, True)


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str) -> None:
    check(name, False)


def test_simplified_layer_norm_of_the_default_domain() -> None:
    x, w = f(2, 8), f(8)
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "w"], ["y"], epsilon=1e-5, axis=-1)
    infos = [helper.make_tensor_value_info(n, 1, a.shape) for n, a in (("x", x), ("w", w))]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    (y,) = backend.run_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), [x, w], interpret=True)
    np.testing.assert_allclose(y, x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * w, rtol=1e-5)


def test_an_attribute_that_nobody_reads_is_named() -> None:
    proto, _ = model("Gelu", [f(3, 5)], (), ("y",), {"approximate": "tanh"})
    with pytest.raises(UnsupportedError, match='attribute "approximate" is not supported'):
        backend.prepare(proto, interpret=True)


def test_what_is_not_supported_says_so() -> None:
    proto, given = model("QGemm", [u(8, 3), scale(0.1), zero(), i(8, 5), scale(0.1), np.int8(0)], (), ("y",), {"transA": 1})
    with pytest.raises(UnsupportedError, match="a transposed left operand is not supported"):
        backend.prepare(proto, interpret=True).run(list(given.values()))
