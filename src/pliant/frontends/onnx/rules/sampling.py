"""Sampling at fractional positions: GridSample and DeformConv.

    sample(image, places, mode)      # the image (n, c, …) at places (one tensor (n, points) for each spatial dim) -> (n, c, points)

Interpolation is a weighted sum over the pixels around a position; each of them is gathered by one flat index.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from ....dtype import f32, f64, i64
from ..emit import ops
from ..node_context import NodeContext
from ..registry import rule
from .extents import extent, plain, total
from .spatial import windows

_CUBIC = -0.75  # the coefficient of the cubic kernel, as in onnx.reference


class Image:
    """An image value whose pixels are gathered by index, with a padding mode for indices outside."""

    def __init__(self, x: Any, outside: str, align: bool) -> None:
        self.n, self.c, *spatial = x.tensor.shape
        self.spatial = [plain(n) for n in spatial]
        self.outside, self.align = outside, align
        self.flat = ops.reshape(x, (self.n, self.c, total(spatial)))

    def last(self, k: int, of: Any) -> Any:
        """Returns the last index of one dim as a value of a dtype."""
        return ops.sub(extent(self.spatial[k], of), 1.0)

    def reflected(self, x: Any, k: int) -> Any:
        """Returns positions along one dim reflected at the borders, repeatedly."""
        of = x.tensor.dtype
        low, width = (0.0, self.last(k, of)) if self.align else (-0.5, extent(self.spatial[k], of))
        twice = ops.mul(width, 2.0)
        away = ops.fmod(ops.abs(ops.sub(x, low)), twice)
        return ops.add(ops.where(ops.greater(away, width), ops.sub(twice, away), away), low)

    def index(self, i: Any, k: int) -> tuple[Any, Any]:
        """Clamps integral positions (floats) along one dim to valid indices; also returns where they were valid, None if all count."""
        last, inside = self.last(k, i.tensor.dtype), None
        if self.outside == "zeros":
            inside = ops.logical_and(ops.greater_equal(i, 0.0), ops.less_equal(i, last))
        elif self.outside == "reflection":
            i = ops.trunc(self.reflected(i, k))
        return ops.cast(ops.minimum(ops.maximum(i, 0.0), last), i64), inside

    def pixels(self, indices: Sequence[Any], insides: Sequence[Any]) -> Any:
        """Returns the pixels at indices (n, points), one for each spatial dim: (n, c, points); 0 where `insides` is false."""
        flat = indices[0]
        for n, i in zip(self.spatial[1:], indices[1:], strict=True):
            flat = ops.add(ops.mul(flat, n), i)
        points = flat.tensor.shape[-1]
        values = ops.gather(self.flat, ops.expand(ops.unsqueeze(flat, 1), (self.n, self.c, points)), 2)
        for inside in insides:
            values = values if inside is None else ops.where(ops.unsqueeze(inside, 1), values, 0.0)
        return values


def sample(image: Image, places: Sequence[Any], mode: str) -> Any:
    """Samples the image at positions (n, points) in pixels; returns (n, c, points)."""
    options = []
    for k, x in enumerate(places):
        if mode == "nearest":
            options.append([(*image.index(x, k), None)])
            continue
        floor = ops.floor(x)
        part = ops.sub(x, floor)
        around = ((0.0, 1.0), _linear(part)) if mode == "linear" else ((-1.0, 0.0, 1.0, 2.0), _cubic(part))
        options.append([(*image.index(ops.add(floor, d) if d else floor, k), w) for d, w in zip(*around, strict=True)])
    total_: Any = None
    for corner in product(*options):
        value = image.pixels([c[0] for c in corner], [c[1] for c in corner])
        for _, _, weight in corner:
            value = value if weight is None else ops.mul(value, ops.unsqueeze(weight, 1))
        total_ = value if total_ is None else ops.add(total_, value)
    return total_


def _linear(t: Any) -> tuple[Any, Any]:
    """Returns the linear weights of two neighboring pixels; the position is at distance `t` after the first."""
    return ops.sub(1.0, t), t


def _cubic(t: Any) -> tuple[Any, ...]:
    """Returns the cubic weights of four neighboring pixels; the position is at distance `t` after the second."""
    a = _CUBIC

    def far(d: Any) -> Any:
        return ops.sub(ops.mul(ops.add(ops.mul(ops.sub(ops.mul(d, a), 5 * a), d), 8 * a), d), 4 * a)

    def near(d: Any) -> Any:
        return ops.add(ops.mul(ops.mul(ops.sub(ops.mul(d, a + 2), a + 3), d), d), 1.0)

    return far(ops.add(t, 1.0)), near(t), near(ops.sub(1.0, t)), far(ops.sub(2.0, t))


def computed(*dtypes: Any) -> Any:
    """Returns the dtype for positions and weights: f64 if an operand is f64, else f32."""
    return f64 if f64 in dtypes else f32


@rule("GridSample")
def grid_sample(site: NodeContext) -> Any:
    """Imports GridSample: samples the image at a grid of positions in -1..1.

    Component 0 is the position along the last dim of the image.
    """
    mode = site.text("mode", "linear", "linear", "nearest", "cubic", "bilinear", "bicubic").removeprefix("bi")
    outside = site.text("padding_mode", "zeros", "zeros", "border", "reflection")
    align = bool(site.integer("align_corners", 0))
    rank, of, wide = site.rank(0) - 2, site.dtype(0), computed(site.dtype(0), site.dtype(1))
    site.settle(1, rank)
    site.require(rank >= 1 and site.rank(1) == rank + 2 and site.shape(1)[-1] == rank, "the grid does not fit the image")
    x, grid = (site.x(k) if site.dtype(k) is wide else ops.cast(site.x(k), wide) for k in (0, 1))
    n, *out, _ = site.tensor(1).shape
    image = Image(x, outside, align)
    flat = ops.reshape(grid, (n, total(out), rank))
    places = []
    for k in range(rank):
        at = ops.squeeze(ops.slice(flat, 2, rank - 1 - k, rank - k), 2)
        places.append(place(image, k, at, mode, align))
    sampled = ops.reshape(sample(image, places, mode), (n, image.c, *out))
    return sampled if of is wide else ops.cast(ops.round(sampled) if of.is_int else sampled, of)


def place(image: Image, k: int, at: Any, mode: str, align: bool) -> Any:
    """Converts a grid coordinate to a position in pixels, with clamping or reflection for these padding modes.

    With `align`, -1 and 1 are the centers of the border pixels, else their outer edges.
    """
    size, less = extent(image.spatial[k], at.tensor.dtype), image.last(k, at.tensor.dtype)
    x = ops.mul(ops.div(ops.add(at, 1.0), 2.0), less) if align else ops.div(ops.sub(ops.mul(ops.add(at, 1.0), size), 1.0), 2.0)
    x = ops.round(x) if mode == "nearest" else x
    if mode == "cubic":  # like other runtimes, `Image.index` moves each of the four pixels inside instead
        return x
    if image.outside == "border":
        return ops.minimum(ops.maximum(x, 0.0), less)
    return image.reflected(x, k) if image.outside == "reflection" else x


@rule("DeformConv")
def deform_conv(site: NodeContext) -> Any:
    """Imports DeformConv: filter taps are shifted by offsets and weighted by a mask; sampled, then one matmul (im2col).

    Raises NeededError unless the kernel's extents are known.
    """
    x, w, rank, of = site.x(0), site.x(1), site.rank(0) - 2, site.dtype(0)
    if site.ints("kernel_shape", None):
        site.settle(1, *(site.ints("kernel_shape", None) or []))
    kernel, groups, moved = list(site.shape(1)[2:]), site.integer("group", 1), site.integer("offset_group", 1)
    site.require(rank >= 1 and site.rank(1) == rank + 2 and site.rank(2) == rank + 2, "operand, kernel and offsets differ in their dims")
    if not all(isinstance(k, int) for k in kernel):
        raise site.needed_dim("the kernel's extents must be known")
    strides, dilations, pads = windows(site, kernel, rank, site.shape(0)[2:])
    (n, c, *spatial), out, taps = site.tensor(0).shape, site.tensor(2).shape[2:], total(kernel)
    channels, each = plain(c // moved), plain(n * moved)
    wide = computed(of)
    offset = ops.reshape(site.x(2), (each, taps, rank, total(out)))
    offset = offset if of is wide else ops.cast(offset, wide)
    image = Image(ops.reshape(x if of is wide else ops.cast(x, wide), (each, channels, *spatial)), "zeros", True)
    places = []
    for k in range(rank):
        first = _taps(kernel, out, k, strides[k], dilations[k], pads[k][0], wide)  # [taps, points]
        moved_by = ops.squeeze(ops.slice(offset, 2, k, k + 1), 2)
        places.append(ops.reshape(ops.add(moved_by, first), (each, total([taps, *out]))))
    columns = sample(image, places, "linear")
    if site.has(4):
        columns = ops.mul(columns, ops.reshape(ops.cast(site.x(4), wide) if of is not wide else site.x(4), (each, 1, total([taps, *out]))))
    inside = ops.reshape(columns if of is wide else ops.cast(columns, of), (n, groups, total([plain(c // groups), taps]), total(out)))
    outs = site.tensor(1).shape[0]
    weight = ops.reshape(w, (groups, plain(outs // groups), total([*site.tensor(1).shape[1:]])))
    y = ops.reshape(ops.matmul(weight, inside), (n, outs, *out))
    return ops.add(y, ops.reshape(site.x(3), (outs, *[1] * rank))) if site.has(3) else y


def _taps(kernel: list[Any], out: Sequence[Any], axis: int, stride: int, dilation: int, pad: Any, of: Any) -> Any:
    """Returns the position of each filter tap for each output point, along one dim: [taps, points]."""
    rank = len(kernel)
    tap = ops.reshape(ops.mul(ops.arange(kernel[axis]), dilation), [kernel[axis] if k == axis else 1 for k in range(2 * rank)])
    at = ops.reshape(ops.mul(ops.arange(out[axis]), stride), [out[axis] if k - rank == axis else 1 for k in range(2 * rank)])
    whole = ops.expand(ops.sub(ops.add(tap, at), pad), (*kernel, *out))
    return ops.cast(ops.reshape(whole, (total(kernel), total(out))), of)
