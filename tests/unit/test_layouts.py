"""Literals in the layouts that kernels want: what is packed, that it is packed once, and that nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiled_graphs import compiled, lowered
from pliant import Tensor, dim, f16, f32, function, ops
from pliant.graph import node as g
from pliant.loop.attributes import SCHEDULED
from pliant.pipeline import STEPS, without
from pliant.runtime.package import Package
from pliant.schedule.library.layouts import wanted_layouts
from pliant.support.errors import ModelFileError
from pliant.target import target

n = dim("n", max=64)
RNG = np.random.default_rng(5)
W = RNG.standard_normal((40, 56), dtype=np.float32)
V = RNG.standard_normal((24, 56), dtype=np.float32)
HALF = RNG.standard_normal((24, 56)).astype(np.float16)


@function
def mlp(x: Tensor[f32, n, 40]) -> Tensor[f32, n, 24]:
    return ops.linear(ops.relu(x @ ops.constant(W)), ops.constant(V))


@function
def twice(x: Tensor[f32, n, 40]) -> tuple[Tensor[f32, n, 56], Tensor[f32, n, 56]]:
    w = ops.constant(W)
    return x @ w, ops.exp(x) @ w


@function
def halves(x: Tensor[f16, n, 56]) -> Tensor[f16, n, 24]:
    return ops.linear(x, ops.constant(HALF))


@function
def parameter(x: Tensor[f32, n, 40], w: Tensor[f32, 40, 56]) -> Tensor[f32, n, 56]:
    return x @ w


BEFORE = [s for s in STEPS if s.name not in ("lift_constants", "schedule", "host", "emit")]


def packs(f: Any) -> list[g.CallLoop]:
    return [m for m in lowered(f.graph, BEFORE).function.nodes if isinstance(m, g.CallLoop) and m.callee.name == "pack"]


def test_weights_are_packed_by_vectors_of_columns() -> None:
    lanes = target("native").vector_bits // 32
    shapes = [tuple(int(str(e)) for e in p.outs[0].tensor.shape) for p in packs(mlp)]
    assert shapes == [(-(-56 // lanes), 40, lanes), (-(-24 // lanes), 56, lanes)]


def test_a_weight_is_packed_once_for_all_its_readers() -> None:
    assert len(packs(twice)) == 1


def test_parameters_stay_as_they_are() -> None:
    assert packs(parameter) == []


def test_packing_is_not_part_of_a_call() -> None:
    state = lowered(mlp.graph)
    assert state.package is not None and state.package.load is not None
    assert "pack" in state.package.load.interface.kernels and "pack" not in state.package.interface.kernels
    assert len(state.package.interface.constants) == 2  # the packed ones, and no plain one


@pytest.mark.parametrize("rows", [0, 1, 5, 6, 7, 13, 64])
def test_results(rows: int) -> None:
    x = RNG.standard_normal((rows, 40), dtype=np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(compiled(mlp.graph)(x), np.maximum(wide @ W, 0) @ V.T.astype(np.float64), rtol=1e-4, atol=1e-4)
    first, second = compiled(twice.graph)(x)
    np.testing.assert_allclose(first, wide @ W, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(second, np.exp(wide) @ W, rtol=1e-4, atol=1e-3)


def test_packed_and_plain_give_the_same_bits() -> None:
    plain = without(STEPS, ("choose_layouts",))
    x = RNG.standard_normal((17, 40), dtype=np.float32)
    assert compiled(twice.graph)(x)[0].tobytes() == compiled(twice.graph, plain)(x)[0].tobytes()
    half = RNG.standard_normal((9, 56)).astype(np.float16)
    np.testing.assert_allclose(compiled(halves.graph)(half), half.astype(np.float64) @ HALF.T.astype(np.float64), rtol=2e-2, atol=2e-2)


def test_packages_keep_what_they_load() -> None:
    package = lowered(mlp.graph).package
    assert package is not None
    again = Package.from_bytes(package.to_bytes())
    assert again.load is not None and again.interface == package.interface and again.load.interface == package.load.interface  # type: ignore[union-attr]
    assert package.load is not None
    nested = package._replace(load=package).to_bytes()
    with pytest.raises(ModelFileError, match="inside"):
        Package.from_bytes(nested)


def test_what_is_scheduled_by_hand_keeps_its_layout() -> None:
    call = next(m for m in lowered(parameter.graph, BEFORE).function.nodes if isinstance(m, g.CallLoop))
    func = call.callee.program
    assert len(wanted_layouts(func, target("native"))) == 1
    assert wanted_layouts(func.with_(attrs=SCHEDULED), target("native")) == {}


@function
def widened(x: Tensor[f32, n, 56]) -> Tensor[f32, n, 24]:
    return ops.linear(x, ops.cast(ops.constant(HALF), f32))


def test_a_widened_weight_is_packed_in_its_own_dtype() -> None:
    (pack,) = packs(widened)
    assert pack.outs[0].tensor.dtype is f16
    state = lowered(widened.graph)
    assert state.package is not None
    assert [c.nbytes for c in state.derived] == [
        -(-24 // (target("native").vector_bits // 32)) * (target("native").vector_bits // 32) * 56 * 2
    ]
    x = RNG.standard_normal((7, 56), dtype=np.float32)
    np.testing.assert_allclose(compiled(widened.graph)(x), x.astype(np.float64) @ HALF.T.astype(np.float64), rtol=1e-4, atol=1e-4)
    assert compiled(widened.graph)(x[3:4]).tobytes() == compiled(widened.graph)(x)[3:4].tobytes()
