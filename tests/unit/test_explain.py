"""What is said of how kernels were scheduled."""

from __future__ import annotations

import numpy as np

import pliant
from pliant import Tensor, dim, f32, function, ops
from pliant.runtime.package import Package

n = dim("n", max=4096)
W = np.ones((64, 96), np.float32)


@function
def layer(x: Tensor[f32, n, 64]) -> Tensor[f32, n, 96]:
    return ops.softmax(ops.relu(x @ ops.constant(W)), axis=-1)


@function
def crowded(x: Tensor[f32, n, 2048], w: Tensor[f32, 2048, 2048]) -> Tensor[f32, n, 2048]:
    return x @ w


def test_rules_are_named_for_each_kernel() -> None:
    text = pliant.explain(layer)
    assert "`relu` in its write-back" in text and "right-hand side packed" in text
    assert "rows: `max`, `exp`, `sum`, `scale`, `out` together" in text
    before, _, after = text.partition("when the program is loaded:")
    assert "pack(" in after and "pack(" not in before


def test_variants_tell_their_dims() -> None:
    text = pliant.explain(pliant.compile(crowded))
    assert "if n > 63: " in text and "copied by panels" in text and "else: " in text


def test_packages_keep_the_rules() -> None:
    package = pliant.compile(layer).package
    assert Package.from_bytes(package.to_bytes()).interface.rules == package.interface.rules != ()


def test_the_terms_of_the_cost_model_are_told_once_with_the_tile() -> None:
    lines = [line for line in pliant.explain(pliant.compile(crowded)).splitlines() if "by the model" in line]
    assert len(lines) == 1 and ".tile = " in lines[0]


@function
def short_sums(x: Tensor[f32, n, 70], y: Tensor[f32, n, 700]) -> tuple[Tensor[f32, n], Tensor[f32, n]]:
    return ops.sum(x, axis=(-1,)), ops.sum(y, axis=(-1,))


def test_lanes_are_those_that_were_decided() -> None:
    text = pliant.explain(pliant.compile(short_sums))
    assert "sums in 32 lanes" in text and "sums in 64 lanes" in text  # a row of 70 fills 32 lanes twice
