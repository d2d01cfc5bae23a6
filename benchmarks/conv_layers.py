"""Layers of convolutional nets inside of a net, with static and with dynamic sizes, as a share of the machine's FMA rate.

    python benchmarks/conv_layers.py [part of a name ...]      # PLIANT_TARGET, PLIANT_NUM_THREADS (default 1)

A layer stands between two convolutions, so that its operand and its result are in the layout that they have in a net (NCHWc). Times are
those of the layer's kernels in a profile, the best of several runs; kernels that pad or move its data count. The ratio is the time with
dynamic sizes divided by that with static ones: below 1, the static program is slower.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

import numpy as np

import pliant
from pliant import ops
from pliant.dtype import f32
from pliant.graph.builder import Builder
from pliant.graph.node import Tensor
from pliant.machine_peak import fma_rate
from pliant.sym.expr import const

THREADS = int(os.environ.get("PLIANT_NUM_THREADS") or 1)
TARGET = os.environ.get("PLIANT_TARGET") or "native"
RUNS = 6
AROUND = 16  # channels of the net's argument and result


class Layer(NamedTuple):
    """Channels in and out, height and width of the operand, window, stride, groups, what follows, and whether it is transposed."""

    channels: int
    out: int
    height: int
    width: int
    window: tuple[int, int] = (3, 3)
    stride: int = 1
    groups: int = 1
    after: str = ""  # relu | silu | hard_swish | residual
    transposed: bool = False

    @property
    def padding(self) -> tuple[int, int]:
        return (0, 0) if self.transposed else (self.window[0] // 2, self.window[1] // 2)

    @property
    def operations(self) -> float:
        """Additions and multiplications of one image."""
        places = 1.0
        for size, k, pad in zip((self.height, self.width), self.window, self.padding, strict=True):
            places *= size if self.transposed else (size + 2 * pad - k) // self.stride + 1
        return 2.0 * self.out * (self.channels // self.groups) * self.window[0] * self.window[1] * places

    @property
    def name(self) -> str:
        kind = "transposed " if self.transposed else "depthwise " if self.groups > 1 else ""
        step = f" /{self.stride}" if self.stride > 1 else ""
        window, size = f"{self.window[0]}x{self.window[1]}", f"{self.height}x{self.width}"
        return f"{kind}{window} {self.channels}->{self.out} {size}{step} {self.after}".rstrip()


def dense(channels: int, out: int, size: int, k: int = 3, stride: int = 1, after: str = "") -> Layer:
    return Layer(channels, out, size, size, (k, k), stride, 1, after)


def depthwise(channels: int, size: int, k: int, stride: int = 1, after: str = "") -> Layer:
    return Layer(channels, channels, size, size, (k, k), stride, channels, after)


LAYERS = (
    # ResNet, VGG, UNet
    dense(64, 64, 56, after="relu"),
    dense(64, 64, 56, after="residual"),
    dense(128, 128, 28, after="relu"),
    dense(256, 256, 14, after="relu"),
    dense(512, 512, 7, after="relu"),
    dense(64, 128, 56, stride=2, after="relu"),
    dense(256, 64, 56, 1, after="relu"),
    dense(64, 256, 56, 1),
    dense(512, 128, 28, 1, after="relu"),
    dense(1024, 256, 14, 1, after="relu"),
    dense(512, 2048, 7, 1),
    dense(64, 64, 112, after="relu"),
    dense(128, 64, 96, after="relu"),
    Layer(64, 32, 48, 48, (2, 2), 2, transposed=True),
    dense(3, 64, 224, 7, 2, "relu"),
    # YOLO
    dense(3, 16, 320, 3, 2, "silu"),
    dense(16, 32, 160, 3, 2, "silu"),
    dense(16, 16, 80, after="silu"),
    dense(32, 32, 40, after="silu"),
    dense(64, 64, 80, after="silu"),
    dense(64, 64, 40, after="silu"),
    dense(128, 128, 20, after="silu"),
    dense(96, 96, 52, after="silu"),
    dense(384, 128, 20, 1, after="silu"),
    dense(512, 256, 10, 1, after="silu"),
    dense(24, 48, 208, 3, 2, "silu"),
    dense(24, 24, 104, after="silu"),
    dense(80, 18, 80, 1),
    dense(64, 64, 80, 1),
    # OCR: detector and recognizer
    dense(96, 24, 160),
    dense(24, 24, 160, after="relu"),
    Layer(24, 24, 160, 160, (2, 2), 2, transposed=True),
    dense(96, 96, 40, 1, after="hard_swish"),
    Layer(240, 480, 6, 80, (1, 1), after="hard_swish"),
    Layer(480, 480, 3, 80, (1, 1), after="hard_swish"),
    Layer(32, 64, 24, 160, (1, 1), after="hard_swish"),
    depthwise(480, 20, 5, after="hard_swish"),
    depthwise(240, 40, 3, after="hard_swish"),
    # MobileNet, EfficientNet
    dense(16, 96, 112, 1, after="relu"),
    depthwise(96, 112, 3, 2, "relu"),
    dense(96, 24, 56, 1),
    dense(24, 144, 56, 1, after="relu"),
    depthwise(144, 56, 3, after="relu"),
    dense(144, 40, 28, 1),
    dense(40, 240, 28, 1, after="hard_swish"),
    depthwise(240, 28, 5, after="hard_swish"),
    dense(240, 80, 14, 1),
    dense(80, 200, 14, 1, after="hard_swish"),
    depthwise(200, 14, 3, after="hard_swish"),
    dense(112, 672, 14, 1, after="hard_swish"),
    depthwise(672, 14, 5, 2, "hard_swish"),
    dense(160, 960, 7, 1, after="hard_swish"),
    dense(320, 1280, 7, 1),
    depthwise(72, 56, 3, after="relu"),
    depthwise(120, 28, 5, after="hard_swish"),
    depthwise(32, 160, 3, after="relu"),
    # detectors of depthwise 5x5, and odd numbers of channels
    depthwise(96, 10, 5, after="hard_swish"),
    depthwise(96, 19, 5, after="hard_swish"),
    depthwise(96, 38, 5, after="hard_swish"),
    depthwise(96, 76, 5),
    dense(128, 42, 80, 1),
    dense(96, 1, 80, 1),
    Layer(32, 1, 100, 80, (7, 3)),
    dense(56, 56, 40, after="relu"),
    dense(58, 58, 28, 1, after="relu"),
)


def activated(y: Any, after: str, x: Any) -> Any:
    """What follows the convolution, as nets write it."""
    match after:
        case "relu":
            return ops.relu(y)
        case "silu":
            return ops.mul(y, ops.sigmoid(y))
        case "hard_swish":
            return ops.div(ops.mul(y, ops.minimum(ops.maximum(ops.add(y, 3.0), 0.0), 6.0)), 6.0)
        case "residual":
            return ops.relu(ops.add(y, x))
    return y


def net(layer: Layer, dynamic: bool) -> Any:
    """A program of three layers, the second of which is the one that is measured; its argument has the layer's height and width."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32) * 0.1

    builder = Builder("net")
    sizes = pliant.dim("n"), pliant.dim("h"), pliant.dim("w")
    n, h, w = sizes if dynamic else map(const, (1, layer.height, layer.width))
    first = layer.channels == 3  # the first layer of a net reads the argument itself
    x = builder.param("x", Tensor(f32, (n, const(3 if first else AROUND), h, w)))
    with builder:
        image = x if first else ops.relu(ops.conv(x, weight(layer.channels, AROUND, 3, 3), weight(layer.channels), padding=1))
        if layer.transposed:
            y = ops.conv_transpose(image, weight(layer.channels, layer.out, *layer.window), weight(layer.out), stride=layer.stride)
        else:
            kernel = weight(layer.out, layer.channels // layer.groups, *layer.window)
            y = ops.conv(image, kernel, weight(layer.out), stride=layer.stride, padding=layer.padding, groups=layer.groups)
        y = activated(y, layer.after, image)
        y = ops.conv(y, weight(AROUND, layer.out, 1, 1))
    return builder.finish([y])


def milliseconds(layer: Layer, dynamic: bool) -> float:
    """The best time of the layer's kernels: all but the first and the last of the net."""
    f = pliant.compile(net(layer, dynamic), threads=THREADS, target=TARGET)
    x = np.random.default_rng(1).standard_normal((1, 3 if layer.channels == 3 else AROUND, layer.height, layer.width), dtype=np.float32)
    best: dict[int, int] = {}
    for _ in range(RUNS):
        for k, launch in enumerate(f.profile(x, runs=4).launches):
            best[k] = min(best.get(k, launch.duration), launch.duration)
    durations = [best[k] for k in sorted(best)]
    return sum(durations[0 if layer.channels == 3 else 1 : -1]) * 1e-6


def main(names: list[str]) -> None:
    """Print a line for each layer."""
    print(f"{'layer':44} {'MFLOP':>7} {'static ms':>10} {'dynamic ms':>11} {'of FMA rate':>12} {'ratio':>9}")
    for layer in LAYERS:
        if names and not any(part in layer.name for part in names):
            continue
        static, dynamic = (milliseconds(layer, d) for d in (False, True))
        limit = layer.operations / fma_rate(THREADS) * 1e3
        print(
            f"{layer.name:44} {layer.operations * 1e-6:7.1f} {static:10.3f} {dynamic:11.3f} {limit / static:12.2f} {dynamic / static:9.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
