"""One compiled program serves 200 shapes: nothing is compiled after the first call, and every result is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, ops, pipeline

b = dim("b", max=64)
n = dim("n", max=512)


@function
def block(x: Tensor[f32, b, n, 16], w: Tensor[f32, 16, 24], g: Tensor[f32, 16]) -> Tensor[f32, b, n, 24]:
    return ops.softmax(ops.gelu(ops.rms_norm(x, g, eps=1e-6) @ w))


def expected(x: Any, w: Any, g: Any) -> Any:
    """The same in numpy, in float64."""
    from math import erf

    x = x.astype(np.float64)
    h = (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g) @ w
    h = h * 0.5 * (1 + np.vectorize(erf, otypes=[np.float64])(h / np.sqrt(2)))
    e = np.exp(h - h.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_nothing_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    w, g = rng.standard_normal((16, 24)).astype(np.float32), rng.uniform(0.5, 2, 16).astype(np.float32)
    shapes = {(int(rng.integers(0, 9)), int(rng.integers(0, 40))) for _ in range(1000)}
    f: Any = pliant.compile(block)
    block(rng.standard_normal((1, 1, 16)).astype(np.float32), w, g)

    def compiled_again(*_: Any, **__: Any) -> Any:
        raise AssertionError("a shape has had a program compiled")

    for name in ("run_steps", "compile_program", "compile_as_far_as"):
        monkeypatch.setattr(pipeline, name, compiled_again)
    tried = sorted(shapes)[:200]
    assert len(tried) == 200
    for shape in tried:
        x = rng.standard_normal((*shape, 16)).astype(np.float32)
        for call in (f, block):  # the executable, and the function as users call it
            np.testing.assert_allclose(call(x, w, g), expected(x, w, g), rtol=2e-5, atol=1e-6)
