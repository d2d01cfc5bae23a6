"""Draws the memory plan as SVG: the liveness of each temporary over the steps of the host program, at its offset in the workspace.

svg = memory_chart(places_of(provenance), {n: 128})
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from ..loop.stmt import View, walk_stmts
from ..provenance import Provenance
from ..support.record import dataclass
from ..support.units import in_bytes
from ..sym.expr import Expr, Var, free_vars
from ..sym.semantics import evaluate
from .bounds import MOST_ROWS
from .markup import render

WIDTH, HEIGHT, LEFT, BOTTOM = 1000, 320, 90, 24  # of the picture, and of its margins for axis labels, in SVG units
_NAMED = 10  # temporaries in the legend: the largest


@dataclass(frozen=True, slots=True)
class Place:
    """A record of a temporary in the report: name, offset and size (symbolic), and the first and last step at which it is live."""

    name: str
    offset: Expr
    size: Expr
    first: int
    last: int


def places_of(provenance: Provenance) -> list[Place]:
    """Returns the temporaries of a program with their offsets in the memory plan."""
    host = provenance.lowered.host
    assert host is not None
    views = [s for s in walk_stmts(host.run.body) if isinstance(s, View) and s.source.scope == "workspace"]
    return [
        Place(view.buffer.name, offset, t.bytes, t.first, t.last)
        for view, t, offset in zip(views, host.temporaries, host.plan.offsets, strict=False)
    ]


def memory_chart(places: Sequence[Place], dims: Mapping[Var, int]) -> Markup:
    """Returns the memory plan as SVG: x is time, y is the address; the line is the number of live bytes. A legend names the largest.

    Temporaries whose place depends on variables that are not in `dims` are left out; of very many, the largest are drawn.
    """
    known = [p for p in places if all(v in dims for e in (p.offset, p.size) for v in free_vars(e))]
    boxes = [(p, _at(p.offset, dims), _at(p.size, dims)) for p in known]
    top = max((offset + size for _, offset, size in boxes), default=0)
    if not top:
        return render("memory.html", boxes=())
    first, last = min(p.first for p in known), max(p.last for p in known)
    across, up = (WIDTH - LEFT) / (last - first + 1), (HEIGHT - BOTTOM) / top
    drawn = sorted(boxes, key=lambda box: -box[2])[:MOST_ROWS]
    live = [sum(size for p, _, size in boxes if p.first <= s <= p.last) for s in range(first, last + 1)]
    heights = [f"{HEIGHT - BOTTOM - v * up:.1f}" for v in live]
    return render(
        "memory.html",
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        first=first,
        last=last,
        boxes=[_box(p, offset, size, first, across, up) for p, offset, size in drawn],
        legend=[{"name": p.name, "hue": _hue(p), "size": in_bytes(n), "first": p.first, "last": p.last} for p, _, n in drawn[:_NAMED]],
        others=max(0, len(boxes) - _NAMED),
        omitted=len(boxes) - len(drawn),
        marks=[_mark(share, top, up) for share in (0.0, 0.5, 1.0)],
        line=" ".join(f"{LEFT + s * across:.1f},{y} {LEFT + (s + 1) * across:.1f},{y}" for s, y in enumerate(heights)),
        workspace=in_bytes(top),
        live=in_bytes(max(live)),
    )


def _box(p: Place, offset: int, size: int, first: int, across: float, up: float) -> dict[str, object]:
    """Returns the data of a temporary's rectangle."""
    return {
        "x": f"{LEFT + (p.first - first) * across:.1f}",
        "y": f"{HEIGHT - BOTTOM - (offset + size) * up:.1f}",
        "width": f"{max(1.0, (p.last - p.first + 1) * across - 0.5):.1f}",
        "height": f"{max(0.7, size * up):.1f}",
        "hue": _hue(p),
        "note": f"{p.name}: {in_bytes(size)} at {in_bytes(offset)}, steps {p.first} to {p.last}; {p.size} bytes",
    }


def _hue(p: Place) -> int:
    """Returns the hue of a temporary: a hash of its name, so that it is the same in every report."""
    return zlib.crc32(p.name.encode()) % 360


def _mark(share: float, top: int, up: float) -> dict[str, str]:
    """Returns the data of a horizontal grid line with its label, for the template."""
    y = HEIGHT - BOTTOM - share * top * up
    return {"y": f"{y:.1f}", "label_y": f"{max(10.0, y + 4):.1f}", "label": in_bytes(int(share * top))}


def _at(e: Expr, dims: Mapping[Var, int]) -> int:
    """Returns the value of an expression for given dims."""
    return int(evaluate(e, dict(dims)))
