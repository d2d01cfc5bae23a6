"""Convolutions of images in channel blocks to one channel: lanes are the channels that are summed."""

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
FIRST = RNG.standard_normal((96, 8, 3, 3), dtype=np.float32) * 0.1


def net(channels: int, window: tuple[int, int], size: tuple[int, int, int] | None) -> Any:
    """A 3x3 convolution of 8 channels, whose result is in blocks, then one to a single channel with a sigmoid; no size means dynamic."""
    builder = Builder("net")
    n, h, w = (pliant.dim("n"), pliant.dim("h"), pliant.dim("w")) if size is None else map(const, size)
    x = builder.param("x", Tensor(f32, (n, const(8), h, w)))
    with builder:
        image = ops.relu(ops.conv(x, FIRST[:channels], padding=1))
        y = ops.conv(image, weight(channels, window), np.float32([0.1]), padding=(window[0] // 2, window[1] // 2))
        return builder.finish([ops.sigmoid(y)])


def weight(channels: int, window: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, channels, *window), dtype=np.float32) * 0.1


def truth(x: np.ndarray, channels: int, window: tuple[int, int]) -> np.ndarray:
    """The net in f64."""
    image = np.maximum(convolved(x, FIRST[:channels]), 0)
    return 1 / (1 + np.exp(-convolved(image, weight(channels, window)) - np.float64(np.float32(0.1))))


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A convolution in f64, padded so that images keep their size."""
    a, b = w.shape[2] // 2, w.shape[3] // 2
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (a, a), (b, b)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))
    result: np.ndarray = np.einsum("nchwab,dcab->ndhw", windows, w)
    return result


@pytest.mark.parametrize(
    ("channels", "window", "size"),
    [(32, (7, 3), (6, 16)), (96, (1, 1), (5, 21)), (96, (3, 3), (4, 9)), (24, (3, 3), (3, 5)), (12, (3, 3), (5, 8))],
)
def test_one_channel_is_summed_in_lanes(channels: int, window: tuple[int, int], size: tuple[int, int]) -> None:
    """Batch, threads, and whether sizes are static change no bit; the results are those of numpy in f64."""
    dynamic = pliant.compile(net(channels, window, None), threads=2)
    x = RNG.standard_normal((3, 8, *size), dtype=np.float32)
    together = np.asarray(dynamic(x))
    static = pliant.compile(net(channels, window, (1, *size)), threads=1)
    assert all("channel sums: `sum`" in pliant.explain(f) for f in (static, dynamic))
    for n in range(3):
        alone = x[n : n + 1]
        assert np.array_equal(np.asarray(static(alone)), np.asarray(dynamic(alone)))
        assert np.array_equal(together[n : n + 1], np.asarray(dynamic(alone)))
    np.testing.assert_allclose(together, truth(x, channels, window), rtol=2e-6, atol=1e-6)


def test_every_tile_gives_the_same_bits() -> None:
    x = RNG.standard_normal((1, 8, 4, 13), dtype=np.float32)
    program = net(32, (3, 3), (1, 4, 13))
    usual = pliant.compile(program)
    for rows in (1, 2, 3, 4, 7, 12):
        other = pliant.compile(program, decisions={"conv_sigmoid.sum.tile": rows})
        assert f"in tiles of {rows}x" in pliant.explain(other)
        assert np.array_equal(np.asarray(other(x)), np.asarray(usual(x)))


def test_long_sums_are_in_parts() -> None:
    """96 channels by 7x7 are 588 terms in each of 8 lanes: parts keep the error of such sums near that of their last additions."""
    x = np.abs(RNG.standard_normal((1, 8, 7, 9), dtype=np.float32))
    f = pliant.compile(net(96, (7, 7), (1, 7, 9)))
    assert "long sums in parts" in next(line for line in pliant.explain(f).splitlines() if "channel sums" in line)
    np.testing.assert_allclose(np.asarray(f(x)), truth(x, 96, (7, 7)), rtol=5e-6, atol=1e-6)
