"""Operators on indices, order, selection and quantization against torch, onnx.reference and onnxruntime, where these are installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pliant import ops
from pliant.dtype import dtype
from pliant.graph.builder import Builder
from pliant.graph.node import Tensor
from pliant.interp.graph import run_graph
from pliant.sym.expr import const

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)
X = RNG.standard_normal((6, 7)).astype(np.float32)
TIES = RNG.integers(0, 4, (5, 9))
NAN = np.array([[3.0, np.nan, 1.0, np.nan, 3.0, -np.inf, 0.0]], np.float32)


def ours(call: Callable[..., Any], *arrays: Array) -> list[Array]:
    """The results of an operator call in the interpreter, to which native code is compared elsewhere."""
    builder = Builder("case")
    params = [builder.param(f"x{k}", Tensor(dtype(a.dtype), tuple(map(const, a.shape)))) for k, a in enumerate(arrays)]
    with builder:
        result = call(*params)
    return run_graph(builder.finish(list(result) if isinstance(result, tuple) else [result]), arrays)


def same(found: list[Array], expected: Any) -> None:
    for a, b in zip(found, expected if isinstance(expected, tuple | list) else [expected], strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


TORCH: dict[str, tuple[Callable[..., Any], Callable[[Any], Callable[..., Any]], tuple[Array, ...]]] = {
    "gather": (lambda x, i: ops.gather(x, i, 1), lambda t: lambda x, i: t.gather(x, 1, i), (X, RNG.integers(0, 7, (6, 4)))),
    "index_select": (lambda x, i: ops.index_select(x, i, 1), lambda t: lambda x, i: t.index_select(x, 1, i), (X, RNG.integers(0, 7, 5))),
    "embedding": (ops.embedding, lambda t: lambda w, i: t.nn.functional.embedding(i, w), (X, RNG.integers(0, 6, (2, 3)))),
    "scatter": (
        lambda x, i, u: ops.scatter(x, i, u, 1),
        lambda t: lambda x, i, u: t.scatter(x, 1, i, u),
        (X, np.array([[3, 1, 0]] * 6), RNG.standard_normal((6, 3)).astype(np.float32)),
    ),
    "scatter_add": (
        lambda x, i, u: ops.scatter(x, i, u, 0, "add"),
        lambda t: lambda x, i, u: t.scatter_add(x, 0, i, u),
        (np.zeros((3, 4), np.int64), RNG.integers(0, 3, (8, 4)), RNG.integers(0, 9, (8, 4))),
    ),
    "scatter_max": (
        lambda x, i, u: ops.scatter(x, i, u, 0, "max"),
        lambda t: lambda x, i, u: t.scatter_reduce(x, 0, i, u, "amax"),
        (X, RNG.integers(0, 6, (9, 7)), RNG.standard_normal((9, 7)).astype(np.float32)),
    ),
    "index_put": (
        lambda x, v, i, j: ops.index_put(x, v, i, j, accumulate=True),
        lambda t: lambda x, v, i, j: t.index_put(x, (i, j), v, accumulate=True),
        (np.zeros((4, 5), np.int64), RNG.integers(0, 9, (3, 2)), np.array([[0], [1], [-1]]), np.array([2, 2])),
    ),
    "cumsum": (lambda x: ops.cumsum(x, 0), lambda t: lambda x: t.cumsum(x, 0), (TIES,)),
    "cumprod": (lambda x: ops.cumprod(x, 1), lambda t: lambda x: t.cumprod(x, 1), (TIES,)),
    "cummax": (lambda x: ops.cummax(x, 1), lambda t: lambda x: tuple(t.cummax(x, 1)), (TIES,)),
    "cummax_nan": (lambda x: ops.cummax(x, 1), lambda t: lambda x: tuple(t.cummax(x, 1)), (NAN,)),
    "cummin": (lambda x: ops.cummin(x, 0), lambda t: lambda x: tuple(t.cummin(x, 0)), (TIES,)),
    "sort": (ops.sort, lambda t: lambda x: tuple(t.sort(x, stable=True)), (TIES,)),
    "sort_descending": (
        lambda x: ops.sort(x, 0, descending=True),
        lambda t: lambda x: tuple(t.sort(x, dim=0, descending=True, stable=True)),
        (TIES,),
    ),
    "sort_nan": (ops.sort, lambda t: lambda x: tuple(t.sort(x, stable=True)), (NAN,)),
    "sort_nan_descending": (
        lambda x: ops.sort(x, descending=True),
        lambda t: lambda x: tuple(t.sort(x, descending=True, stable=True)),
        (NAN,),
    ),
    "topk": (lambda x: ops.topk(x, 3), lambda t: lambda x: tuple(t.topk(x, 3)), (X,)),
    "topk_smallest": (lambda x: ops.topk(x, 2, 0, largest=False), lambda t: lambda x: tuple(t.topk(x, 2, 0, largest=False)), (X,)),
    "nonzero": (ops.nonzero, lambda t: t.nonzero, (TIES,)),
    "where": (ops.where, lambda t: t.where, (TIES > 1,)),
    "masked_select": (ops.masked_select, lambda t: t.masked_select, (X, X > 0)),
    "searchsorted": (
        ops.searchsorted,
        lambda t: t.searchsorted,
        (np.sort(TIES), RNG.integers(-1, 6, (5, 4))),
    ),
    "bucketize": (
        lambda x, b: ops.bucketize(x, b, right=True),
        lambda t: lambda x, b: t.bucketize(x, b, right=True),
        (X, np.array([-1.0, 0.0, 0.5], np.float32)),
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    call, theirs, arrays = TORCH[name]
    same(ours(call, *arrays), theirs(torch)(*(torch.from_numpy(a.copy()) for a in arrays)))


def test_torch_unique() -> None:
    torch = pytest.importorskip("torch")
    values, _, inverse, counts = ours(ops.unique, TIES)
    expected = torch.unique(torch.from_numpy(TIES), return_inverse=True, return_counts=True)
    same([values, inverse, counts], [expected[0], expected[1].reshape(-1), expected[2]])


QUANTITIES = (RNG.standard_normal((4, 6)) * 40).astype(np.float32)
BOXES = np.sort(RNG.random((2, 12, 2, 2)), axis=2).reshape(2, 12, 4).astype(np.float32)
SCORES = RNG.random((2, 3, 12)).astype(np.float32)


def node(onnx: Any, op: str, inputs: int, outputs: int, **attributes: Any) -> Any:
    """A model of one node; its inputs and outputs have no shapes."""
    names = [f"x{k}" for k in range(inputs)], [f"y{k}" for k in range(outputs)]
    made = onnx.helper.make_node(op, *names, **attributes)
    values = [[onnx.helper.make_value_info(n, onnx.TypeProto()) for n in side] for side in names]
    graph = onnx.helper.make_graph([made], "one", *values)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])


I64 = np.int64
ONNX: dict[str, tuple[Callable[..., Any], str, dict[str, Any], tuple[Array, ...], int]] = {
    "gather_elements": (lambda x, i: ops.gather(x, i, 0), "GatherElements", {"axis": 0}, (X, RNG.integers(-6, 6, (3, 7))), 1),
    "gather_nd": (ops.gather_nd, "GatherND", {}, (X, RNG.integers(0, 6, (3, 2))), 1),
    "gather_nd_batch": (
        lambda x, i: ops.gather_nd(x, i, batch_dims=1),
        "GatherND",
        {"batch_dims": 1},
        (RNG.standard_normal((2, 3, 4)).astype(np.float32), RNG.integers(0, 3, (2, 5, 1))),
        1,
    ),
    "gather": (lambda x, i: ops.take(x, i, 1), "Gather", {"axis": 1}, (X, RNG.integers(-7, 7, (2, 3))), 1),
    "scatter_nd_mul": (
        lambda x, i, u: ops.scatter_nd(x, i, u, reduction="mul"),
        "ScatterND",
        {"reduction": "mul"},
        (X, np.array([[1], [3], [1]]), RNG.standard_normal((3, 7)).astype(np.float32)),
        1,
    ),
    "scatter_elements_min": (
        lambda x, i, u: ops.scatter(x, i, u, 1, "min"),
        "ScatterElements",
        {"axis": 1, "reduction": "min"},
        (X, RNG.integers(0, 7, (6, 3)), RNG.standard_normal((6, 3)).astype(np.float32)),
        1,
    ),
    "reverse_sequence": (
        ops.reverse_sequence,
        "ReverseSequence",
        {"time_axis": 0, "batch_axis": 1},
        (X, np.array([0, 1, 2, 3, 4, 5, 6])),
        1,
    ),
    "unique": (lambda x: ops.unique(x, sorted=False), "Unique", {"sorted": 0}, (TIES.reshape(-1),), 4),
    "unique_sorted": (ops.unique, "Unique", {"sorted": 1}, (TIES.reshape(-1),), 4),
    "quantize": (
        lambda x, s, z: ops.quantize_linear(x, s, z, dtype=np.int8),
        "QuantizeLinear",
        {},
        (QUANTITIES, np.array(0.3, np.float32), np.array(3, np.int8)),
        1,
    ),
    "quantize_axis": (
        lambda x, s, z: ops.quantize_linear(x, s, z, axis=0),
        "QuantizeLinear",
        {"axis": 0},
        (QUANTITIES, np.array([0.1, 0.5, 1.0, 2.0], np.float32), np.array([0, 9, 128, 255], np.uint8)),
        1,
    ),
    "dequantize_blocks": (
        lambda x, s, z: ops.dequantize_linear(x, s, z, axis=1, block_size=2),
        "DequantizeLinear",
        {"axis": 1, "block_size": 2},
        (RNG.integers(0, 255, (2, 6)).astype(np.uint8), RNG.random((2, 3)).astype(np.float32), RNG.integers(0, 9, (2, 3)).astype(np.uint8)),
        1,
    ),
    "dynamic_quantize": (ops.dynamic_quantize_linear, "DynamicQuantizeLinear", {}, (QUANTITIES,), 3),
    "cumsum_exclusive": (
        lambda x, a: ops.cumsum(x, 1, exclusive=True, reverse=True),
        "CumSum",
        {"exclusive": 1, "reverse": 1},
        (TIES, np.array(1)),
        1,
    ),
    "compress": (lambda x, c: ops.compress(x, c, axis=1), "Compress", {"axis": 1}, (X, np.array([True, False, True, True])), 1),
}


@pytest.mark.parametrize("name", ONNX)
def test_onnx_reference(name: str) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    call, op, attributes, arrays, outputs = ONNX[name]
    model = node(onnx, op, len(arrays), outputs, **attributes)
    expected = ReferenceEvaluator(model).run(None, {f"x{k}": a for k, a in enumerate(arrays)})
    found = ours(call, *arrays)
    for a, b in zip(found, expected, strict=True):
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-6)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("most", [0, 2, 20])
def test_suppression_of_onnxruntime(center: bool, most: int) -> None:
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    float_, int_ = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    given = [np.array([most], I64), np.array([0.3], np.float32), np.array([0.4], np.float32)]
    arrays = [BOXES, SCORES, *given]
    kinds = [float_, float_, int_, float_, float_]
    inputs = [onnx.helper.make_tensor_value_info(f"x{k}", kind, a.shape) for k, (kind, a) in enumerate(zip(kinds, arrays, strict=True))]
    out = onnx.helper.make_tensor_value_info("y", int_, [None, 3])
    made = onnx.helper.make_node("NonMaxSuppression", [i.name for i in inputs], ["y"], center_point_box=int(center))
    model = onnx.helper.make_model(
        onnx.helper.make_graph([made], "one", inputs, [out]), opset_imports=[onnx.helper.make_opsetid("", 11)], ir_version=8
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {f"x{k}": a for k, a in enumerate(arrays)})
    (found,) = ours(lambda b, s: ops.non_max_suppression(b, s, most, 0.3, 0.4, center_point_box=center), BOXES, SCORES)
    np.testing.assert_array_equal(found, expected)
