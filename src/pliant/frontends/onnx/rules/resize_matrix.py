"""Resizing by interpolation matrices, for what `ops.resize` does not support: antialiasing, regions, align_corners with scales.

Along one dim, a resize is a matmul with a matrix of weights [n, size], which depend on the distance of each pixel from the position of
each result. Operators compute the matrix, from symbolic dims and run-time regions; it is folded to a constant if these are known.
"""

from __future__ import annotations

from typing import Any

from ....dtype import f32, f64, i64
from ....support.record import dataclass
from ....sym.expr import Expr
from ..emit import ops
from ..node_context import NodeContext
from .extents import extent, plain


@dataclass(frozen=True, slots=True)
class Axis:
    """A record of the resize of one dim: the axis, its new size, the scale if one is given, start and end of the region."""

    number: int
    size: Any
    scale: Any  # a number, or an expression over dims; None if the sizes determine it
    region: tuple[Any, Any] | None  # numbers, or f64 values


@dataclass(frozen=True, slots=True)
class Weights:
    """The interpolation mode of a Resize, and its options."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool
    extrapolation: float


def resize_by_matrix(site: NodeContext, x: Any, axes: list[Axis], how: Weights) -> Any:
    """Resizes dims of `x` one after the other; results outside the region get the extrapolation value."""
    of = x.tensor.dtype
    wide = f64 if of is f64 else f32
    result = x if of is wide or how.mode == "nearest" else ops.cast(x, wide)
    outside = None
    for axis in axes:
        n = plain(result.tensor.shape[axis.number])
        places = _places(axis, n, how.coordinates)
        result = _nearest(result, axis, places, n, how.nearest) if how.mode == "nearest" else _product(result, axis, places, n, how, wide)
        if how.coordinates == "tf_crop_and_resize":
            shape = [-1 if k == axis.number else 1 for k in range(len(x.tensor.shape))]
            beyond = ops.logical_or(ops.less(places, 0.0), ops.greater(places, ops.sub(extent(n, f64), 1.0)))
            beyond = ops.reshape(beyond, shape)
            outside = beyond if outside is None else ops.logical_or(outside, beyond)
    result = result if outside is None else ops.where(outside, ops.constant(how.extrapolation, result.tensor.dtype), result)
    return result if result.tensor.dtype is of else ops.cast(result, of)


def _scale(axis: Axis, n: Any) -> Any:
    """Returns the scale of an axis as an f64 value."""
    if isinstance(axis.scale, Expr):
        return ops.cast(ops.scalar(axis.scale), f64)
    return ops.constant(axis.scale, f64) if axis.scale is not None else ops.div(extent(axis.size, f64), extent(n, f64))


def _places(axis: Axis, n: Any, kind: str) -> Any:
    """Returns the position of each result in the operand, f64[size], by the coordinate transformation `kind`."""
    i, scale, last = ops.cast(ops.arange(axis.size), f64), _scale(axis, n), ops.sub(extent(n, f64), 1.0)
    width = ops.mul(scale, extent(n, f64)) if axis.scale is not None else extent(axis.size, f64)
    middle = ops.sub(ops.div(ops.add(i, 0.5), scale), 0.5)
    single = ops.equal(width, 1.0)
    if kind in ("align_corners", "tf_crop_and_resize"):
        start, end = (ops.constant(v, f64) if isinstance(v, float) else v for v in axis.region or (0.0, 1.0))
        length = ops.mul(ops.sub(end, start), last) if kind == "tf_crop_and_resize" else last
        step = ops.div(length, ops.maximum(ops.sub(width, 1.0), 1e-30))
        lone = ops.div(length, 2.0) if kind == "tf_crop_and_resize" else ops.mul(length, 0.0)
        at = ops.where(single, ops.add(ops.mul(i, 0.0), lone), ops.mul(i, step))
        return ops.add(at, ops.mul(start, last)) if kind == "tf_crop_and_resize" else at
    if kind == "asymmetric":
        return ops.div(i, scale)
    if kind == "half_pixel_symmetric":
        return ops.add(middle, ops.mul(ops.div(extent(n, f64), 2.0), ops.sub(1.0, ops.div(extent(axis.size, f64), width))))
    return ops.where(single, ops.sub(ops.mul(i, 0.0), 0.5), middle) if kind == "pytorch_half_pixel" else middle


def _nearest(x: Any, axis: Axis, places: Any, n: Any, kind: str) -> Any:
    """Emits the resize of one dim by nearest neighbor."""
    rounded = {
        "floor": ops.floor,
        "ceil": ops.ceil,
        "round_prefer_floor": lambda v: ops.ceil(ops.sub(v, 0.5)),
        "round_prefer_ceil": lambda v: ops.floor(ops.add(v, 0.5)),
    }[kind](places)
    at = ops.minimum(ops.maximum(rounded, 0.0), ops.sub(extent(n, f64), 1.0))
    return ops.take(x, ops.cast(at, i64), axis.number)


def _product(x: Any, axis: Axis, places: Any, n: Any, how: Weights, wide: Any) -> Any:
    """Emits the resize of one dim by a matmul with its weight matrix."""
    rank = len(x.tensor.shape)
    matrix = ops.cast(_matrix(axis, places, n, how), wide)
    order = [k for k in range(rank) if k != axis.number] + [axis.number]
    return ops.permute(ops.matmul(ops.permute(x, order), matrix), [order.index(k) for k in range(rank)])


def _matrix(axis: Axis, places: Any, n: Any, how: Weights) -> Any:
    """Returns the weights [n, size] of pixels.

    Weights of pixels outside the image go to the border pixel, or with `exclude_outside` are left out and the others renormalized.
    """
    before = _reach(axis, n, how)
    pixel = ops.unsqueeze(ops.cast(ops.sub(ops.arange(plain(n + 2 * before)), before), f64), 1)
    distance = ops.abs(ops.sub(pixel, ops.unsqueeze(places, 0)))
    weights = _kernel(ops.mul(distance, ops.minimum(_scale(axis, n), 1.0)) if how.antialias else distance, how)
    inside = ops.slice(weights, 0, before, plain(n + before))
    if how.exclude_outside:
        return ops.div(inside, ops.sum(inside, axis=0, keepdims=True))
    rows = ops.unsqueeze(ops.arange(n), 1)
    left = ops.sum(ops.slice(weights, 0, 0, before), axis=0, keepdims=True)
    right = ops.sum(ops.slice(weights, 0, plain(n + before), plain(n + 2 * before)), axis=0, keepdims=True)
    whole = ops.add(inside, ops.where(ops.equal(rows, 0), left, 0.0))
    whole = ops.add(whole, ops.where(ops.equal(rows, ops.sub(extent(n, i64), 1)), right, 0.0))
    return ops.div(whole, ops.sum(whole, axis=0, keepdims=True)) if how.antialias else whole


def _reach(axis: Axis, n: Any, how: Weights) -> Any:
    """Returns the number of pixels before the image that can have a weight."""
    if not how.antialias:
        return 3
    if isinstance(axis.scale, float):
        return int(2 / min(axis.scale, 1.0)) + 2
    return plain(((n + axis.size) // axis.size) * 2 + 2) if isinstance(axis.size, Expr) or axis.size else 2


def _kernel(d: Any, how: Weights) -> Any:
    """Returns the linear or cubic weight of a pixel at distance `d`."""
    if how.mode == "linear":
        return ops.maximum(ops.sub(1.0, d), 0.0)
    a = how.cubic
    near = ops.add(ops.mul(ops.mul(ops.sub(ops.mul(d, a + 2), a + 3), d), d), 1.0)
    far = ops.sub(ops.mul(ops.add(ops.mul(ops.sub(ops.mul(d, a), 5 * a), d), 8 * a), d), 4 * a)
    return ops.where(ops.less_equal(d, 1.0), near, ops.where(ops.less(d, 2.0), far, 0.0))
