"""Resize and Upsample."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....sym.expr import Const, Expr
from ..emit import ops
from ..registry import rule
from ..site import Site

_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn")


@rule("Upsample")
def upsample(site: Site) -> Any:
    """A resize by scales; elements are repeated."""
    mode = site.text("mode", "nearest", "nearest", "linear", "bilinear")
    if site.version >= 9:
        scales: Any = _decimals(site.known(1))
    elif site.version >= 7:
        scales = _decimals(np.asarray(site.floats("scales", []), np.float32))
    else:
        scales = [1.0, 1.0, site.real("height_scale", 1.0), site.real("width_scale", 1.0)]
    linear = mode != "nearest"
    return ops.resize(site.x(0), scales=scales, mode="linear" if linear else mode, coordinates="asymmetric", nearest="floor")


def _decimals(scales: Any) -> list[float]:
    """Scales as the decimal numbers that they were written as."""
    return [float(str(s)) for s in np.asarray(scales).reshape(-1)]


@rule("Resize")
def resize(site: Site) -> Any:
    """Interpolation to sizes or by scales."""
    rank = site.rank(0)
    if site.version < 11:
        mode = site.text("mode", "nearest", "nearest", "linear")
        return ops.resize(site.x(0), scales=_decimals(site.known(1)), mode=mode, coordinates="asymmetric", nearest="floor")
    named: dict[str, Any] = {
        "mode": site.text("mode", "nearest", "nearest", "linear", "cubic"),
        "coordinates": site.text("coordinate_transformation_mode", "half_pixel", *_COORDINATES),
        "nearest": site.text("nearest_mode", "round_prefer_floor", *_NEAREST),
        "cubic_coeff_a": site.real("cubic_coeff_a", -0.75),
        "exclude_outside": bool(site.integer("exclude_outside", 0)),
    }
    if site.integer("antialias", 0):
        raise site.unsupported("antialias is not supported")
    axes = site.ints("axes", None)
    at = list(range(rank)) if axes is None else [site.normal(a, rank) for a in axes]
    if _given(site, 3):
        return ops.resize(site.x(0), sizes=_sizes(site, at), **named)
    site.require(_given(site, 2), "neither scales nor sizes are given")
    scales = [1.0] * rank
    found = _decimals(site.known(2))
    site.require(len(found) == len(at), f"{len(found)} scales for {len(at)} axes")
    for a, s in zip(at, found, strict=True):
        scales[a] = s
    return ops.resize(site.x(0), scales=scales, **named)


def _given(site: Site, k: int) -> bool:
    """Whether an input is there; an empty tensor stands for none."""
    return site.has(k) and site.shape(k) != (0,)


def _sizes(site: Site, at: list[int]) -> list[Any]:
    sizes: list[Any] = list(site.tensor(0).shape)
    wanted = site.dims(3)
    site.require(len(wanted) == len(at), f"{len(wanted)} sizes for {len(at)} axes")
    policy = site.text("keep_aspect_ratio_policy", "stretch", "stretch", "not_larger", "not_smaller")
    if policy != "stretch":
        old = [sizes[a] for a in at]
        if not all(isinstance(n, Const) for n in old) or any(isinstance(n, Expr) for n in wanted):
            raise site.unsupported(f'keep_aspect_ratio_policy "{policy}" of dims that are not known is not supported')
        ratios = [w / o.value for w, o in zip(wanted, old, strict=True)]
        scale = min(ratios) if policy == "not_larger" else max(ratios)
        wanted = [int(np.floor(scale * o.value + 0.5)) for o in old]
    for a, n in zip(at, wanted, strict=True):
        sizes[a] = n
    return sizes
