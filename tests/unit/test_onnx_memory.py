"""How much memory a model needs before anything is fused: tensors that are there at once, by hand."""

from __future__ import annotations

import pytest

import pliant
from pliant.frontends.onnx.memory import Peak

onnx = pytest.importorskip("onnx", reason="ONNX models need the package onnx")


def peak(body: str) -> Peak:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[a, b] y) {{ {body} }}'
    return Peak(pliant.from_onnx(onnx.parser.parse_model(text)).entry)


def test_a_chain_has_two_tensors_at_once() -> None:
    found = peak("a = Relu(x) b = Exp(a) c = Abs(b) y = Neg(c)")
    assert found.at({"n": 10}) == 2 * 10 * 4 * 4
    assert str(found.formula({"n": 10})) == "n * 32"


def test_what_is_used_later_stays() -> None:
    assert peak("a = Relu(x) b = Exp(a) c = Abs(b) y = Add(a, c)").at({"n": 10}) == 3 * 10 * 4 * 4


def test_views_and_weights_are_no_memory() -> None:
    found = peak("s = Constant<value = int64[2] {-1, 2}>() a = Relu(x) r = Reshape(a, s) y = Neg(r)")
    assert found.at({"n": 10}) == 2 * 10 * 4 * 4


def test_a_size_that_only_a_run_tells() -> None:
    assert peak("p = NonZero(x) y = Cast<to = 1>(p)").at({"n": 10}) is None


def test_branches_count() -> None:
    found = peak("""
        m = ReduceMax<keepdims = 0>(x)
        z = Constant<value = float {0.0}>()
        c = Greater(m, z)
        y = If (c) <
            then_branch = t () => (float[n, 4] p) { e = Exp(x) f = Abs(e) p = Neg(f) },
            else_branch = f () => (float[n, 4] q) { q = Relu(x) }
        >""")
    assert found.at({"n": 10}) == 3 * 10 * 4 * 4 + 1  # the result, two tensors of a branch, and the condition
