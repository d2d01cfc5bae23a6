"""Seeded random convolutional nets whose one argument is a frame, and random clips of frames of which pixels change.

net = make_net(seed); for frame in make_clip(net, seed): …
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pliant import ops
from pliant.dtype import f32
from pliant.graph.builder import Builder
from pliant.graph.node import Function, Tensor, Value
from pliant.sym.expr import const

Array = np.ndarray[Any, Any]
CHANNELS = (1, 3, 8, 16, 24, 32)


def make_net(seed: int) -> Function:
    """A net of a few layers over a frame of odd size: chains, sums and joins of maps, with and without pixels at the end."""
    rng = np.random.default_rng(seed)
    rows, columns = (int(rng.integers(7, 30)) for _ in range(2))
    b = Builder(f"net_{seed}")
    shape = (1, int(rng.choice([1, 3])), rows, columns)
    frame = b.param("frame", Tensor(f32, tuple(map(const, shape))))
    with b:
        maps: list[Any] = [frame]
        for _ in range(int(rng.integers(3, 8))):
            maps.append(_layer(rng, maps))
        results = [maps[-1], _ending(rng, maps[int(rng.integers(1, len(maps)))])]
    return b.finish([v for v in dict.fromkeys(results) if isinstance(v, Value)])


def make_clip(net: Function, seed: int, frames: int = 7) -> Iterator[Array]:
    """Frames of which nothing, one pixel, a rectangle, random pixels or everything changed since the last one."""
    rng = np.random.default_rng(seed + 10_000)
    shape = extents(net.params[0])
    frame = rng.standard_normal(shape).astype(np.float32)
    rows, columns = shape[2:]
    for k in range(frames):
        yield frame
        changed = np.zeros((rows, columns), bool)
        row, column = int(rng.integers(rows)), int(rng.integers(columns))
        match int(rng.integers(5)) if k else 1:
            case 1:
                changed[row, column] = True
            case 2:
                changed[row : row + 4, column : column + 6] = True
            case 3:
                changed = rng.random((rows, columns)) < rng.random()
            case 4:
                changed[:] = True
        frame = np.where(changed, rng.standard_normal(shape).astype(np.float32), frame)


def extents(x: Any) -> tuple[int, ...]:
    """The shape of a value as numbers."""
    return tuple(int(str(e)) for e in x.annotation.shape)


def _weight(rng: np.random.Generator, *shape: int) -> Array:
    """A weight that keeps the scale of what it is multiplied with."""
    return (rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)


def _layer(rng: np.random.Generator, maps: list[Any]) -> Any:
    """A layer on the last map, or on it and another one of its size."""
    x = maps[-1]
    _, channels, rows, columns = extents(x)
    kinds = ["conv", "conv", "conv", "pool", "resize", "join", "norm", "squeeze", "transposed", "pad", "split", "average"]
    kind = str(rng.choice(kinds))
    if kind == "pool" and min(rows, columns) > 4:
        return ops.max_pool(x, 3, stride=int(rng.integers(1, 3)), padding=1)
    if kind == "average" and min(rows, columns) > 4:
        return ops.avg_pool(x, 2, stride=int(rng.integers(1, 3)))
    if kind == "resize" and max(rows, columns) < 24:
        return ops.resize(x, scales=[1, 1, 2, 2], mode=str(rng.choice(["nearest", "linear"])))
    if kind == "join":
        others = [m for m in maps[:-1] if extents(m)[2:] == (rows, columns)]
        if others:
            other = others[int(rng.integers(len(others)))]
            return ops.add(x, other) if extents(other) == extents(x) else ops.concat([x, other], axis=1)
    if kind == "norm":
        if rng.random() < 0.3:
            return ops.softmax(x, axis=1)
        scale, shift = _weight(rng, channels), _weight(rng, channels)
        return ops.relu(ops.batch_norm(x, scale, shift, _weight(rng, channels), np.abs(_weight(rng, channels)) + 1))
    if kind == "squeeze":
        gate = ops.sigmoid(ops.conv(ops.global_avg_pool(x), _weight(rng, channels, channels, 1, 1)))
        return ops.mul(x, gate)
    if kind == "transposed" and max(rows, columns) < 24:
        return ops.conv_transpose(x, _weight(rng, channels, 8, 2, 2), stride=2)
    if kind == "pad" and min(rows, columns) > 3:
        return ops.pad(x, [0, 0, (1, 2), (2, 1)], mode=str(rng.choice(["constant", "reflect", "edge"])))
    if kind == "split" and channels > 8:
        return ops.mul(ops.slice(x, 1, 0, channels // 2), ops.tanh(ops.slice(x, 1, channels - channels // 2)))
    return _convolution(rng, x, channels, rows, columns)


def _convolution(rng: np.random.Generator, x: Any, channels: int, rows: int, columns: int) -> Any:
    """A convolution of any kind that fits, with an activation."""
    kernel = int(rng.choice([1, 3, 3, 5])) if min(rows, columns) > 5 else 1
    dilation = 2 if kernel == 3 and min(rows, columns) > 8 and rng.random() < 0.2 else 1
    groups = channels if channels > 1 and rng.random() < 0.2 else 2 if channels % 16 == 0 and rng.random() < 0.2 else 1
    out = channels if groups == channels else int(rng.choice(CHANNELS[2:]))
    padding = int(rng.choice([0, kernel // 2 * dilation]))
    stride = int(rng.choice([1, 1, 2]))
    weight, bias = _weight(rng, out, channels // groups, kernel, kernel), _weight(rng, out)
    y = ops.conv(x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups)
    activation = [ops.relu, ops.silu, ops.sigmoid, None][int(rng.integers(4))]
    return y if activation is None else activation(y)


def _ending(rng: np.random.Generator, x: Any) -> Any:
    """A result: the map itself, or something without pixels."""
    if rng.random() < 0.5:
        return x
    channels = extents(x)[1]
    return ops.softmax(ops.matmul(ops.reshape(ops.global_avg_pool(x), [1, channels]), _weight(rng, channels, 5)), axis=1)
