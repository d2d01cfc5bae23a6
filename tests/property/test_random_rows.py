"""Random chains of reductions along rows: the compiled program against numpy in f64, and a row alone equals the row in a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pliant
from counts import seeds
from pliant import Tensor, dim, f32, function, nn, ops

b = dim("b")
n = dim("n")
m = dim("m")

Steps = list[tuple[str, Any]]
REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (ops.sum, np.sum),
    "mean": (ops.mean, lambda x, **k: np.sum(x, **k) / x.shape[-1]),
    "max": (ops.max, lambda x, **k: np.max(x, initial=-np.inf, **k)),
    "min": (ops.min, lambda x, **k: np.min(x, initial=np.inf, **k)),
    "sum_square": (ops.sum_square, lambda x, **k: np.sum(x * x, **k)),
}
JOINS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sub": (lambda x, r: x - r, lambda x, r: x - r),
    "exp": (lambda x, r: ops.exp(ops.tanh(x - r)), lambda x, r: np.exp(np.tanh(x - r))),
    "div": (lambda x, r: x / (ops.abs(r) + 1.0), lambda x, r: x / (np.abs(r) + 1.0)),
}


def steps_of(seed: int) -> Steps:
    rng = np.random.default_rng(seed)
    return [(str(rng.choice(list(REDUCTIONS))), str(rng.choice(list(JOINS)))) for _ in range(int(rng.integers(1, 4)))]


def applied(steps: Steps, x: Any, y: Any, which: int) -> Any:
    """The chain in pliant (0) or in numpy (1): x + y, then each step reduces rows and joins what it got with them."""
    h = x + y
    for reduction, join in steps:
        h = JOINS[join][which](h, REDUCTIONS[reduction][which](h, axis=-1, keepdims=True))
    return h


@pytest.mark.parametrize("seed", seeds(12, 500))
def test_random_chains(seed: int) -> None:
    steps = steps_of(seed)

    class Chain(nn.Module):
        def forward(self, x: Tensor[f32, b, n, m], y: Tensor[f32, m]) -> Tensor[f32, b, n, m]:
            return applied(steps, x, y, 0)

    compiled = pliant.compile(Chain())
    for shape in ((2, 3, 1), (1, 5, 31), (2, 1, 77), (3, 2, 130), (0, 2, 5), (2, 3, 0)):
        rng = np.random.default_rng(seed)
        x, y = rng.uniform(-2, 2, shape).astype(np.float32), rng.uniform(-2, 2, shape[-1]).astype(np.float32)
        found = compiled(x, y)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(found, applied(steps, x.astype(np.float64), y.astype(np.float64), 1), rtol=2e-4, atol=2e-4)
        if x.size:
            assert compiled(x[-1:, -1:].copy(), y).tobytes() == found[-1:, -1:].tobytes()


def test_softmax_of_rows_that_are_not_finite() -> None:
    @function
    def f(x: Tensor[f32, n, m]) -> Tensor[f32, n, m]:
        return ops.softmax(x)

    x = np.random.default_rng(0).standard_normal((5, 70)).astype(np.float32)
    x[1], x[2, 69], x[3, 3], x[4, :69] = -np.inf, np.nan, np.inf, -np.inf
    found = pliant.compile(f)(x)
    with np.errstate(all="ignore"):
        e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        np.testing.assert_allclose(found, e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)
    assert found[4, 69] == 1 and np.isnan(found[1:4]).any(axis=1).all()
