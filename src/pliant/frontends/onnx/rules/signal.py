"""Signal processing: DFT, STFT, MelWeightMatrix.

A discrete Fourier transform is a matmul with a matrix of cosines and one of sines. `k * t` is reduced modulo the length in integers, so
that the angles are exact; for a constant length the matrices are folded to constants.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....dtype import f32, f64, i64
from ....sym.expr import Eq, Select, const
from ..emit import ops
from ..items import numbers
from ..node_context import NodeContext
from ..registry import rule
from .extents import extent, least, plain


@rule("DFT")
def dft(site: NodeContext) -> Any:
    """Imports DFT, the discrete Fourier transform along an axis; the last dim holds the real part, or real and imaginary parts."""
    rank = site.rank(0)
    wanted = site.integer("axis", 1) if site.version < 20 else int(site.number(2)) if site.has(2) else -2
    axis = site.normal(wanted, rank)
    site.require(axis != rank - 1, "the axis is the one of real and imaginary parts")
    inverse, onesided = bool(site.integer("inverse", 0)), bool(site.integer("onesided", 0))
    n = site.shape(0)[axis]
    points = site.dims(1)[0] if site.has(1) else plain(2 * (n - 1)) if inverse and onesided else n
    site.require(not isinstance(points, int) or points > 0, f"a transform of {points} points")
    return transform(site, site.x(0), site.shape(0), axis, points, inverse, onesided)


def transform(site: NodeContext, x: Any, shape: tuple[Any, ...], axis: int, points: Any, inverse: bool, onesided: bool) -> Any:
    """Emits the DFT of `points` points along an axis, which is truncated or zero-padded to that length.

    Raises NeededError unless the last dim is known; ModelFileError if it is not 1 (real) or 2 (complex). `onesided` keeps the first half of
    the result, or of the operand of an inverse.
    """
    rank, of = len(shape), x.tensor.dtype
    if not isinstance(shape[-1], int):
        raise site.needed_dim("the last dim, 1 (real) or 2 (complex), must be known")
    site.require(shape[-1] in (1, 2), f"the last dim is {shape[-1]}, 1 (real) or 2 (complex) is expected")
    half = plain(points // 2 + 1)
    used = least(shape[axis], half if inverse and onesided else points)
    order = [k for k in range(rank - 1) if k != axis] + [axis]
    parts = []
    for k in range(shape[-1]):
        part = ops.squeeze(ops.slice(x, rank - 1, k, k + 1), rank - 1)
        parts.append(ops.slice(ops.permute(part, order), rank - 2, 0, used))
    outs = half if onesided and not inverse else points
    cos, sin = _matrices(used, outs, points, inverse, onesided, of)
    results = _products(parts, cos, sin, inverse, onesided)
    back = [order.index(k) for k in range(rank - 1)]
    return ops.stack([ops.permute(p, back) for p in results], rank - 1)


def _matrices(rows: Any, columns: Any, points: Any, inverse: bool, onesided: bool, of: Any) -> tuple[Any, Any]:
    """Returns the matrices of cosines and sines, [rows, columns]; they include the 1/n of an inverse.

    A one-sided inverse also has the weight 2 of mirrored bins.
    """
    k, t = ops.unsqueeze(ops.arange(rows), 1), ops.unsqueeze(ops.arange(columns), 0)
    turn = ops.div(ops.cast(ops.remainder(ops.mul(k, t), extent(points, i64)), f64), extent(points, f64))
    angle = ops.mul(turn, 2 * math.pi)
    cos, sin = ops.cos(angle), ops.sin(angle)
    if inverse:
        factor: Any = ops.div(1.0, extent(points, f64))
        if onesided:  # bins count twice, for their mirror images too; except the first, and the middle one of an even length
            middle = const(points) if isinstance(points, int) else points
            last = plain(Select(Eq(middle % 2, const(0)), middle // 2, const(-1)))
            single = ops.logical_or(ops.equal(k, 0), ops.equal(k, last))
            factor = ops.mul(ops.where(single, ops.constant(1.0, f64), ops.constant(2.0, f64)), factor)
        cos, sin = ops.mul(cos, factor), ops.mul(sin, factor)
    return tuple(m if of is f64 else ops.cast(m, of) for m in (cos, sin))


def _products(parts: list[Any], cos: Any, sin: Any, inverse: bool, onesided: bool) -> list[Any]:
    """Returns the real and imaginary parts of sum(x * exp(-i angle)), or exp(i angle) if inverse.

    Only the real part if inverse and one-sided.
    """
    real_cos, real_sin = ops.matmul(parts[0], cos), ops.matmul(parts[0], sin)
    if len(parts) == 1:
        return [real_cos] if inverse and onesided else [real_cos, real_sin if inverse else ops.neg(real_sin)]
    imag_cos, imag_sin = ops.matmul(parts[1], cos), ops.matmul(parts[1], sin)
    if inverse:
        real = ops.sub(real_cos, imag_sin)
        return [real] if onesided else [real, ops.add(real_sin, imag_cos)]
    return [ops.add(real_cos, imag_sin), ops.sub(imag_cos, real_sin)]


@rule("STFT")
def stft(site: NodeContext) -> Any:
    """Imports STFT, the short-time Fourier transform of a signal (batch, length, 1 or 2), or of a real one (batch, length)."""
    site.require(site.rank(0) in (2, 3), f"the signal has {site.rank(0)} dims, (batch, length) or (batch, length, 1 or 2) is expected")
    x = site.x(0) if site.rank(0) == 3 else ops.unsqueeze(site.x(0), 2)
    batch, length, parts = (*site.shape(0), 1)[:3]
    step = site.dims(1)[0]
    site.require(not isinstance(step, int) or step > 0, f"a step of {step}")
    size = site.dims(3)[0] if site.has(3) else site.shape(2)[0] if site.has(2) else length
    frames = plain((length - size) // step + 1)
    site.require(not isinstance(frames, int) or frames > 0, f"a window of {size} elements over {length}")
    places = ops.add(ops.unsqueeze(ops.mul(ops.arange(frames), step), 1), ops.unsqueeze(ops.arange(size), 0))
    cut: Any = ops.take(x, places, 1)  # [batch, frames, size, parts]
    if site.has(2):
        cut = ops.mul(cut, ops.reshape(site.x(2), (size, 1)))
    return transform(site, cut, (batch, frames, size, parts), 2, size, False, bool(site.integer("onesided", 1)))


@rule("MelWeightMatrix")
def mel_weight_matrix(site: NodeContext) -> Any:
    """Imports MelWeightMatrix: weights of triangular windows equally spaced on the mel scale, as a literal."""
    bins, points, rate = (int(site.number(k)) for k in range(3))
    low, high = (float(site.number(k)) for k in (3, 4))
    of = site.dtype_attribute("output_datatype", f32)
    rows = points // 2 + 1
    site.require(min(bins, points, rate) > 0 and bins * rows <= 1 << 26, f"{bins} bins of {points} points at rate {rate}")
    edges = np.linspace(_mel(low), _mel(high), bins + 3)[: bins + 2]
    at = ((points + 1) * (700 * np.expm1(edges * np.log(10) / 2595)) // rate).astype(np.int64)
    site.require(bool(((at >= 0) & (at < rows + 1)).all()), "the edges lie outside of the spectrum")
    place = np.arange(rows)[:, None]
    left, center, right = at[None, :-2], at[None, 1:-1], at[None, 2:]
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = np.where((place >= left) & (place <= center), np.where(left == center, 1.0, (place - left) / (center - left)), 0.0)
        falling = (right - place) / (right - center)
    weights = np.where((place >= center) & (place < right), falling, rising)
    return numbers(weights.astype(of.numpy()))


def _mel(hertz: float) -> float:
    return float(2595 * np.log1p(hertz / 700) / np.log(10))
