"""Draws what each thread did over a run as SVG: a row for each thread, a box for its work on a launch, in the color of the kernel.

svg = timeline(x)        # x: facts with a profile
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from ..support.units import in_seconds
from .bounds import MOST_ROWS
from .facts import Facts
from .markup import render
from .threads import Span

WIDTH, LEFT, ROW, BOTTOM = 1000, 120, 34, 40  # of the picture, of its left margin, a row and the axis below, in SVG units
_NAMED = 8  # kernels in the legend: those that take the most time
_MOST_THREADS = 64


def timeline(x: Facts) -> Markup:
    """Returns the timeline as SVG with its legend and caption; nothing without a profile whose launches are known."""
    if not x.total or x.profile is None:
        return Markup("")
    measured = x.profile.by_thread
    is_watched = measured is not None and len(measured.kernels) == len(x.steps)
    wall = measured.wall if measured is not None and is_watched else x.profile.wall
    spans = measured.spans if measured is not None and is_watched else _serial(x)
    spans = [s for s in spans if s.thread < _MOST_THREADS]
    drawn = sorted(spans, key=lambda s: -s.duration)[:MOST_ROWS]
    hues = {x.numbers[func]: rank * 137 % 360 for rank, func in enumerate(x.launched())}  # the golden angle: neighbors differ
    rows = max(s.thread for s in spans) + 1
    return render(
        "timeline.html",
        width=WIDTH,
        height=rows * ROW + BOTTOM,
        left=LEFT,
        bottom=rows * ROW,
        rows=[_row(k, spans, wall) for k in range(rows)],
        ticks=[_tick(share, wall) for share in (0.0, 0.25, 0.5, 0.75, 1.0)],
        boxes=[_box(x, s, wall, hues) for s in drawn],
        legend=[{"number": x.numbers[func], "name": x.name(func), "hue": hues[x.numbers[func]]} for func in list(x.launched())[:_NAMED]],
        others=max(0, len(x.numbers) - _NAMED),
        omitted=len(spans) - len(drawn),
        is_watched=is_watched,
        wall=in_seconds(wall * 1e-9),
    )


def _serial(x: Facts) -> Sequence[Span]:
    """Returns the launches of the fastest run, as work of the thread that called it."""
    return [Span(0, i, t.begin, t.duration, t.duration, 0) for i, t in enumerate(x.times) if t is not None]


def _row(thread: int, spans: Sequence[Span], wall: int) -> Mapping[str, object]:
    """Returns the label of a thread: its number, and the share of the run in which it computed."""
    busy = sum(s.busy for s in spans if s.thread == thread)
    return {"y": thread * ROW, "label": f"thread {thread}: {busy / max(1, wall):.0%}"}


def _tick(share: float, wall: int) -> Mapping[str, str]:
    anchor = {0.0: "start", 1.0: "end"}.get(share, "middle")
    return {"x": f"{LEFT + share * (WIDTH - LEFT):.1f}", "label": in_seconds(share * wall * 1e-9) if share else "0", "anchor": anchor}


def _box(x: Facts, s: Span, wall: int, hues: Mapping[int, int]) -> Mapping[str, object]:
    """Returns the box of a span, with what a reader sees who points at it."""
    step, across = x.steps[s.launch], (WIDTH - LEFT) / max(1, wall)
    number = x.numbers[step.func]
    chunks = f", {s.chunks} chunk{'s' * (s.chunks != 1)} in {in_seconds(s.busy * 1e-9)}" if s.chunks else ""
    layer = f" for {step.layers[0]}" if step.layers else ""
    return {
        "x": f"{LEFT + s.begin * across:.2f}",
        "y": s.thread * ROW + 5,
        "width": f"{max(0.5, s.duration * across):.2f}",
        "height": ROW - 10,
        "hue": hues[number],
        "number": number,
        "note": f"launch {s.launch}, {x.name(step.func)}{layer}: {in_seconds(s.duration * 1e-9)} from {in_seconds(s.begin * 1e-9)}{chunks}",
    }
