"""What is said of how kernels were scheduled."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import pliant
from pliant import Out, Tensor, dim, f32, function, kernel, ops
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


k = dim("k")


@kernel
def skewed(x: Tensor[f32, n, k], y: Out[f32, n]) -> None:
    """Sums along diagonals, which no rule but the last one takes."""
    for i in range(n):
        y[i] = 0.0
        for j in range(k):
            y[i] += x[(i + j) % n, j] * x[(i + 2 * j) % n, j]


@kernel
def skewed_once(x: Tensor[f32, 512, 20000], y: Out[f32, 512]) -> None:
    for i in range(512):
        y[i] = 0.0
        for j in range(20000):
            y[i] += x[(i + j) % 512, j] * x[(i + 2 * j) % 512, j]


def test_long_sums_that_no_fast_rule_takes_have_a_warning(tmp_path: Path) -> None:
    big = pliant.compile(skewed_once)
    assert "  warning: `y_1` sums 10 million terms, and no faster rule takes it" in pliant.explain(big)
    assert [w for r in big.interface.rules for w in r.warnings] == ["`y_1` sums 10 million terms, and no faster rule takes it"]
    big.report(tmp_path / "slow.html")
    assert "skewed_once: `y_1` sums 10 million terms, and no faster rule takes it" in (tmp_path / "slow.html").read_text()
    assert "warning" not in pliant.explain(skewed)  # 128 x 128 terms at typical sizes
    assert "warning" not in pliant.explain(crowded)  # as long, but a product in register tiles
