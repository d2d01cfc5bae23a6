"""Limits of the maps of a bounded stream: found on frames of the clip, so that the error of the results holds with the least work.

All limits begin as a share of the mean magnitude of their maps that grows with the depth of the map: an error of an early map spreads over
the windows of all later ones. For each of a few slopes, the largest share that keeps the error is found, and the slope that saves most is
taken. Then the maps that most work depends on are tried one by one with twice their limit. The frames are split: the last third is not
looked at while limits are chosen, and its error is the one that is told. If that is larger than asked for, all limits shrink until it
holds.

The bound is statistical: it holds on the frames that were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..support.errors import Error
from .program import ALWAYS_LISTS, ALWAYS_WHOLE, Array, StreamProgram

LEAST_FRAMES = 4
STEPS = 8  # halvings of the interval of the share, on a logarithmic scale
SLOPES = (1.0, 5.0, 25.0)  # by how much the share of the last map exceeds that of the first
SHARES = (1e-4, 4.0)  # of the mean magnitude of a map: below nothing is saved, above nothing is left of a map
TRIED = 12  # maps whose limits are tried alone
CONVERSION = 8  # operations on an element, at most, of a map that is the frame in another form
PICTURE_LIMITS = (0, 1, 2, 4, 8)  # for bytes of a picture
Metric = Callable[[Mapping[str, Array], Mapping[str, Array]], float]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Limits of maps, and what was measured with them on frames that did not choose them."""

    limits: Array
    error: float  # the largest of a held-out frame
    density: float  # the share of the operations on maps
    frames: int  # that were measured
    ranges: Mapping[str, Array]  # of each channel of each result
    own_metric: bool = False  # the error is that of a function of the user

    def __str__(self) -> str:
        return f"calibrated on {self.frames} frames: error {self.error:.3%} on held-out frames, {self.density:.1%} of the operations"


