"""Sums, means and maxima over images in channel blocks: lanes are channels, whatever the batch and the threads with the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import ops
from pliant.dtype import f32
from pliant.graph.builder import Builder
from pliant.graph.node import Tensor
from pliant.sym.expr import const

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((48, 8, 1, 1), dtype=np.float32)
BY_NUMPY = {"mean": np.mean, "sum": np.sum, "max": np.max}


def net(reduce: str, channels: int, size: tuple[int, int] | None) -> Any:
    """A convolution between 3x3 ones, so that its result is in blocks of channels, reduced over the image; no size means dynamic."""
    builder = Builder("net")
    sizes = (pliant.dim("n"), pliant.dim("h", min=1), pliant.dim("w", min=1)) if size is None else map(const, (1, *size))
    n, h, w = sizes
    x = builder.param("x", Tensor(f32, (n, const(8), h, w)))
    with builder:
        image = ops.conv(x, np.pad(WEIGHT[:channels], ((0, 0), (0, 0), (1, 1), (1, 1))), padding=1)  # 1x1 between zeros
        return builder.finish([getattr(ops, reduce)(ops.relu(image), axis=(2, 3))])


@pytest.mark.parametrize(("reduce", "channels", "size"), [("mean", 48, (7, 9)), ("sum", 32, (33, 20)), ("max", 32, (5, 1))])
def test_images_are_reduced_in_lanes(reduce: str, channels: int, size: tuple[int, int]) -> None:
    x = RNG.standard_normal((3, 8, *size), dtype=np.float32)
    dynamic, static = pliant.compile(net(reduce, channels, None), threads=2), pliant.compile(net(reduce, channels, size), threads=1)
    assert all(f"lane sums: `{'max' if reduce == 'max' else 'add'}`" in pliant.explain(f) for f in (dynamic, static))
    together = np.asarray(dynamic(x))
    assert np.concatenate([dynamic(x[k : k + 1]) for k in range(3)]).tobytes() == together.tobytes()
    image = np.einsum("nchw,oc->nohw", x.astype(np.float64), WEIGHT[:channels, :, 0, 0].astype(np.float64))
    expected = BY_NUMPY[reduce](np.maximum(image, 0), axis=(2, 3))
    for found in (together, np.concatenate([static(x[k : k + 1]) for k in range(3)])):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_results_that_other_rules_take_are_left_to_them() -> None:
    rows = pliant.compile(net("mean", 3, (5, 8)))  # three channels have no blocks
    assert "lane sums" not in pliant.explain(rows) and "rows: " in pliant.explain(rows)
