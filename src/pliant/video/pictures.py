"""Pictures as arguments of nets: a program that takes the bytes of a picture, u8[1, rows, columns, channels], from
one that takes floats.

    from_pictures(program, rows=2, pixels=Pixels(scale=1 / 255, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)))

The conversion is a part of the program. A stream compares bytes, and converts only pixels that changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtype import u8
from ..graph import opset as ops
from ..graph.builder import Builder
from ..graph.node import Tensor, output_names
from ..program import Program
from ..support.errors import Error, ShapeError

Array = np.ndarray[Any, Any]

ORDERS = ("rgb", "bgr")


@dataclass(frozen=True, slots=True)
class Pixels:
    """How the bytes of a picture become the values of a net: (byte * scale - mean) / std, with channels in `order`.

    `mean` and `std` are numbers, or one number for each channel of the net.
    """

    scale: float = 1 / 255
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    order: str = "rgb"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise Error(f"the order of channels is `{self.order}`", help="write order='rgb' or order='bgr'")
        numbers = np.array([self.scale, *np.atleast_1d(self.mean), *np.atleast_1d(self.std)], np.float64)
        if not np.isfinite(numbers).all() or 0.0 in np.atleast_1d(self.std):
            raise Error("scale, mean and std of pixels are finite numbers, and std is not 0")


def from_pictures(program: Program, rows: int, pixels: Pixels) -> Program:
    """Returns the program that takes a picture, and converts it to the one argument of the given program, whose rows are dim `rows`.

    Raises ShapeError if the argument is no picture (rows, columns, channels first or last, and a batch of 1), or if `mean` or `std` do not
    fit its channels.
    """
    entry = program.entry
    tensor: Any = entry.params[0].tensor
    shape, batch = tuple(str(e) for e in tensor.shape), len(tensor.shape) - 3
    first = rows == batch + 1
    if len(shape) not in (3, 4) or shape[:batch] != ("1",) * batch or rows not in (batch, batch + 1) or not tensor.dtype.is_float:
        raise ShapeError(
            f"`{entry.name}` takes {entry.params[0]}, and a picture has rows, columns and channels",
            where=entry.span,
            help="give frames as the net takes them: pixels=None",
        )
    channels = tensor.shape[batch if first else -1]
    scale, shift = _affine(pixels, int(str(channels)), tensor.dtype.numpy())
    b = Builder(entry.name)
    picture = b.param("picture", Tensor(u8, (*tensor.shape[:batch], *tensor.shape[rows : rows + 2], channels)))
    with b:
        x: Any = ops.add(ops.mul(ops.cast(picture, tensor.dtype), scale), shift)
        if pixels.order == "bgr" and str(channels) == "3":
            x = ops.flip(x, axis=-1)
        if first:
            x = ops.permute(x, [*range(batch), batch + 2, batch, batch + 1])
        return Program(b.finish(b.call_function(entry, [x]), {"outputs": output_names(entry)}))


def _affine(pixels: Pixels, channels: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Returns factor and summand of the bytes of each channel; raises ShapeError for another number of channels."""
    mean, std = (np.atleast_1d(np.asarray(v, np.float64)) for v in (pixels.mean, pixels.std))
    for name, values in (("mean", mean), ("std", std)):
        if len(values) not in (1, channels):
            raise ShapeError(f"{name} of the pixels has {len(values)} values, and the net has {channels} channels")
    scale, shift = np.broadcast_to(pixels.scale / std, (channels,)), np.broadcast_to(-mean / std, (channels,))
    return scale.astype(dtype), shift.astype(dtype)
