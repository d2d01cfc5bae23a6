"""Pooling over regions of interest: RoiAlign and MaxRoiPool."""

from __future__ import annotations

from typing import Any

from ....dtype import f32, f64, i64
from ..emit import ops
from ..node_context import NodeContext
from ..registry import rule
from .extents import extent, plain, total


def _corners(site: NodeContext, rois: Any, first: int, wide: Any) -> list[Any]:
    """Returns the scaled corners x1, y1, x2, y2 of the regions, each [regions]; they start at column `first` of `rois`."""
    scale = site.real("spatial_scale", 1.0)
    rois = rois if site.dtype(1) is wide else ops.cast(rois, wide)
    return [ops.mul(ops.squeeze(ops.slice(rois, 1, k, k + 1), 1), scale) for k in range(first, first + 4)]


@rule("RoiAlign")
def roi_align(site: NodeContext) -> Any:
    """Imports RoiAlign: the mean or maximum of bilinear samples in each bin of each region."""
    half = (
        site.version >= 16 and site.text("coordinate_transformation_mode", "half_pixel", "half_pixel", "output_half_pixel") == "half_pixel"
    )
    mode = site.text("mode", "avg", "avg", "max")
    bins = site.integer("output_height", 1), site.integer("output_width", 1)
    ratio, of = site.integer("sampling_ratio", 0), site.dtype(0)
    site.require(min(bins) > 0 and ratio >= 0 and site.rank(0) == 4 and site.rank(1) == 2, f"bins {bins}, sampling ratio {ratio}")
    wide = f64 if of is f64 else f32
    c, *spatial = site.tensor(0).shape[1:]
    x1, y1, x2, y2 = _corners(site, site.x(1), 0, wide)
    axes = [
        _samples(start, end, size, count, ratio, half) for start, end, size, count in zip((y1, x1), (y2, x2), spatial, bins, strict=True)
    ]
    counts = [axis["count"] for axis in axes]
    image = ops.reshape(ops.take(site.x(0), site.x(2), 0), (-1, c, total(spatial)))  # [regions, c, pixels]
    image = image if of is wide else ops.cast(image, wide)
    samples: Any = None
    for low_y in ("low", "high"):
        for low_x in ("low", "high"):
            value = _weighted(image, axes, low_y, low_x, spatial[1])
            if samples is None:
                samples = value
            else:
                samples = ops.add(samples, value) if mode == "avg" else ops.maximum(samples, value)
    return _gathered(samples, axes, mode, counts, c, bins, of)


