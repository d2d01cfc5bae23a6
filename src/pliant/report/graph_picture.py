"""Draws the graph of the launches as SVG: a box for each of them, below those whose results it reads, darker the more time it takes.

svg = graph_picture(x)

A box lies one row below the lowest box that it reads. An edge over several rows passes through points in the rows between, which
take part in the order of a row: each goes where its neighbors above are in the mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from ..support.record import dataclass
from .facts import Facts
from .graph import Group, groups_of
from .markup import render

BOX, ROW, GAP, HEIGHT = 220, 74, 20, 44  # the width of a box, the distance of rows, the space between boxes, the height of a box
_POINT = 10  # the width of a place that an edge passes through
_MOST_POINTS = 4000  # in all rows; longer edges of larger graphs are straight


@dataclass(slots=True)
class _Place:
    """A box, or a point of an edge: its row, its width, what it is below, and the x of its middle."""

    row: int
    width: int
    above: list[_Place]
    x: float = 0.0


def graph_picture(x: Facts) -> Markup:
    """Returns the graph as SVG; nothing for a program without launches."""
    groups = groups_of(x)
    if not groups:
        return Markup("")
    boxes, edges = _places(groups)
    rows = _rows([*boxes, *(p for edge in edges for p in edge[1:-1])])
    width = max(_width(row) for row in rows) + 2 * GAP
    for row in rows:
        _spread(row, width)
    spent = [sum(t.duration for t in x.measured(group.launches)) for group in groups]
    return render(
        "graph.html",
        width=width,
        height=len(rows) * ROW + GAP,
        box_width=BOX,
        box_height=HEIGHT,
        boxes=[_box(x, group, place, time, max(spent)) for group, place, time in zip(groups, boxes, spent, strict=True)],
        edges=[_curve(edge) for edge in edges],
        is_timed=x.total > 0,
        is_grouped=len(groups) < len(x.steps),
    )


def _places(groups: Sequence[Group]) -> tuple[list[_Place], list[list[_Place]]]:
    """Returns the boxes, and each edge as the places that it passes through from the upper box to the lower one."""
    boxes: list[_Place] = []
    edges: list[list[_Place]] = []
    points = 0
    for group in groups:
        above = [boxes[k] for k in group.sources if k < len(boxes)]
        box = _Place(max((p.row for p in above), default=-1) + 1, BOX, [])
        for source in above:
            path = [source]
            if points < _MOST_POINTS:
                path += [_Place(row, _POINT, []) for row in range(source.row + 1, box.row)]
                points += len(path) - 1
            for place, below in zip(path, [*path[1:], box], strict=True):
                below.above.append(place)
            edges.append([*path, box])
        boxes.append(box)
    return boxes, edges


def _rows(places: Sequence[_Place]) -> list[list[_Place]]:
    """Returns the places by row, each row ordered by the mean position of what is above."""
    rows: list[list[_Place]] = [[] for _ in range(max(p.row for p in places) + 1)]
    for place in places:
        rows[place.row].append(place)
    for row in rows:
        row.sort(key=lambda p: sum(q.x for q in p.above) / len(p.above) if p.above else 0.0)
        _spread(row, 0)
    return rows


def _spread(row: Sequence[_Place], width: float) -> None:
    """Gives the places of a row their x, side by side around the middle of a picture of this width."""
    at = (width - _width(row)) / 2
    for place in row:
        place.x = at + place.width / 2
        at += place.width + GAP


def _width(row: Sequence[_Place]) -> int:
    return sum(p.width for p in row) + GAP * (len(row) - 1)


def _top(place: _Place) -> float:
    return place.row * ROW + GAP


def _curve(edge: Sequence[_Place]) -> str:
    """Returns an edge as an SVG path: from the bottom of a box to the top of another, vertical where it meets a place."""
    upper = edge[0]
    x, y = upper.x, _top(upper) + HEIGHT
    parts = [f"M{x:.0f} {y:.0f}"]
    for place in edge[1:]:
        end = _top(place)
        middle = (y + end) / 2
        parts.append(f"C{x:.0f} {middle:.0f} {place.x:.0f} {middle:.0f} {place.x:.0f} {end:.0f}")
        x, y = place.x, end
        if place is not edge[-1]:
            y = end + HEIGHT
            parts.append(f"V{y:.0f}")
    return "".join(parts)


def _box(x: Facts, group: Group, place: _Place, spent: int, most: int) -> Mapping[str, object]:
    """Returns a box: what it launches, for which layer, and its share of the time in kernels; `most` is the time of the slowest one."""
    first = x.steps[group.launches[0]]
    share = f"{spent / x.total:.1%}" if x.total else ""
    count = len(group.launches)
    name = x.name(first.func) if count == 1 else f"{count} launches"
    time = f"{spent / 1e6:.3f} ms, {share}" if share else ""
    return {
        "x": f"{place.x - BOX / 2:.0f}",
        "y": f"{_top(place):.0f}",
        "heat": f"{spent / max(1, most):.3f}",
        "target": f"kernel-{x.numbers[first.func]}" if count == 1 else f"launch-{group.launches[0]}",
        "name": _short(name),
        "layer": _short(group.layer.strip("/"), keep_end=True),
        "note": "; ".join(part for part in (name, group.layer, time) if part),
        "share": share,
    }


def _short(text: str, keep_end: bool = False, most: int = 24) -> str:
    """Returns a text that fits into a box: its first letters, or its last ones, which tell apart the layers of a model."""
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if keep_end else f"{text[: most - 1]}…"
