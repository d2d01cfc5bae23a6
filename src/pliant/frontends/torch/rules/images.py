"""Interpolation of images: upsample and grid_sampler."""

from __future__ import annotations

from typing import Any

from ...onnx.rules.extents import total
from ...onnx.rules.sampling import Image, place, sample
from ..emit import ops
from ..registry import rule
from ..site import Site, rank, shape

_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


@rule("aten.upsample_nearest1d", "aten.upsample_nearest2d", "aten.upsample_nearest3d", "aten.upsample_linear1d",
      "aten.upsample_bilinear2d", "aten.upsample_trilinear3d", "aten.upsample_bicubic2d")  # fmt: skip
def upsample(
    site: Site, input: Any = None, self: Any = None, output_size: Any = None, align_corners: bool = False, scale_factors: Any = None,
    scales: Any = None, scales_d: Any = None, scales_h: Any = None, scales_w: Any = None,
) -> Any:  # fmt: skip
    """Imports the interpolations (nearest, linear, bicubic) of one to three dims to a size, or by scale factors.

    If both are given, the factors decide unless corners are aligned. Nearest takes the element below, without half pixels.
    """
    x = input if self is None else self
    mode = _MODES[site.op.removeprefix("aten.upsample_")[:-2]]
    dims = rank(x) - 2
    given = scale_factors
    if given is None:
        single = [s for s in (scales_d, scales_h, scales_w, scales) if s is not None]
        given = single if len(single) == dims else None
    lead = list(shape(x)[:2])
    coordinates = "asymmetric" if mode == "nearest" else "align_corners" if align_corners else "half_pixel"
    named = {"mode": mode, "coordinates": coordinates, "nearest": "floor"}
    if output_size is None or (given is not None and not align_corners):
        return ops.resize(x, scales=[1, 1, *map(float, given)], **named)
    return ops.resize(x, sizes=[*lead, *output_size], **named)


@rule("aten.grid_sampler", "aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sampler(site: Site, input: Any, grid: Any, interpolation_mode: int = 0, padding_mode: int = 0, align_corners: bool = False) -> Any:
    """Imports grid_sampler by the sampling that ONNX's GridSample uses, too: the image at the points of a grid, of two or three dims."""
    mode = ("linear", "nearest", "cubic")[interpolation_mode]
    outside = ("zeros", "border", "reflection")[padding_mode]
    dims = rank(input) - 2
    n, *out, _ = grid.tensor.shape
    image = Image(input, outside, align_corners)
    flat = ops.reshape(grid, (n, total(out), dims))
    places = []
    for k in range(dims):
        at = ops.squeeze(ops.slice(flat, 2, dims - 1 - k, dims - k), 2)
        places.append(place(image, k, at, mode, align_corners))
    return ops.reshape(sample(image, places, mode), (n, image.c, *out))