def _samples(start: Any, end: Any, size: Any, bins: int, ratio: int, half: bool) -> dict[str, Any]:
    """Returns, along one dim, the indices and weights of the two pixels around each sample, [regions, bins, samples], and sample counts.

    `half` shifts coordinates by half a pixel; a `ratio` of 0 takes as many samples as a bin has pixels.
    """
    of = start.tensor.dtype
    start, end = (ops.sub(v, 0.5) if half else v for v in (start, end))
    length = ops.sub(end, start) if half else ops.maximum(ops.sub(end, start), 1.0)
    step = ops.div(length, float(bins))
    last = ops.sub(extent(size, of), 1.0)
    if ratio:
        samples: Any = ratio
        each: Any = ops.full_like(step, float(ratio))
    else:  # the number of pixels in a bin, which differs by region: data-dependent, so it becomes a new dim with an upper bound
        each = ops.maximum(ops.ceil(step), 0.0)
        most = plain((size + (bins - 1)) // bins + 1)
        samples = ops.bind_dim(ops.cast(ops.maximum(ops.max(each), 1.0), i64), most=most).annotation.value
    number = ops.reshape(ops.cast(ops.arange(samples), of), (1, 1, -1))
    place = ops.reshape(ops.cast(ops.arange(bins), of), (1, bins, 1))
    wide = [ops.reshape(v, (-1, 1, 1)) for v in (start, step, each)]
    at = ops.add(ops.add(wide[0], ops.mul(place, wide[1])), ops.div(ops.mul(ops.add(number, 0.5), wide[1]), ops.maximum(wide[2], 1.0)))
    there = ops.logical_and(ops.greater_equal(at, -1.0), ops.less_equal(at, ops.add(last, 1.0)))
    there = there if ratio else ops.logical_and(there, ops.less(number, wide[2]))
    at = ops.minimum(ops.maximum(at, 0.0), last)
    low = ops.floor(at)
    part = ops.sub(at, low)
    index = ops.cast(low, i64)
    return {
        "low": (index, ops.where(there, ops.sub(1.0, part), 0.0)),
        "high": (ops.minimum(ops.add(index, 1), ops.cast(last, i64)), ops.where(there, part, 0.0)),
        "samples": samples,
        "count": each,
        "used": None if ratio else ops.less(number, wide[2]),
    }


def _weighted(image: Any, axes: list[dict[str, Any]], y: str, x: str, width: Any) -> Any:
    """Returns one of the four pixels around each sample, times its weight: [regions, c, bins_y, samples_y, bins_x, samples_x]."""
    (row, high), (column, wide) = axes[0][y], axes[1][x]
    (r, by, sy), (_, bx, sx) = row.tensor.shape, column.tensor.shape
    flat = ops.add(ops.reshape(ops.mul(row, width), (r, by, sy, 1, 1)), ops.reshape(column, (r, 1, 1, bx, sx)))
    weight = ops.mul(ops.reshape(high, (r, 1, by, sy, 1, 1)), ops.reshape(wide, (r, 1, 1, 1, bx, sx)))
    c, points = image.tensor.shape[1], total([by, sy, bx, sx])
    pixels = ops.gather(image, ops.expand(ops.reshape(flat, (r, 1, points)), (r, c, points)), 2)
    return ops.mul(ops.reshape(pixels, (r, c, by, sy, bx, sx)), weight)


def _gathered(found: Any, axes: list[dict[str, Any]], mode: str, counts: list[Any], c: Any, bins: tuple[int, int], of: Any) -> Any:
    """Reduces the samples of each bin by mean or maximum; returns the bins, in the dtype `of`.

    `counts` are the samples of a bin in each region, along both axes; a bin without samples is 0.
    """
    if mode == "avg":
        number = ops.maximum(ops.mul(counts[0], counts[1]), 1.0)
        y = ops.div(ops.sum(found, axis=(3, 5)), ops.reshape(number, (-1, 1, 1, 1)))
    else:
        used = [axis["used"] for axis in axes]
        if used[0] is not None:
            r = found.tensor.shape[0]
            there = ops.logical_and(ops.reshape(used[0], (r, 1, 1, -1, 1, 1)), ops.reshape(used[1], (r, 1, 1, 1, 1, -1)))
            empty = ops.reshape(ops.equal(ops.mul(counts[0], counts[1]), 0.0), (r, 1, 1, 1))
            found = ops.where(there, found, float("-inf"))
            y = ops.where(empty, 0.0, ops.max(found, axis=(3, 5)))
        else:
            y = ops.max(found, axis=(3, 5))
    return y if y.tensor.dtype is of else ops.cast(y, of)


@rule("MaxRoiPool")
def max_roi_pool(site: NodeContext) -> Any:
    """Imports MaxRoiPool: the maximum of each bin of each region, 0 for an empty bin; reduced over columns, then rows."""
    bins, of = site.ints("pooled_shape", None) or [], site.dtype(0)
    site.require(
        len(bins) == 2 and min(bins) > 0 and site.rank(0) == 4 and site.shape(1)[1:] == (5,), f'attribute "pooled_shape" is {bins}'
    )
    wide = f64 if of is f64 else f32
    spatial = site.tensor(0).shape[2:]
    number = ops.cast(ops.squeeze(ops.slice(site.x(1), 1, 0, 1), 1), i64)
    x1, y1, x2, y2 = (_rounded(v) for v in _corners(site, site.x(1), 1, wide))
    image = ops.take(site.x(0), number, 0)  # [regions, c, h, w]
    image = image if of is wide else ops.cast(image, wide)
    rows, columns = (_members(a, b, size, k) for a, b, size, k in zip((y1, x1), (y2, x2), spatial, bins, strict=True))
    r, h, w = rows.tensor.shape[0], *spatial
    lowest = float("-inf")
    across = ops.max(ops.where(ops.reshape(columns, (r, 1, 1, bins[1], w)), ops.unsqueeze(image, 3), lowest), axis=-1)  # [r, c, h, bins_x]
    down = ops.max(ops.where(ops.reshape(rows, (r, 1, bins[0], h, 1)), ops.unsqueeze(across, 2), lowest), axis=3)
    empty = ops.logical_not(
        ops.logical_and(ops.reshape(ops.any(rows, axis=2), (r, 1, -1, 1)), ops.reshape(ops.any(columns, axis=2), (r, 1, 1, -1)))
    )
    y = ops.where(empty, 0.0, down)
    return y if of is wide else ops.cast(y, of)


def _rounded(x: Any) -> Any:
    """Returns `x` rounded to the nearest integer, ties away from zero."""
    return ops.mul(ops.sign(x), ops.floor(ops.add(ops.abs(x), 0.5)))


def _members(start: Any, end: Any, size: Any, bins: int) -> Any:
    """Returns the mask of pixels along one dim that belong to each bin: bool[regions, bins, size]."""
    of = start.tensor.dtype
    step = ops.reshape(ops.div(ops.maximum(ops.add(ops.sub(end, start), 1.0), 1.0), float(bins)), (-1, 1, 1))
    first = ops.reshape(start, (-1, 1, 1))
    number = ops.reshape(ops.cast(ops.arange(bins), of), (1, bins, 1))
    pixel = ops.reshape(ops.cast(ops.arange(size), of), (1, 1, -1))
    low = ops.add(ops.floor(ops.mul(number, step)), first)
    high = ops.add(ops.ceil(ops.mul(ops.add(number, 1.0), step)), first)
    return ops.logical_and(ops.greater_equal(pixel, low), ops.less(pixel, high))
