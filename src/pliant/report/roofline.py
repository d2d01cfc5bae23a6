"""Draws the roofline of a profiled run as SVG: what each kernel reached, under the measured limits of the machine.

svg = roofline(x)        # x: facts with a profile

x is the arithmetic intensity (floating-point operations for each byte that the kernel has to move), y the rate of operations; both are
logarithmic. No kernel is faster than arithmetic, the level line, nor than memory, the slope, unless caches have its data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from ..support.record import dataclass
from ..support.units import per_second
from .bounds import MOST_ROWS
from .facts import Facts
from .markup import render
from .profile import Limits

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 1000, 420, 112, 46, 16  # of the picture, and of its margins, in SVG units
_NAMED = 6  # kernels with a label: those that take the most time
_LINE, _LETTER = 14, 7  # the height of a label, and the width of a letter


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel in the plot: its operations, bytes and nanoseconds in the fastest run, all launches together."""

    name: str
    number: int
    operations: int
    bytes: int
    duration: int

    @property
    def intensity(self) -> float:
        """Floating-point operations for each byte."""
        return self.operations / self.bytes

    @property
    def rate(self) -> float:
        """Floating-point operations a second."""
        return self.operations / (self.duration * 1e-9)


def points_of(x: Facts) -> list[Point]:
    """Returns the kernels that have a place in the plot, the slowest first: operations, bytes and time are known and not 0."""
    points = []
    for func, which in x.launched().items():
        found = x.measured(which)
        operations, moved = sum(t.operations or 0 for t in found), sum(t.bytes or 0 for t in found)
        spent = sum(t.duration for t in found)
        if operations and moved and spent and all(t.operations is not None and t.bytes is not None for t in found):
            points.append(Point(x.name(func), x.numbers[func], operations, moved, spent))
    return points[:MOST_ROWS]


def roofline(x: Facts) -> Markup:
    """Returns the plot as SVG, with its caption; a sentence if no kernel has a place in it, and nothing without a profile."""
    if not x.total or x.machine is None or x.profile is None:
        return Markup("")
    points = points_of(x)
    if not points:
        return render("roofline.html", points=())
    scale = _Scale.around(points, x.machine)
    return render(
        "roofline.html",
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        bottom=HEIGHT - BOTTOM,
        columns=[{"at": f"{scale.x(v):.1f}", "label": f"{v:g}"} for v in scale.intensities],
        rows=[{"at": f"{scale.y(v):.1f}", "label": per_second(v, "FLOP")} for v in scale.rates],
        roof=scale.roof(x.machine),
        arithmetic={"y": f"{scale.y(x.machine.operations) - 24:.1f}", "label": per_second(x.machine.operations, "FLOP")},
        memory=_memory_label(scale, x.machine),
        points=[_circle(p, scale, x.total) for p in points],
        labels=_labels(points[:_NAMED], scale),
        threads=x.profile.threads,
        others=len(x.numbers) - len(points),
        rest=f"{1 - sum(p.duration for p in points) / x.total:.1%}",
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    """The two logarithmic axes: the values at their ticks, of which the first and last are the ends."""

    intensities: Sequence[float]
    rates: Sequence[float]

    @classmethod
    def around(cls, points: Sequence[Point], machine: Limits) -> _Scale:
        """Returns axes that have room for the points and for the corner of the roof."""
        corner = machine.operations / machine.bytes
        across = [p.intensity for p in points] + [corner / 4, corner * 4]
        up = [p.rate for p in points] + [machine.operations * 1.5, machine.operations / 20]
        return cls(_powers(4, min(across), max(across)), _powers(10, min(up), max(up)))

    def x(self, intensity: float) -> float:
        """The place of an intensity from the left, in SVG units."""
        return LEFT + (WIDTH - LEFT - 20) * _between(self.intensities, intensity)

    def y(self, rate: float) -> float:
        """The place of a rate from the top, in SVG units."""
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * _between(self.rates, rate)

    def roof(self, machine: Limits) -> str:
        """The line of the limits as SVG points: from the slope of memory, or where that leaves the plot, to the level of arithmetic."""
        corner = machine.operations / machine.bytes
        first = max(self.intensities[0], self.rates[0] / machine.bytes)
        places = [(first, first * machine.bytes), (corner, machine.operations), (self.intensities[-1], machine.operations)]
        return " ".join(f"{self.x(i):.1f},{self.y(r):.1f}" for i, r in places)


def _powers(base: int, low: float, high: float) -> list[float]:
    """Returns the powers of a base from one at or below `low` to one at or above `high`."""
    first, last = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
    return [float(base) ** k for k in range(first, max(last, first + 1) + 1)]


def _between(ticks: Sequence[float], value: float) -> float:
    """Returns where a value lies on a logarithmic axis: 0 at its first tick, 1 at its last."""
    return math.log(value / ticks[0]) / math.log(ticks[-1] / ticks[0])


def _memory_label(scale: _Scale, machine: Limits) -> Mapping[str, str]:
    """Returns the label of the slope, beside its middle."""
    corner = machine.operations / machine.bytes
    first = max(scale.intensities[0], scale.rates[0] / machine.bytes)
    middle = math.sqrt(first * corner)
    return {"x": f"{scale.x(middle) - 8:.1f}", "y": f"{scale.y(middle * machine.bytes) - 6:.1f}", "label": per_second(machine.bytes, "B")}


def _circle(p: Point, scale: _Scale, total: int) -> Mapping[str, object]:
    """Returns the circle of a kernel, whose area is its share of the time."""
    note = f"{p.name}: {p.intensity:.3g} FLOP/B, {per_second(p.rate, 'FLOP')}, {p.duration / 1e6:.3f} ms ({p.duration / total:.1%})"
    radius = 4 + 14 * math.sqrt(p.duration / total)
    return {"x": f"{scale.x(p.intensity):.1f}", "y": f"{scale.y(p.rate):.1f}", "r": f"{radius:.1f}", "number": p.number, "note": note}


def _labels(points: Sequence[Point], scale: _Scale) -> list[Mapping[str, str]]:
    """Returns the names right of their points, or left of them in the right part of the plot; one that would cover another moves down."""
    taken: list[tuple[float, float, float]] = []  # of each label, its left and right end and its base line
    labels: list[Mapping[str, str]] = []
    for p in points:
        name = p.name if len(p.name) <= 28 else p.name[:27] + "…"
        x, y = scale.x(p.intensity), scale.y(p.rate) + 4
        is_left, width = x > WIDTH * 0.75, _LETTER * len(name)
        begin = x - 22 - width if is_left else x + 22
        while any(begin < right and left < begin + width and abs(y - base) < _LINE for left, right, base in taken):
            y += _LINE
        taken.append((begin, begin + width, y))
        anchor = "end" if is_left else "start"
        labels.append({"x": f"{x - 22 if is_left else x + 22:.1f}", "y": f"{y:.1f}", "anchor": anchor, "name": name})
    return labels
