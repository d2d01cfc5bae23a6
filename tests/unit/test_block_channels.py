"""Images between convolutions in blocks of channels: which values lie so, and that results stay what numpy says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compiled_graphs import compiled
from pliant import ops
from pliant.api import program_of
from pliant.dtype import f32
from pliant.graph.builder import Builder
from pliant.graph.node import CallLoop, Function, Tensor
from pliant.interp.graph import run_graph
from pliant.pipeline import compile_as_far_as
from pliant.sym.expr import Dim, const
from pliant.target import target

RNG = np.random.default_rng(11)
SIXTEEN = replace(target("llvm:x86-64-v4"), vector_bits=512)  # lanes


def weights(*shape: int) -> Any:
    return (RNG.standard_normal(shape) * 0.2).astype(np.float32)


def net(body: Callable[[Any], Any], channels: int = 3, batch: int | None = None) -> Function:
    """A function of one image whose size is not known."""
    builder = Builder("net")
    shape = (Dim("n", 1) if batch is None else const(batch), const(channels), Dim("h", 1), Dim("w", 1))
    x = builder.param("x", Tensor(f32, shape))
    with builder:
        result = body(x)
    return builder.finish([result])


def shapes(function: Function) -> dict[str, list[str]]:
    """The shapes of what each loop program makes, when layouts are chosen."""
    done = compile_as_far_as("choose_layouts", program_of(function), SIXTEEN).function
    return {
        n.callee.name: [str(e) for e in n.outs[0].tensor.shape] for n in done.nodes if isinstance(n, CallLoop) and n.callee.name != "pack"
    }


def first(x: Any, out: int = 32) -> Any:
    return ops.relu(ops.conv(x, weights(out, 3, 3, 3), weights(out), padding=1))


def last(x: Any, channels: int) -> Any:
    return ops.conv(x, weights(5, channels, 1, 1), weights(5))


def residual(x: Any) -> Any:
    y = first(x)
    z = ops.conv(y, weights(32, 32, 3, 3), weights(32), stride=1, padding=1)
    return last(ops.add(y, ops.mul(z, ops.sigmoid(z))), 32)


def parts(x: Any) -> Any:
    y = first(x, 64)
    a, b = ops.slice(y, 1, 0, 32), ops.slice(y, 1, 32, 64)
    return last(ops.concat([ops.max_pool(a, 5, stride=1, padding=2), b, ops.tanh(y)], axis=1), 128)


def depthwise(x: Any) -> Any:
    y = ops.conv(first(x), weights(32, 1, 5, 5), weights(32), stride=2, padding=2, groups=32)
    return last(ops.clip(y, 0.0, 6.0), 32)


def attention(x: Any) -> Any:
    y = first(x, 24)
    s = ops.relu(ops.conv(ops.mean(y, axis=(2, 3), keepdims=True), weights(8, 24, 1, 1), weights(8)))
    return last(ops.mul(y, ops.sigmoid(ops.conv(s, weights(24, 8, 1, 1), weights(24)))), 24)


def odd(x: Any) -> Any:
    y = ops.conv(first(x, 20), weights(48, 20, 3, 3), weights(48))
    return last(ops.conv_transpose(ops.conv(y, weights(18, 48, 1, 1)), weights(18, 16, 2, 2), weights(16), stride=2), 16)


def strided(x: Any) -> Any:
    return last(ops.avg_pool(ops.conv(first(x, 16), weights(16, 16, 3, 3), weights(16), stride=2, padding=1), 2, stride=2), 16)


NETS = {f.__name__: f for f in (residual, parts, depthwise, attention, odd, strided)}


@pytest.mark.parametrize(("name", "batch"), [*((name, None) for name in NETS), ("strided", 1)])
def test_results_are_those_of_the_interpreter(name: str, batch: int | None) -> None:
    function = net(NETS[name], batch=batch)
    f = compiled(function, poison=True)
    for size in ((9, 13), (8, 27), (5, 6)):
        x = RNG.standard_normal((batch or 2, 3, *size)).astype(np.float32)
        (wanted,) = run_graph(function, [x])
        np.testing.assert_allclose(f(x), wanted, rtol=1e-4, atol=1e-4)


def test_values_between_convolutions_lie_in_blocks() -> None:
    found = shapes(net(residual))
    assert found == {
        "conv_relu": ["n", "2", "h", "w", "16"],
        "winograd_weight": ["4", "4", "32", "32"],
        "winograd_conv_sigmoid_mul_add": ["n", "2", "h", "w", "16"],
        "conv": ["n", "5", "h", "w"],
    }


def test_a_batch_of_one_has_no_dim() -> None:
    assert shapes(net(residual, batch=1))["conv_relu"] == ["2", "h", "w", "16"]


def test_one_block_has_channels_last() -> None:
    assert shapes(net(strided))["conv_relu"] == ["n", "h", "w", "16"]


def test_parts_of_vectors_where_a_vector_does_not_divide() -> None:
    """A quarter, one and a half, two and a half: the size whose registers have the fewest unused lanes."""
    assert shapes(net(lambda x: last(first(x, 20), 20)))["conv_relu"] == ["n", "5", "h", "w", "4"]
    assert shapes(net(lambda x: last(first(x, 24), 24)))["conv_relu"] == ["n", "h", "w", "24"]
    assert shapes(net(lambda x: last(first(x, 72), 72)))["conv_relu"] == ["n", "3", "h", "w", "24"]
    assert shapes(net(lambda x: last(first(x, 40), 40)))["conv_relu"] == ["n", "h", "w", "40"]


def test_channels_that_no_block_divides_stay() -> None:
    assert shapes(net(lambda x: last(first(x, 18), 18)))["conv_relu"] == ["n", "18", "h", "w"]


def test_parts_that_begin_inside_of_a_block_keep_the_whole_class_as_it_is() -> None:
    found = shapes(net(lambda x: last(ops.slice(first(x), 1, 2, 18), 16)))
    assert found["conv_relu"] == ["n", "32", "h", "w"]


def test_results_of_the_function_stay() -> None:
    assert shapes(net(first))["conv_relu"] == ["n", "32", "h", "w"]


def test_images_without_convolutions_stay() -> None:
    assert shapes(net(lambda x: ops.max_pool(ops.exp(ops.max_pool(x, 3)), 3), 32))["max_pool_exp"] == ["n", "32", "h // 3", "w // 3"]
