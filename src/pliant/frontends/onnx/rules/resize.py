"""Resize and Upsample."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dtype import f64
from ....graph.ops.resize import fraction_of
from ....sym.expr import Const, Expr
from ..emit import ops
from ..items import Known
from ..registry import rule
from ..site import Site
from .extents import plain
from .resize_matrix import Axis, Weights, resize_by_matrix

_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip


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
    axes = site.ints("axes", None)
    at = list(range(rank)) if axes is None else [site.normal(a, rank) for a in axes]
    if _given(site, 3):
        sizes = _sizes(site, at)
        return _by_matrix(site, at, sizes, None, named) if _needs_matrix(site, named) else ops.resize(site.x(0), sizes=sizes, **named)
    site.require(_given(site, 2), "neither scales nor sizes are given")
    scales = [1.0] * rank
    found = _decimals(site.known(2))
    site.require(len(found) == len(at) and min(found, default=1.0) > 0, f"{len(found)} scales for {len(at)} axes")
    for a, s in zip(at, found, strict=True):
        scales[a] = s
    if _needs_matrix(site, named) or (named["coordinates"] == "align_corners" and not _whole(site, scales)):
        return _by_matrix(site, at, [_scaled(n, s) for n, s in zip(site.tensor(0).shape, scales, strict=True)], scales, named)
    return ops.resize(site.x(0), scales=scales, **named)


def _needs_matrix(site: Site, named: dict[str, Any]) -> bool:
    return named["coordinates"] == "tf_crop_and_resize" or bool(site.integer("antialias", 0) and named["mode"] != "nearest")


def _scaled(n: Any, scale: float) -> Any:
    exact = fraction_of(scale)
    return plain(n * exact.numerator // exact.denominator)


def _whole(site: Site, scales: list[float]) -> bool:
    """Whether scaled dims are whole numbers, so that the scale is that of the sizes."""
    exact = [(n, fraction_of(s)) for n, s in zip(site.shape(0), scales, strict=True)]
    return all(s.denominator == 1 or (isinstance(n, int) and n * s.numerator % s.denominator == 0) for n, s in exact)


def _by_matrix(site: Site, at: list[int], sizes: list[Any], scales: list[float] | None, named: dict[str, Any]) -> Any:
    cropped = named["coordinates"] == "tf_crop_and_resize"
    regions = _regions(site, at) if cropped else [None] * len(at)
    chosen = [
        Axis(a, plain(sizes[a]), None if scales is None else scales[a], region)
        for a, region in zip(at, regions, strict=True)
        if region not in (None, (0.0, 1.0)) or sizes[a] is not site.tensor(0).shape[a]
    ]
    antialias = bool(site.integer("antialias", 0))
    how = Weights(
        named["mode"], named["coordinates"], named["nearest"], named["cubic_coeff_a"], antialias, named["exclude_outside"],
        site.real("extrapolation_value", 0.0),
    )  # fmt: skip
    return resize_by_matrix(site, site.x(0), chosen, how)


def _regions(site: Site, at: list[int]) -> list[Any]:
    """Start and end of the region along each axis: numbers, or values that a run tells."""
    site.require(_given(site, 1) and site.shape(1) == (2 * len(at),), f"a region of {2 * len(at)} numbers is expected")
    item = site.item(1)
    if isinstance(item, Known):
        ends: list[Any] = [float(v) for v in item.array]
    else:
        wide = ops.cast(site.x(1), f64) if site.dtype(1) is not f64 else site.x(1)
        ends = [ops.reshape(ops.slice(wide, 0, k, k + 1), ()) for k in range(2 * len(at))]
    return list(zip(ends[: len(at)], ends[len(at) :], strict=True))


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
