"""Each operator's stages against its numpy reference, on small odd shapes, static and symbolic, empty and without dims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from op_cases import CASES, arrays_of, build, by_stages
from pliant import ops
from pliant.dtype import f32
from pliant.graph.builder import Builder
from pliant.graph.node import Op, Scalar, Tensor
from pliant.graph.op_table import TABLE
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph
from pliant.sym.expr import Dim, const

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-6, "float64": 1e-12}


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("name", CASES)
def test_stages_equal_the_reference(name: str, symbolic: bool) -> None:
    case = CASES[name]
    function, env, shapes = build(case, symbolic)
    verify(function)
    arrays = arrays_of(case, shapes)
    for found, expected in zip(by_stages(function, arrays, env), run_graph(function, arrays), strict=True):
        assert found.shape == expected.shape and found.dtype == expected.dtype
        if expected.dtype.name in TOLERANCE:
            close = TOLERANCE[expected.dtype.name]
            np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=close, atol=close)
        else:
            np.testing.assert_array_equal(found, expected)


def test_every_operator_is_tried() -> None:
    tried = {n.op for case in CASES.values() for n in build(case, True)[0].nodes if isinstance(n, Op)}
    assert tried == TABLE.keys()


# The references themselves, against numbers worked out by other means.


def reference(call: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """The value of an operator call in the interpreter."""
    from pliant.dtype import dtype

    builder = Builder("case")
    params = [builder.param(f"x{k}", Tensor(dtype(a.dtype), tuple(map(const, a.shape)))) for k, a in enumerate(arrays)]
    with builder:
        result = call(*params)
    return run_graph(builder.finish([result]), arrays)[0]


def test_known_values() -> None:
    x = np.array([[3.0, 4.0]], np.float32)
    np.testing.assert_allclose(reference(lambda v: ops.rms_norm(v, np.array([1, 2], np.float32), eps=0.0), x), [[0.8485281, 2.2627417]])
    np.testing.assert_allclose(reference(ops.softmax, np.log(np.array([[1, 2, 5]], np.float32))), [[0.125, 0.25, 0.625]], rtol=1e-6)
    np.testing.assert_allclose(reference(ops.gelu, np.array([1.0, -1.0], np.float32)), [0.8413447, -0.1586553], rtol=1e-6)
    np.testing.assert_allclose(reference(ops.silu, np.array([0.0, 1.0], np.float32)), [0.0, 0.7310586], rtol=1e-6)
    weight, bias = np.array([[1, 2], [3, 4]], np.float32), np.array([10, 20], np.float32)
    np.testing.assert_array_equal(reference(ops.linear, x, weight, bias), [[21, 45]])


def test_rotary_turns_pairs() -> None:
    x = np.array([[[1.0, 0.0, 0.0, 1.0]]], np.float32)  # pairs (0, 2) and (1, 3)
    quarter = np.array([np.pi / 2, np.pi], np.float32)
    turned = reference(lambda v: ops.rotary_embedding(v, np.array([1]), quarter), x)
    np.testing.assert_allclose(turned, [[[0, 0, 1, -1]]], atol=1e-6)


def test_take_counts_from_the_end() -> None:
    from pliant.support.errors import Error

    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(reference(lambda v: ops.take(v, np.array([-1, 0, -3])), x), [[4, 5], [0, 1], [0, 1]])
    for wrong in (3, -4):
        with pytest.raises(Error, match=f"index {wrong} is outside of dim 0, which has 3 elements"):
            reference(lambda v, k=wrong: ops.take(v, np.array([k])), x)


def test_scalars_stay_on_the_host() -> None:
    builder = Builder("case")
    eps = builder.param("eps", Scalar(f32))
    n = Dim("n")
    builder.param("x", Tensor(f32, (n,)))
    with builder:
        known = ops.add(n, 1)
        unknown = ops.mul(eps, 2.0)
    assert isinstance(known.annotation, Scalar) and str(known.annotation.value) == "n + 1"
    assert unknown.annotation == Scalar(f32)
    found = run_graph(builder.finish([known, unknown]), [0.25, np.zeros(6, np.float32)])
    assert [float(v) for v in found] == [7.0, 0.5]
