"""Sums, means, norms, pools, products and functions, in every layout that rules tell apart, and how far a float result is from the truth.

    case = CASES["mean of an image"];  case.error(result, arrays)     # of the worst element, over eps times the sum of what is added

The truth is numpy's in float64. The error of a sum is given over the sum of the sizes of its terms: rounding every term and the result once
may cost 1. Where a result is no sum (norms, softmax), it is given over the result, or over the largest of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import erf, isqrt
from typing import Any

import numpy as np

from pliant import ops
from pliant.dtype import f32
from pliant.graph.builder import Builder
from pliant.graph.node import Tensor
from pliant.sym.expr import Dim, const

Array = np.ndarray[Any, Any]
EPS = float(np.finfo(np.float32).eps)
SIZES = (17, 1000, 4096, 6400, 65536, 1_000_000)


@dataclass(frozen=True)
class Case:
    """What is computed: of arrays whose shapes depend on sizes, which follow from the number of terms n."""

    shapes: Callable[..., tuple[tuple[Any, ...], ...]]
    call: Callable[..., Any]  # with operators
    truth: Callable[..., Any]  # in float64
    scale: Callable[..., Any]  # what errors are measured in: of the arrays in float64
    numpy: Callable[..., Any] | None = None  # in float32
    torch: Callable[..., Any] | None = None  # of the module and tensors
    onnx: Sequence[tuple[str, dict[str, Any]]] = ()  # operators one after the other
    known: dict[str, Array] = field(default_factory=dict)  # further inputs of the first one: initializers
    images: bool = False  # sizes are (h, w), not (n,)
    most: int = 1_000_000
    least: int = 1
    values: Callable[[Any, tuple[int, ...]], Array] = lambda rng, shape: rng.standard_normal(shape)

    def sizes(self, n: int) -> tuple[int, ...]:
        """The sizes for n terms: an image is as near to a square as n allows."""
        if not self.images:
            return (n,)
        h = next(d for d in range(isqrt(n), 0, -1) if n % d == 0)
        return (h, n // h)

    def arrays(self, n: int, seed: int) -> list[Array]:
        """The arrays: of all signs for even seeds, positive for odd ones, where rounding errors add up."""
        rng = np.random.default_rng(seed)
        made = (self.values(rng, shape) for shape in self.shapes(*self.sizes(n)))
        return [(np.abs(a) if seed % 2 and self.values is Case.values else a).astype(np.float32) for a in made]

    def program(self, n: int | None) -> Any:
        """The program for n terms, or for any number of them."""
        sizes: tuple[Any, ...] = (Dim("h"), Dim("w"))[-2 if self.images else -1 :] if n is None else self.sizes(n)
        builder = Builder("case")
        shapes = [tuple(const(e) if isinstance(e, int) else e for e in shape) for shape in self.shapes(*sizes)]
        params = [builder.param(f"x{k}", Tensor(f32, shape)) for k, shape in enumerate(shapes)]
        with builder:
            result = self.call(*params)
        return builder.finish([result])

    def error(self, result: Any, arrays: Sequence[Array]) -> float:
        """How far a result is off, at its worst element."""
        wide = [a.astype(np.float64) for a in arrays]
        truth = np.asarray(self.truth(*wide))
        assert np.shape(result) == truth.shape, (np.shape(result), truth.shape)
        return float(np.max(np.abs(np.asarray(result, np.float64) - truth) / (EPS * self.scale(*wide))))


def _model(case: Case, arrays: Sequence[Array]) -> Any:
    """A session of onnxruntime for a case."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    names = [f"x{k}" for k in range(len(arrays))]
    given = [*names, *case.known]
    nodes = []
    for k, (op, attrs) in enumerate(case.onnx):
        own = {name: a for name, a in attrs.items() if not name.startswith("_")}
        nodes.append(helper.make_node(op, given if k == 0 else [f"y{k - 1}"], [f"y{k}"], **own))
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, a.shape) for name, a in zip(names, arrays, strict=True)]
    out = helper.make_tensor_value_info(f"y{len(nodes) - 1}", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "case", inputs, [out], [numpy_helper.from_array(a, name) for name, a in case.known.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def of_onnxruntime(case: Case, arrays: Sequence[Array]) -> Callable[..., Array]:
    """A case by onnxruntime, for arrays of these shapes."""
    session = _model(case, arrays)
    return lambda *xs: session.run(None, {f"x{k}": x for k, x in enumerate(xs)})[0]  # type: ignore[no-any-return]


def _axes(*axes: int) -> dict[str, Array]:
    return {"axes": np.array(axes, np.int64)}


def _reduced(shapes: Callable[..., Any], axis: tuple[int, ...], images: bool = False, **more: Any) -> dict[str, Case]:
    """The sums and what is made of them along some axes."""
    known = _axes(*axis)
    kept = {"keepdims": 0}

    def count(x: Array) -> Any:
        return np.prod([x.shape[a] for a in axis])

    def total(x: Array) -> Any:
        return np.sum(np.abs(x), axis)

    def var(x: Array) -> Any:
        return np.var(x, axis)

    def case(call: Any, truth: Any, scale: Any, plain: Any, torch: Any, op: str) -> Case:
        return Case(shapes, call, truth, scale, plain, torch, [(op, kept)] if op else (), known, images=images, **more)

    def logsumexp(x: Array) -> Any:
        top = x.max(axis, keepdims=True)
        return np.log(np.exp(x - top).sum(axis)) + top.squeeze(axis)

    return {
        "sum": case(lambda x: ops.sum(x, axis), lambda x: x.sum(axis), total, lambda x: x.sum(axis), lambda t, x: x.sum(axis), "ReduceSum"),
        "mean": case(
            lambda x: ops.mean(x, axis), lambda x: x.mean(axis), lambda x: total(x) / count(x), lambda x: x.mean(axis),
            lambda t, x: x.mean(axis), "ReduceMean",
        ),
        "variance": case(
            lambda x: ops.var(x, axis, correction=0), var, var, var, lambda t, x: t.var(x, axis, correction=0), "",
        ),
        "length": case(
            lambda x: ops.norm(x, axis), lambda x: np.sqrt((x * x).sum(axis)), lambda x: np.sqrt((x * x).sum(axis)),
            lambda x: np.sqrt((x * x).sum(axis)), lambda t, x: t.linalg.vector_norm(x, 2, axis), "ReduceL2",
        ),
        "sum of squares": case(
            lambda x: ops.sum_square(x, axis), lambda x: (x * x).sum(axis), lambda x: (x * x).sum(axis), lambda x: (x * x).sum(axis),
            lambda t, x: (x * x).sum(axis), "ReduceSumSquare",
        ),
        "log of sum of exp": case(
            lambda x: ops.logsumexp(x, axis), logsumexp, lambda x: np.abs(logsumexp(x)) + 1, logsumexp,
            lambda t, x: t.logsumexp(x, axis), "ReduceLogSumExp",
        ),
    }  # fmt: skip


def _softmax(x: Array, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _standard(x: Array, axes: tuple[int, ...], eps: float = 1e-5) -> Any:
    eps = x.dtype.type(eps)
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def _largest(truth: Callable[..., Any]) -> Callable[..., Any]:
    """Errors in units of the largest element of the result."""
    return lambda *xs: np.max(np.abs(truth(*xs)))


def _centre(channels: int) -> Array:
    """The weights of a convolution that changes nothing."""
    w = np.zeros((channels, channels, 3, 3), np.float32)
    w[np.arange(channels), np.arange(channels), 1, 1] = 1
    return w


def _in_blocks(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call with an image of 16 channels that a convolution made: it lies in blocks of channels."""
    return lambda x: call(ops.conv(x, ops.constant(_centre(16)), padding=1))


def _grouped(x: Array, groups: int) -> Any:
    return _standard(x.reshape(x.shape[0], groups, -1), (2,)).reshape(x.shape)


def _product(case: tuple[Any, Any, Any], a: Callable[..., Any], most: int, numpy: Any = None, torch: Any = None) -> Case:
    shapes, call, truth = case
    return Case(
        shapes, call, truth, lambda x, y: truth(np.abs(x), np.abs(y)), numpy or truth, torch or (lambda t, x, y: truth(x, y)),
        [("MatMul", {})] if a is None else a, most=most,
    )  # fmt: skip


def _pool(x: Array, k: int) -> Any:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // k, k, w // k, k).mean((3, 5))


def _windows(x: Array, k: int) -> Any:
    """The means of all windows of k by k."""
    return np.lib.stride_tricks.sliding_window_view(x, (k, k), (2, 3)).mean((4, 5))


def _quarters(x: Array) -> Any:
    """The means of the four quarters of images, which have a row or a column in common where their number is odd."""
    h, w = x.shape[2:]
    rows, columns = (slice(0, (h + 1) // 2), slice(h // 2, h)), (slice(0, (w + 1) // 2), slice(w // 2, w))
    return np.stack([np.stack([x[:, :, r, c].mean((2, 3)) for c in columns], -1) for r in rows], -2)


def _near_one(rng: Any, shape: tuple[int, ...]) -> Array:
    return np.exp(rng.standard_normal(shape) / np.sqrt(shape[-1]))


IMAGE = {"images": True}
_IMAGES = (lambda h, w: ((2, 3, h, w),), (2, 3), True)
_LAYOUTS: dict[str, tuple[Any, ...]] = {
    "along rows": (lambda n: ((5, n),), (1,)),
    "along columns": (lambda n: ((n, 9),), (0,)),
    "in the middle": (lambda n: ((2, n, 3),), (1,)),
    "of everything": (lambda n: ((n,),), (0,)),
    "of an image": _IMAGES,
    "of images, each channel": (lambda h, w: ((3, 4, h, w),), (0, 2, 3), True),
    "of places": (lambda h, w: ((h, w, 5),), (0, 1), True),
}
_PRODUCTS = {
    "matrix product": (lambda n: ((7, n), (n, 20)), lambda x, y: ops.matmul(x, y), lambda x, y: x @ y),
    "product with a transposed matrix": (
        lambda n: ((7, n), (20, n)), lambda x, y: ops.matmul(x, y, transpose_b=True), lambda x, y: x @ y.T
    ),
    "product of a transposed matrix": (
        lambda n: ((n, 7), (n, 20)), lambda x, y: ops.matmul(x, y, transpose_a=True), lambda x, y: x.T @ y
    ),
    "product with a vector": (lambda n: ((7, n), (n,)), lambda x, y: ops.matmul(x, y), lambda x, y: x @ y),
    "product of vectors": (lambda n: ((n,), (n,)), lambda x, y: ops.matmul(x, y), lambda x, y: x @ y),
    "row times matrix": (lambda n: ((1, n), (n, 512)), lambda x, y: ops.matmul(x, y), lambda x, y: x @ y),
    "products of a batch": (lambda n: ((2, 3, n), (2, n, 9)), lambda x, y: ops.matmul(x, y), lambda x, y: x @ y),
}  # fmt: skip

CASES: dict[str, Case] = {f"{what} {where}": case for where, layout in _LAYOUTS.items() for what, case in _reduced(*layout).items()}
for _name, _case in _PRODUCTS.items():
    _transposed = [("Gemm", {"transB" if "with" in _name else "transA": 1})] if "transposed" in _name else None
    CASES[_name] = _product(_case, _transposed, 65536 if "row" in _name or "batch" in _name else 1_000_000)  # type: ignore[arg-type]
for _what, _case in _reduced(lambda h, w: ((1, 16, h, w),), (2, 3), True).items():
    CASES[f"{_what} of an image in blocks of channels"] = Case(**{**_case.__dict__, "call": _in_blocks(_case.call), "most": 65536})
CASES |= {
    "product along rows": Case(
        lambda n: ((5, n),), lambda x: ops.prod(x, 1), lambda x: x.prod(1), lambda x: x.prod(1), lambda x: x.prod(1),
        lambda t, x: x.prod(1), [("ReduceProd", {"keepdims": 0})], _axes(1), values=_near_one,
    ),
    "softmax along rows": Case(
        lambda n: ((5, n),), ops.softmax, lambda x: _softmax(x, 1), lambda x: _softmax(x, 1), lambda x: _softmax(x, 1),
        lambda t, x: t.softmax(x, 1), [("Softmax", {"axis": 1})],
    ),
    "softmax along columns": Case(
        lambda n: ((n, 9),), lambda x: ops.softmax(x, 0), lambda x: _softmax(x, 0), lambda x: _softmax(x, 0), lambda x: _softmax(x, 0),
        lambda t, x: t.softmax(x, 0), [("Softmax", {"axis": 0})],
    ),
    "log of softmax along rows": Case(
        lambda n: ((5, n),), ops.log_softmax, lambda x: np.log(_softmax(x, 1)), lambda x: np.abs(np.log(_softmax(x, 1))) + 1,
        lambda x: np.log(_softmax(x, 1)), lambda t, x: t.log_softmax(x, 1), [("LogSoftmax", {"axis": 1})],
    ),
    "norm of rows": Case(
        lambda n: ((5, n),), ops.layer_norm, lambda x: _standard(x, (1,)), _largest(lambda x: _standard(x, (1,))),
        lambda x: _standard(x, (1,)), lambda t, x: t.nn.functional.layer_norm(x, x.shape[1:]),
    ),
    "norm of images": Case(
        lambda h, w: ((2, 3, h, w),), lambda x: ops.layer_norm(x, axis=1), lambda x: _standard(x, (1, 2, 3)),
        _largest(lambda x: _standard(x, (1, 2, 3))), lambda x: _standard(x, (1, 2, 3)),
        lambda t, x: t.nn.functional.layer_norm(x, x.shape[1:]), **IMAGE,
    ),
    "norm of each channel": Case(
        lambda h, w: ((2, 3, h, w),), ops.instance_norm, lambda x: _standard(x, (2, 3)), _largest(lambda x: _standard(x, (2, 3))),
        lambda x: _standard(x, (2, 3)), lambda t, x: t.nn.functional.instance_norm(x),
        [("InstanceNormalization", {})], {"scale": np.ones(3, np.float32), "bias": np.zeros(3, np.float32)}, **IMAGE,
    ),
    "norm of groups": Case(
        lambda h, w: ((2, 8, h, w),), lambda x: ops.group_norm(x, groups=2), lambda x: _grouped(x, 2), _largest(lambda x: _grouped(x, 2)),
        lambda x: _grouped(x, 2), lambda t, x: t.nn.functional.group_norm(x, 2), **IMAGE,
    ),
    "norm of each channel in blocks of channels": Case(
        lambda h, w: ((1, 16, h, w),), _in_blocks(ops.instance_norm), lambda x: _standard(x, (2, 3)),
        _largest(lambda x: _standard(x, (2, 3))), lambda x: _standard(x, (2, 3)), lambda t, x: t.nn.functional.instance_norm(x),
        [("InstanceNormalization", {})], {"scale": np.ones(16, np.float32), "bias": np.zeros(16, np.float32)}, most=65536, **IMAGE,
    ),
    "rows over their length": Case(
        lambda n: ((5, n),), ops.lp_normalize, lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)),
        lambda x: np.max(np.abs(x)) / np.sqrt((x * x).sum(1, keepdims=True)), lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)),
        lambda t, x: t.nn.functional.normalize(x), [("LpNormalization", {"axis": 1})],
    ),
    "pool of everything": Case(
        lambda h, w: ((2, 3, h, w),), ops.global_avg_pool, lambda x: x.mean((2, 3), keepdims=True),
        lambda x: np.abs(x).mean((2, 3), keepdims=True), lambda x: x.mean((2, 3), keepdims=True),
        lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, 1), [("GlobalAveragePool", {})], **IMAGE,
    ),
    "pools of 40x40": Case(
        lambda n: ((2, 3, 80, n),), lambda x: ops.avg_pool(x, 40), lambda x: _pool(x, 40), lambda x: _pool(np.abs(x), 40),
        lambda x: _pool(x, 40), lambda t, x: t.nn.functional.avg_pool2d(x, 40),
        [("AveragePool", {"kernel_shape": [40, 40], "strides": [40, 40]})], most=6400, least=6400,
    ),
    "two by two pools": Case(
        lambda h, w: ((2, 3, h, w),), lambda x: ops.adaptive_avg_pool(x, 2), _quarters, lambda x: _quarters(np.abs(x)), _quarters,
        lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, 2), **IMAGE,
    ),
    "convolution": Case(
        lambda n: ((1, n, 3, 3), (6, n, 3, 3)), lambda x, w: ops.conv(x, w),
        lambda x, w: np.einsum("nchw,ochw->no", x, w)[:, :, None, None],
        lambda x, w: np.einsum("nchw,ochw->no", np.abs(x), np.abs(w))[:, :, None, None], None,
        lambda t, x, w: t.nn.functional.conv2d(x, w), [("Conv", {})], most=6400,
    ),
}  # fmt: skip


for _k in (3, 7):
    CASES[f"pools of {_k}x{_k}"] = Case(
        lambda n: ((2, 3, 9, n),), lambda x, k=_k: ops.avg_pool(x, k, stride=1), lambda x, k=_k: _windows(x, k),
        lambda x, k=_k: _windows(np.abs(x), k), lambda x, k=_k: _windows(x, k),
        lambda t, x, k=_k: t.nn.functional.avg_pool2d(x, k, stride=1), [("AveragePool", {"kernel_shape": [_k, _k]})], most=6400,
    )  # fmt: skip


def _function(call: Any, plain: Any, torch: str, op: str, values: Any) -> Case:
    """A function of each element, in units of its result's last place."""
    return Case(
        lambda n: ((n,),), call, plain, lambda x: np.maximum(np.abs(plain(x)), 2.0**-100), None if plain in _OWN else plain,
        lambda t, x: getattr(t if hasattr(t, torch) else t.nn.functional, torch)(x), [(op, {})] if op else (), values=values,
        most=65536, least=65536,
    )  # fmt: skip


def _erf(x: Array) -> Any:
    return np.vectorize(erf, otypes=[np.float64])(x)


def _sigmoid(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


def _gelu(x: Array) -> Any:
    return x * (0.5 + 0.5 * _erf(x * np.sqrt(0.5)))


def _softplus(x: Array) -> Any:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


_OWN = (_erf, _sigmoid, _gelu)
_WIDE = lambda rng, shape: rng.uniform(-20, 20, shape)  # noqa: E731
_POSITIVE = lambda rng, shape: rng.uniform(0.001, 100, shape)  # noqa: E731
_UNIT = lambda rng, shape: rng.uniform(-1, 1, shape)  # noqa: E731
_ABOVE_ONE = lambda rng, shape: rng.uniform(1.001, 100, shape)  # noqa: E731
FUNCTIONS = {
    "exp": _function(ops.exp, np.exp, "exp", "Exp", _WIDE),
    "log": _function(ops.log, np.log, "log", "Log", _POSITIVE),
    "tanh": _function(ops.tanh, np.tanh, "tanh", "Tanh", _WIDE),
    "sigmoid": _function(ops.sigmoid, _sigmoid, "sigmoid", "Sigmoid", _WIDE),
    "erf": _function(ops.erf, _erf, "erf", "Erf", _WIDE),
    "sin": _function(ops.sin, np.sin, "sin", "Sin", _WIDE),
    "cos": _function(ops.cos, np.cos, "cos", "Cos", _WIDE),
    "sqrt": _function(ops.sqrt, np.sqrt, "sqrt", "Sqrt", _POSITIVE),
    "log1p": _function(ops.log1p, np.log1p, "log1p", "", _POSITIVE),
    "expm1": _function(ops.expm1, np.expm1, "expm1", "", _WIDE),
    "atan": _function(ops.atan, np.arctan, "atan", "Atan", _WIDE),
    "sinh": _function(ops.sinh, np.sinh, "sinh", "Sinh", _WIDE),
    "cosh": _function(ops.cosh, np.cosh, "cosh", "Cosh", _WIDE),
    "tan": _function(ops.tan, np.tan, "tan", "Tan", _WIDE),
    "asin": _function(ops.asin, np.arcsin, "asin", "Asin", _UNIT),
    "acos": _function(ops.acos, np.arccos, "acos", "Acos", _UNIT),
    "asinh": _function(ops.asinh, np.arcsinh, "asinh", "Asinh", _WIDE),
    "acosh": _function(ops.acosh, np.arccosh, "acosh", "Acosh", _ABOVE_ONE),
    "atanh": _function(ops.atanh, np.arctanh, "atanh", "Atanh", _UNIT),
    "silu": _function(ops.silu, lambda x: x * _sigmoid(x), "silu", "", _WIDE),
    "softplus": _function(ops.softplus, _softplus, "softplus", "Softplus", _WIDE),
    "softsign": _function(ops.softsign, lambda x: x / (1 + np.abs(x)), "softsign", "Softsign", _WIDE),
    "mish": _function(ops.mish, lambda x: x * np.tanh(_softplus(x)), "mish", "Mish", _WIDE),
    # of the argument: 0.5 + erf / 2 cancels far below 0
    "gelu": replace(_function(ops.gelu, _gelu, "gelu", "", _WIDE), scale=np.abs),
}