def channel_ranges(results: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Returns the distance between the least and the greatest element of each channel (axis 1) of each result over all frames.

    It is never less than a millionth of the largest magnitude: a channel that does not move has no scale of its own.
    """
    ranges: dict[str, Array] = {}
    for name in results[0]:
        stack = np.stack([_by_channel(r[name]) for r in results])
        least = np.maximum(np.abs(stack).max((0, 2)) * 1e-6, np.finfo(np.float32).tiny)
        ranges[name] = np.maximum(stack.max((0, 2)) - stack.min((0, 2)), least)
    return ranges


def largest_error(found: Mapping[str, Array], want: Mapping[str, Array], ranges: Mapping[str, Array]) -> float:
    """Returns the largest distance of an element of a result, relative to the range of its channel; infinity where one is NaN alone."""
    worst = 0.0
    for name, y in want.items():
        a, b = _by_channel(found[name]), _by_channel(y)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            distance = np.where(same, 0.0, np.abs(a - b)) / ranges[name][:, None]
        worst = max(worst, float(np.max(np.where(np.isnan(distance), np.inf, distance), initial=0.0)))
    return worst


def _by_channel(y: Array) -> Array:
    """Returns a result as float64[channels, elements]."""
    y = np.asarray(y, np.float64)
    return np.moveaxis(y, 1, 0).reshape(y.shape[1], -1) if y.ndim > 1 else y.reshape(1, -1)


class _Measured:
    """Runs a clip with limits, and compares its results with those of whole frames."""

    def __init__(self, program: StreamProgram, frames: Sequence[Array], metric: Metric | None) -> None:
        self.program, self.frames, self.metric = program, frames, metric
        self.exact: list[dict[str, Array]] = []
        sizes = np.zeros(len(program.maps))
        state = program.new_state()
        for frame in frames:
            results = program.step(frame, state, program.exact, ALWAYS_WHOLE)
            self.exact.append({name: y.copy() for name, y in results.items()})
            sizes += [float(np.abs(state.tensors[k].astype(np.float32)).sum()) / np.prod(m.shape) for k, m in enumerate(program.maps)]
        self.sizes = (sizes / len(frames)).astype(np.float32)  # the mean magnitude of each map
        self.ranges = channel_ranges(self.exact)

    def run(self, limits: Array, frames: range) -> tuple[float, float, Array]:
        """Returns the largest error of these frames, the mean density, and the mean share of the pixels of each map."""
        state = self.program.new_state()
        worst, density, shares = 0.0, 0.0, np.zeros(len(self.program.maps))
        pixels = np.array([m.pixels for m in self.program.maps])
        for k in frames:
            found = self.program.step(self.frames[k], state, limits, ALWAYS_LISTS)
            want = self.exact[k]
            worst = max(worst, self.metric(found, want) if self.metric else largest_error(found, want, self.ranges))
            if k != frames.start:  # the first frame is always computed as a whole
                density += self.program.density(state, ALWAYS_LISTS)
                shares += self.program.computed(state, ALWAYS_LISTS) / pixels
        count = max(1, len(frames) - 1)
        return worst, density / count, shares / count


def calibrate(program: StreamProgram, frames: Sequence[Array], error: float, metric: Metric | None = None) -> Calibration:
    """Returns the limits with which the error of the results is at most `error` on the given frames, and what was measured.

    Raises Error for fewer than 4 frames.
    """
    if len(frames) < LEAST_FRAMES:
        raise Error(f"{len(frames)} frames are too few to calibrate", help=f"give {LEAST_FRAMES} or more, better 32, from the clip itself")
    measured = _Measured(program, frames, metric)
    split = len(frames) - len(frames) // 3
    chosen, held_out = range(split), range(split, len(frames))
    limits = _of_pictures(measured, _refined(measured, _common(measured, chosen, error), chosen, error), chosen, error)
    result = Calibration(limits, *measured.run(limits, held_out)[:2], len(frames), measured.ranges, metric is not None)
    while result.error > error and bool((limits > 0).any()):
        limits = np.where(limits > 1e-12, limits * np.float32(0.7), np.minimum(limits, 0)).astype(np.float32)
        worst, density, _ = measured.run(limits, held_out)
        result = replace(result, limits=limits, error=worst, density=density)
    return result


def _common(measured: _Measured, frames: range, error: float) -> Array:
    """Returns limits that are shares of the mean magnitudes of the maps: of those that keep the error, the ones with the least work."""
    best, least = _scaled(measured, 0.0, 1.0), np.inf
    for slope in SLOPES:
        low, high = (float(np.log(s)) for s in SHARES)
        for _ in range(STEPS):
            middle = (low + high) / 2
            limits = _scaled(measured, float(np.exp(middle)), slope)
            worst, density, _ = measured.run(limits, frames)
            low, high = (middle, high) if worst <= error else (low, middle)
            if worst <= error and density < least:
                best, least = limits, density
    return best


def _scaled(measured: _Measured, share: float, slope: float) -> Array:
    """Returns shares of the mean magnitudes of all maps, larger for later ones; 0 for the frame and for what is only converted from it."""
    maps = measured.program.maps
    depth = np.arange(len(maps), dtype=np.float32) / max(1, len(maps) - 1)
    limits: Array = measured.sizes * np.float32(share) * np.float32(slope) ** (depth - np.float32(0.5))
    for k, m in enumerate(maps):
        if m.operations > CONVERSION * np.prod(m.shape):
            break
        limits[k] = 0
    return limits


def _refined(measured: _Measured, limits: Array, frames: range, error: float) -> Array:
    """Returns limits of which those of the maps with the most computed operations were tried with twice their value."""
    _, density, shares = measured.run(limits, frames)
    work = shares * [m.operations for m in measured.program.maps]
    for k in [int(k) for k in np.argsort(-work) if k and limits[k] > 0][:TRIED]:
        tried = limits.copy()
        tried[k] *= 2
        worst, less, _ = measured.run(tried, frames)
        if worst <= error and less < density:
            limits, density = tried, less
    return limits


def _of_pictures(measured: _Measured, limits: Array, frames: range, error: float) -> Array:
    """Returns limits with the largest one of the frame itself that keeps the error and saves work, if frames are pictures."""
    if measured.program.frame.dtype.is_float:
        return limits
    _, density, _ = measured.run(limits, frames)
    for value in PICTURE_LIMITS[1:]:
        tried = limits.copy()
        tried[0] = value
        worst, less, _ = measured.run(tried, frames)
        if worst > error:
            break
        if less < density:
            limits, density = tried, less
    return limits


def as_json(c: Calibration) -> dict[str, Any]:
    """Returns a calibration as plain lists and numbers."""
    ranges = {name: [float(x) for x in r] for name, r in c.ranges.items()}
    measured = {"error": c.error, "density": c.density, "frames": c.frames, "own_metric": c.own_metric}
    return {"limits": [float(x) for x in c.limits], "ranges": ranges, **measured}


def from_json(data: Any, program: StreamProgram) -> Calibration:
    """Returns a calibration that was written as JSON; raises ValueError unless it fits the program."""
    try:
        limits = np.array(data["limits"], np.float32)
        ranges = {str(name): np.array(r, np.float64) for name, r in data["ranges"].items()}
        error, density, frames, own_metric = float(data["error"]), float(data["density"]), int(data["frames"]), data["own_metric"] is True
    except (TypeError, KeyError, AttributeError, OverflowError):
        raise ValueError("its calibration cannot be read") from None
    channels = {name: _channels(program.function.results[place].tensor.shape) for name, place in program.outputs.items()}
    if limits.shape != (len(program.maps),) or np.isnan(limits).any() or {name: r.shape for name, r in ranges.items()} != channels:
        raise ValueError("its calibration does not fit its program")
    return Calibration(limits, error, density, frames, ranges, own_metric)


def _channels(shape: Sequence[Any]) -> tuple[int, ...]:
    """Returns the shape of the ranges of a result."""
    return (int(str(shape[1])) if len(shape) > 1 else 1,)
