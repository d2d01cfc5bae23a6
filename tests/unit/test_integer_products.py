"""Products of codes: what becomes one, that results stay, that kernels are integer ones, and that no transposes are left between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pliant import ops as _ops
from pliant.dtype import DType, f32, i8, u8
from pliant.graph.builder import Builder
from pliant.graph.node import Function, Op, Tensor
from pliant.graph.passes.dead_code import dead_code
from pliant.graph.passes.integer_products import integer_products
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from pliant.pipeline import compile_as_far_as
from pliant.program import Program
from pliant.sym.expr import Dim, const
from pliant.target import target

ops: Any = _ops
n, h, w = Dim("n"), Dim("h"), Dim("w")
RNG = np.random.default_rng(5)


def made(call: Callable[..., Any], dtype: DType, *shapes: tuple[Any, ...]) -> Function:
    builder = Builder("f")
    params = [builder.param(f"x{k}", Tensor(dtype, tuple(const(e) if isinstance(e, int) else e for e in s))) for k, s in enumerate(shapes)]
    with builder:
        result = call(*params)
    return builder.finish([result])


def number(codes: Any, zero: int, scale: float = 0.05) -> Any:
    of = codes.annotation.dtype
    return ops.dequantize_linear(codes, np.float32(scale), of.numpy().type(zero))


def code(x: Any, zero: int, to: DType, scale: float = 0.05) -> Any:
    return ops.quantize_linear(x, np.float32(scale), to.numpy().type(zero), dtype=to)


def weight(*shape: int, axis: int | None = 0, kind: Any = np.int8, zero: int = 0) -> Any:
    limits = np.iinfo(kind)
    codes = RNG.integers(limits.min, limits.max, shape).astype(kind)
    scale = (RNG.random(() if axis is None else (shape[axis],)) * 0.01 + 0.001).astype(np.float32)
    return ops.dequantize_linear(codes, scale, np.full(scale.shape, zero, kind), axis=axis or 0)


def counts(function: Function) -> Counter[str]:
    return Counter(node.op for node in function.nodes if isinstance(node, Op))


def changed(function: Function, *shapes: tuple[int, ...]) -> Function:
    """The function with integer products, which gives the same codes (or floats up to their rounding)."""
    found = dead_code(integer_products(function))
    verify(found)
    limits = np.iinfo(function.params[0].tensor.dtype.numpy())
    given = [RNG.integers(limits.min, limits.max + 1, s).astype(limits.dtype) for s in shapes]
    for a, b in zip(run_graph(function, given), run_graph(found, given), strict=True):
        assert a.dtype == b.dtype
        if a.dtype == np.float32:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
        else:  # a sum that is rounded once can lie on the other side of a half
            assert np.abs(a.astype(int) - b.astype(int)).max(initial=0) <= 1
            assert np.mean(a != b) < 0.01
    return found


@pytest.mark.parametrize("of", [i8, u8])
@pytest.mark.parametrize(("kind", "zero"), [(np.int8, 0), (np.int8, 3), (np.uint8, 128)])
def test_a_convolution(of: DType, kind: Any, zero: int) -> None:
    def call(x: Any) -> Any:
        bias = ops.constant(RNG.standard_normal(6).astype(np.float32))
        y = ops.conv(number(x, 7), weight(6, 4, 3, 2, kind=kind, zero=zero), bias, stride=(2, 1), padding=((1, 1), (0, 1)), dilation=(1, 2))
        return code(ops.relu(y), 3, of, 0.2)

    found = changed(made(call, of, (n, 4, h, w)), (2, 4, 9, 8))
    assert counts(found)["matmul_integer"] == 1
    assert counts(found)["conv"] == 0


def test_one_dim_and_three() -> None:
    for kernel, shape in (((3,), (2, 4, 9)), ((2, 3, 1), (1, 4, 4, 5, 6))):

        def call(x: Any, kernel: tuple[int, ...] = kernel) -> Any:
            return ops.conv(number(x, 100), weight(3, 4, *kernel, axis=None), None, padding=1)

        found = changed(made(call, u8, (n, 4, *shape[2:])), shape)
        assert counts(found)["matmul_integer"] == 1


@pytest.mark.parametrize("of", [i8, u8])
@pytest.mark.parametrize(("kind", "zero"), [(np.int8, 0), (np.uint8, 128)])
def test_depthwise(of: DType, kind: Any, zero: int) -> None:
    def call(x: Any) -> Any:
        first = code(ops.conv(number(x, 3), weight(8, 8, 1, 1)), 9, of, 0.2)
        y = ops.conv(number(first, 9), weight(8, 1, 3, 3, kind=kind, zero=zero), padding=1, groups=8, stride=2)
        return code(ops.conv(number(code(ops.relu(y), 3, of, 0.2), 3), weight(6, 8, 1, 1)), 9, of, 0.2)

    found = changed(made(call, of, (n, 8, h, w)), (2, 8, 7, 6))
    assert counts(found)["depthwise_integer"] == 1
    assert counts(found)["conv"] == 0
    images = [node for node in found.nodes if isinstance(node, Op) and node.op == "permute" and n in node.outs[0].tensor.shape]
    assert len(images) == 2  # at the start and at the end


def test_groups_are_products_of_their_own() -> None:
    def call(x: Any) -> Any:
        return code(ops.conv(number(x, 100), weight(12, 4, 3, 3), padding=1, groups=2), 3, u8, 0.5)

    found = changed(made(call, u8, (n, 8, h, w)), (2, 8, 5, 4))
    assert counts(found)["matmul_integer"] == 1
    assert counts(found)["conv"] == 0


def test_a_block_has_no_transposes_inside() -> None:
    def call(x: Any) -> Any:
        first = code(ops.relu(ops.conv(number(x, 0), weight(8, 8, 3, 3), padding=1)), 0, u8)
        second = ops.conv(number(first, 0), weight(8, 8, 1, 1))
        both = code(ops.relu(ops.add(second, number(first, 0))), 0, u8)
        return code(ops.conv(number(both, 0), weight(8, 8, 3, 3), padding=1), 9, u8, 0.2)

    found = changed(made(call, u8, (n, 8, h, w)), (1, 8, 5, 6))
    images = [node for node in found.nodes if isinstance(node, Op) and node.op == "permute" and n in node.outs[0].tensor.shape]
    assert counts(found)["matmul_integer"] == 3
    assert len(images) == 2  # at the start and at the end


def test_matrix_products() -> None:
    def call(x: Any) -> Any:
        y = ops.matmul(number(x, 5), weight(16, 12, axis=1))
        return ops.matmul(number(code(y, 7, i8, 0.3), 7), weight(10, 12, axis=0), transpose_b=True)

    found = changed(made(call, i8, (n, 3, 16)), (2, 3, 16))
    assert counts(found)["matmul_integer"] == 2
    assert counts(found)["matmul"] == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ops.conv(number(x, 0), ops.constant(np.ones((4, 8, 1, 1), np.float32))),
        lambda x: ops.conv(number(x, 0), weight(4, 8, 1, 1, axis=1)),
    ],
    ids=["a weight of floats", "scales along the sum"],
)
def test_what_stays(call: Callable[..., Any]) -> None:
    function = made(call, u8, (n, 8, h, w))
    assert integer_products(function) is function


def test_the_kernels_are_integer_ones_and_quantise_their_results() -> None:
    def call(x: Any) -> Any:
        q = code(ops.relu(ops.conv(number(x, 128), weight(64, 32, 3, 3), padding=1)), 0, u8)
        return code(ops.conv(number(q, 0), weight(64, 64, 1, 1)), 128, u8)

    program = Program.of(made(call, u8, (n, 32, h, w)))
    rules = compile_as_far_as("emit", program, target("llvm:znver4"), False).package.interface.rules
    used = [str(rule) for rule in rules if "avx512vnni.dot_u8s8" in str(rule)]
    assert len(used) == 2
    assert all("in its write-back" in rule for rule in used)


def test_results_of_compiled_programs() -> None:
    import pliant

    def call(x: Any) -> Any:
        y = ops.relu(ops.conv(number(x, 7), weight(20, 5, 3, 3), padding=1, stride=2))
        return code(ops.conv(number(code(y, 0, u8), 0), weight(9, 20, 1, 1), ops.constant(np.ones(9, np.float32))), 100, u8)

    function = made(call, u8, (n, 5, h, w))
    compiled = pliant.compile(Program.of(function))
    for shape in ((1, 5, 8, 8), (3, 5, 5, 9)):
        x = RNG.integers(0, 256, shape).astype(np.uint8)
        np.testing.assert_array_equal(compiled(x), run_graph(integer_products(function), [x])[0])


def test_f32_is_the_result() -> None:
    function = made(lambda x: ops.conv(number(x, 0), weight(4, 8, 1, 1)), u8, (n, 8, h, w))
    assert changed(function, (1, 8, 3, 3)).results[0].tensor.dtype is f32
