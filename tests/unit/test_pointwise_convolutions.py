"""Convolutions of single elements as matrix products: what is rewritten, what stays, and that results do not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pliant import ops
from pliant.dtype import DType, f16, f32
from pliant.graph.builder import Builder
from pliant.graph.node import Function, Op, Tensor
from pliant.graph.passes.pointwise_convolutions import pointwise_convolutions
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from pliant.sym.expr import Dim, const

n, h, w = Dim("n"), Dim("h"), Dim("w")


def made(call: Callable[..., Any], *shapes: tuple[Any, ...], dtype: DType = f32) -> Function:
    builder = Builder("f")
    params = [builder.param(f"x{k}", Tensor(dtype, tuple(const(e) if isinstance(e, int) else e for e in s))) for k, s in enumerate(shapes)]
    with builder:
        result = call(*params)
    return builder.finish([result])


def names(function: Function) -> list[str]:
    return [node.op for node in function.nodes if isinstance(node, Op)]


def arrays(function: Function) -> list[Any]:
    sizes = {n: 2, h: 9, w: 11}
    rng = np.random.default_rng(3)
    shapes = [[int(e.value) if hasattr(e, "value") else sizes[e] for e in p.tensor.shape] for p in function.params]
    return [rng.standard_normal(s).astype(p.tensor.dtype.numpy()) for s, p in zip(shapes, function.params, strict=True)]


def check(function: Function, expected: list[str]) -> None:
    changed = pointwise_convolutions(function)
    verify(changed)
    assert [op for op in names(changed) if op != "reshape"] == expected
    given = arrays(function)
    for a, b in zip(run_graph(function, given), run_graph(changed, given), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_what_follows_element_by_element_is_done_on_rows() -> None:
    def call(x: Any, weight: Any, bias: Any, scale: Any) -> Any:
        y = ops.conv(x, weight, bias)
        return ops.relu(ops.add(ops.mul(ops.mul(y, ops.sigmoid(y)), scale), x))

    function = made(call, (n, 8, h, w), (8, 8, 1, 1), (8,), (8, 1, 1))
    check(function, ["matmul", "add", "sigmoid", "mul", "mul", "add", "relu"])
    last = pointwise_convolutions(function).nodes[-1]
    assert isinstance(last, Op) and last.op == "reshape"  # nothing is between the operators


def test_several_in_a_row_stay_rows() -> None:
    def call(x: Any, a: Any, b: Any) -> Any:
        return ops.conv(ops.relu(ops.conv(x, a)), b)

    changed = pointwise_convolutions(made(call, (1, 4, 16, 16), (6, 4, 1, 1), (5, 6, 1, 1)))
    images = [node for node in changed.nodes if isinstance(node, Op) and node.op == "reshape" and len(node.outs[0].tensor.shape) == 4]
    read = {a for node in changed.nodes if isinstance(node, Op) for a in node.args}
    assert [node.outs[0] in read for node in images] == [False] * len(images)


def test_one_spatial_dim_needs_no_reshape_of_images() -> None:
    check(made(lambda x, weight: ops.conv(x, weight), (n, 4, w), (6, 4, 1)), ["matmul"])


@pytest.mark.parametrize(
    ("call", "shapes", "dtype"),
    [
        (lambda x, weight: ops.conv(x, weight, stride=2), ((1, 4, 16, 16), (6, 4, 1, 1)), f32),
        (lambda x, weight: ops.conv(x, weight, padding=1), ((1, 4, 16, 16), (6, 4, 1, 1)), f32),
        (lambda x, weight: ops.conv(x, weight, groups=2), ((1, 4, 16, 16), (6, 2, 1, 1)), f32),
        (lambda x, weight: ops.conv(x, weight), ((1, 4, 16, 16), (6, 4, 3, 1)), f32),
        (lambda x, weight: ops.conv(x, weight), ((1, 4, 7, 7), (6, 4, 1, 1)), f32),
        (lambda x, weight: ops.conv(x, weight), ((1, 4, 16, 16), (6, 4, 1, 1)), f16),
    ],
    ids=["stride", "padding", "groups", "window", "small", "rounding"],
)
def test_others_stay(call: Any, shapes: Any, dtype: DType) -> None:
    function = made(call, *shapes, dtype=dtype)
    assert pointwise_convolutions(function) is function


def test_operands_that_vary_along_rows_end_them() -> None:
    function = made(lambda x, weight, v: ops.add(ops.conv(x, weight), v), (n, 4, h, w), (6, 4, 1, 1), (h, w))
    check(function, ["matmul", "add"])


def test_an_image_of_one_spatial_dim_is_its_rows() -> None:
    function = made(lambda x, weight: ops.relu(ops.conv(x, weight)), (n, 8, h), (4, 8, 1))
    check(function, ["matmul", "relu"])


def test_transposed_convolutions_whose_windows_lie_side_by_side() -> None:
    weight = np.random.default_rng(1).standard_normal((6, 5, 3, 2)).astype(np.float32)
    bias = np.arange(5, dtype=np.float32)
    check(made(lambda x: ops.conv_transpose(x, weight, bias, stride=(3, 2)), (n, 6, h, w)), ["permute", "matmul", "permute", "add"])


@pytest.mark.parametrize("options", [{"stride": 2}, {"stride": 3, "padding": 1}, {"stride": 3, "output_padding": 1}])
def test_transposed_convolutions_whose_windows_meet_or_are_cut_stay(options: dict[str, Any]) -> None:
    weight = np.ones((6, 5, 3, 3), np.float32)
    check(made(lambda x: ops.conv_transpose(x, weight, **options), (n, 6, h, w)), ["conv_transpose"])


def test_images_of_one_place_are_rows() -> None:
    def call(x: Any, weight: Any, bias: Any) -> Any:
        return ops.relu(ops.conv(x, weight, bias))

    check(made(call, (n, 512, 1, 1), (600, 512, 1, 1), (600,)), ["permute", "matmul", "add", "relu"])
    check(made(call, (n, 32, 1, 1), (8, 32, 1, 1), (8,)), ["conv", "relu"])  # small weights stay
