"""Resize and Upsample, by `ops.resize` where it applies, else by interpolation matrices (`resize_matrix.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dtype import f32, f64, i64
from ....graph.ops.resize import fraction_of
from ....sym.expr import Add, Cast, Const, Div, Expr, Lt, Mul, Select, Sub, const
from ..emit import ops
from ..items import Known
from ..node_context import NodeContext
from ..registry import rule
from .extents import plain
from .resize_matrix import Axis, Weights, resize_by_matrix

SHORT = 100  # for scales with a denominator up to this, exact arithmetic gives the same sizes as f32
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip


@rule("Upsample")
def upsample(site: NodeContext) -> Any:
    """Imports Upsample: resizes by scales (asymmetric coordinates, floor), by nearest neighbor or linear interpolation."""
    mode = site.text("mode", "nearest", "nearest", "linear", "bilinear")
    if site.version >= 9:
        scales = _scales(site, 1)
    elif site.version >= 7:
        scales = _decimals(np.asarray(site.floats("scales", []), np.float32))
    else:
        scales = [1.0, 1.0, site.real("height_scale", 1.0), site.real("width_scale", 1.0)]
    named = {"mode": "nearest" if mode == "nearest" else "linear", "coordinates": "asymmetric", "nearest": "floor"}
    return _by_scales(site, list(range(site.rank(0))), scales, named)


def _decimals(scales: Any) -> list[Any]:
    """Converts f32 scales to the shortest decimal numbers that round to them, i.e. to what the exporter wrote."""
    return [float(str(s)) for s in np.asarray(scales).reshape(-1)]


def _scales(site: NodeContext, k: int) -> list[Any]:
    """Returns the scales of input `k`, as numbers and expressions over dims; raises NeededError if they are known only at run time."""
    item = site.item(k)
    if not isinstance(item, Known):
        raise site.importer.needed(site, k)
    return [s if isinstance(s, Expr) else float(str(np.float32(s))) for s in item.array.reshape(-1)]


@rule("Resize")
def resize(site: NodeContext) -> Any:
    """Imports Resize to sizes or by scales.

    Raises UnsupportedError for antialiasing or a region together with a keep_aspect_ratio_policy.
    """
    rank = site.rank(0)
    if site.version < 11:
        mode = site.text("mode", "nearest", "nearest", "linear")
        return _by_scales(site, list(range(rank)), _scales(site, 1), {"mode": mode, "coordinates": "asymmetric", "nearest": "floor"})
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
        sizes, ratios = _sizes(site, at)
        if _needs_matrix(site, named):
            if ratios is not None:
                raise site.unsupported("antialiasing or a region together with a keep_aspect_ratio_policy is not supported")
            return _by_matrix(site, at, sizes, None, named)
        return ops.resize(site.x(0), sizes=sizes, ratios=ratios, **named)
    site.require(_given(site, 2), "neither scales nor sizes are given")
    return _by_scales(site, at, _scales(site, 2), named)


def _by_scales(site: NodeContext, at: list[int], found: list[Any], named: dict[str, Any]) -> Any:
    """Emits a resize of the axes `at` by the scales `found`."""
    plain_ones = [s for s in found if not isinstance(s, Expr)]
    site.require(len(found) == len(at) and min(plain_ones, default=1.0) > 0, f"{len(found)} scales for {len(at)} axes")
    scales: list[Any] = [1.0] * site.rank(0)
    for a, s in zip(at, found, strict=True):
        scales[a] = s
    dims = site.shape(0)
    sizes = [_scaled(n, s) for n, s in zip(dims, scales, strict=True)]
    ratios = [_fraction(s) for s in scales]
    corners = named["coordinates"] == "align_corners" and not all(_whole(n, r) for n, r in zip(dims, ratios, strict=True))
    if corners or None in ratios or _needs_matrix(site, named):
        return _by_matrix(site, at, sizes, scales, named)
    return ops.resize(site.x(0), sizes=sizes, ratios=ratios, **named)


def _needs_matrix(site: NodeContext, named: dict[str, Any]) -> bool:
    """True for regions and for antialiased interpolation, which `ops.resize` does not support."""
    return named["coordinates"] == "tf_crop_and_resize" or bool(site.integer("antialias", 0) and named["mode"] != "nearest")


def _scaled(n: Any, scale: Any) -> Any:
    """Returns the size floor(n * scale), computed in f32 like onnxruntime; the standard does not specify the precision."""
    if isinstance(n, int) and not isinstance(scale, Expr):
        return int(np.float32(n) * np.float32(scale))
    if not isinstance(scale, Expr) and fraction_of(scale).denominator <= SHORT:
        exact = fraction_of(scale)
        return plain(n * exact.numerator // exact.denominator)
    wide = Cast(f32, n if isinstance(n, Expr) else const(n))
    return plain(Cast(i64, Mul(wide, scale if isinstance(scale, Expr) else Const(scale, f32))))


def _fraction(scale: Any) -> tuple[Any, Any] | None:
    """Returns a scale as a fraction (numerator, denominator) of integers and dims; None if it is not rational arithmetic on these."""
    if not isinstance(scale, Expr):
        exact = fraction_of(scale)
        return exact.numerator, exact.denominator
    if isinstance(scale, Const):
        return _fraction(float(str(np.float32(scale.value))))
    if isinstance(scale, Cast):
        return (scale.args[0], 1) if scale.args[0].dtype.is_int else _fraction(scale.args[0])
    if not isinstance(scale, Div | Mul | Add | Sub):
        return None
    left, right = (_fraction(a) for a in scale.args)
    if left is None or right is None:
        return None
    if isinstance(scale, Add | Sub):
        first, second = left[0] * right[1], right[0] * left[1]
        return plain(first + second if isinstance(scale, Add) else first - second), plain(left[1] * right[1])
    right = right if isinstance(scale, Mul) else right[::-1]
    return plain(left[0] * right[0]), plain(left[1] * right[1])


def _whole(n: Any, ratio: tuple[Any, Any] | None) -> bool:
    """True if n * ratio is an integer, so that the ratio of the sizes equals the scale."""
    return ratio is not None and (ratio[1] is n or plain(n * ratio[0] % ratio[1]) == 0)


def _by_matrix(site: NodeContext, at: list[int], sizes: list[Any], scales: list[Any] | None, named: dict[str, Any]) -> Any:
    """Emits a resize by interpolation matrices, for the axes that change."""
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


def _regions(site: NodeContext, at: list[int]) -> list[Any]:
    """Returns the start and end of the region of interest along each axis: numbers, or run-time values.

    Raises ModelFileError if input 1 does not have two numbers for each axis.
    """
    if _given(site, 1):
        site.settle(1, 2 * len(at))
    site.require(_given(site, 1) and site.shape(1) == (2 * len(at),), f"a region of {2 * len(at)} numbers is expected")
    item = site.item(1)
    if isinstance(item, Known):
        ends: list[Any] = [float(v) for v in item.array]
    else:
        wide = ops.cast(site.x(1), f64) if site.dtype(1) is not f64 else site.x(1)
        ends = [ops.reshape(ops.slice(wide, 0, k, k + 1), ()) for k in range(2 * len(at))]
    return list(zip(ends[: len(at)], ends[len(at) :], strict=True))


def _given(site: NodeContext, k: int) -> bool:
    """True if an input is present; an empty tensor counts as absent."""
    return site.has(k) and site.shape(k) != (0,)


def _sizes(site: NodeContext, at: list[int]) -> tuple[list[Any], list[Any] | None]:
    """Returns the sizes of all dims, and their common ratio if a keep_aspect_ratio_policy applies, else None."""
    sizes: list[Any] = list(site.tensor(0).shape)
    wanted = site.dims(3)
    site.require(len(wanted) == len(at), f"{len(wanted)} sizes for {len(at)} axes")
    policy = site.text("keep_aspect_ratio_policy", "stretch", "stretch", "not_larger", "not_smaller")
    if policy == "stretch":
        for a, n in zip(at, wanted, strict=True):
            sizes[a] = n
        return sizes, None
    up, down = _common_ratio([(w, site.shape(0)[a]) for a, w in zip(at, wanted, strict=True)], policy == "not_larger")
    ratios: list[Any] = [(1, 1)] * len(sizes)
    for a in at:
        sizes[a] = plain((site.shape(0)[a] * up * 2 + down) // (down * 2))
        ratios[a] = (up, down)
    return sizes, ratios


def _common_ratio(pairs: list[tuple[Any, Any]], least: bool) -> tuple[Any, Any]:
    """Returns the smallest (`least`) or largest of fractions, which may contain dims."""
    up, down = pairs[0]
    for a, b in pairs[1:]:
        left, right = (const(v) if isinstance(v, int) else v for v in (a * down, up * b))
        other = Lt(left, right) if least else Lt(right, left)
        up, down = (plain(Select(other, *(const(v) if isinstance(v, int) else v for v in both))) for both in ((a, up), (b, down)))
    return up, down
