"""Draws the memory plan as SVG: the liveness of each temporary over the steps of the host program, at its offset in the workspace.

svg = memory_chart(places_of(provenance), {n: 128})
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from html import escape

from ..loop.stmt import View, walk_stmts
from ..provenance import Provenance
from ..support.record import dataclass
from ..support.units import in_bytes
from ..sym.expr import Dim, Expr, Var, free_vars
from ..sym.semantics import evaluate

WIDTH, HEIGHT, LEFT, BOTTOM = 1000, 320, 70, 24  # of the picture, and of its margins for axis labels, in SVG units


@dataclass(frozen=True, slots=True)
class Place:
    """A temporary: its name, offset and size (symbolic), and the first and last step at which it is live."""

    name: str
    offset: Expr
    size: Expr
    first: int
    last: int


def places_of(provenance: Provenance) -> list[Place]:
    """The temporaries of a program with their places in the memory plan."""
    host = provenance.lowered.host
    assert host is not None
    views = [s for s in walk_stmts(host.run.body) if isinstance(s, View) and s.source.scope == "workspace"]
    return [
        Place(view.buffer.name, offset, t.bytes, t.first, t.last)
        for view, t, offset in zip(views, host.temporaries, host.plan.offsets, strict=False)
    ]


def typical(symbols: Sequence[Var]) -> dict[Var, int]:
    """Example values of the dims for a program that was not profiled: 128 each, or the nearest value that the contract allows."""
    values = {}
    for v in symbols:
        low, high, step = (v.min, v.max, v.multiple_of) if isinstance(v, Dim) else (0, 128, 1)
        values[v] = max(-(-low // step) * step, min(128, high) // step * step)
    return values


def memory_chart(places: Sequence[Place], dims: Mapping[Var, int]) -> str:
    """The memory plan as SVG: x is time, y is the address; the line is the number of live bytes."""
    known = [p for p in places if all(v in dims for e in (p.offset, p.size) for v in free_vars(e))]
    boxes = [(p, _at(p.offset, dims), _at(p.size, dims)) for p in known]
    top = max((offset + size for _, offset, size in boxes), default=0)
    if not top:
        return "<p>This program needs no workspace.</p>"
    first, last = min(p.first for p in known), max(p.last for p in known)
    across, up = (WIDTH - LEFT) / (last - first + 1), (HEIGHT - BOTTOM) / top

    def box(p: Place, offset: int, size: int) -> str:
        x, width = LEFT + (p.first - first) * across, max(1.0, (p.last - p.first + 1) * across - 0.5)
        y, height = HEIGHT - BOTTOM - (offset + size) * up, max(0.7, size * up)
        note = f"{p.name}: {in_bytes(size)} at {in_bytes(offset)}, steps {p.first} to {p.last}; {p.size} bytes"
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        return f'<rect {place} fill="hsl({zlib.crc32(p.name.encode()) % 360} 42% 66%)"><title>{escape(note)}</title></rect>'

    live = [sum(size for p, _, size in boxes if p.first <= s <= p.last) for s in range(first, last + 1)]
    heights = [f"{HEIGHT - BOTTOM - v * up:.1f}" for v in live]
    line = " ".join(f"{LEFT + s * across:.1f},{y} {LEFT + (s + 1) * across:.1f},{y}" for s, y in enumerate(heights))
    marks = "".join(_mark(share, top, up) for share in (0.0, 0.5, 1.0))
    ends = f'<text x="{LEFT}" y="{HEIGHT - 6}">step {first}</text><text x="{WIDTH}" y="{HEIGHT - 6}" text-anchor="end">step {last}</text>'
    return (
        f'<div class="scroll"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="memory over time">{marks}'
        f'{"".join(box(*b) for b in boxes)}<polyline points="{line}" class="live"/>{ends}</svg></div>'
        f"<p>Workspace {in_bytes(top)}; the largest set that is alive at one step is {in_bytes(max(live))} (the line).</p>"
    )


def _mark(share: float, top: int, up: float) -> str:
    """A horizontal grid line with its label."""
    y = HEIGHT - BOTTOM - share * top * up
    return (
        f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH}" y2="{y:.1f}" class="grid"/>'
        f'<text x="{LEFT - 6}" y="{max(10.0, y + 4):.1f}" text-anchor="end">{in_bytes(int(share * top))}</text>'
    )


def _at(e: Expr, dims: Mapping[Var, int]) -> int:
    """The value of an expression for given dims."""
    return int(evaluate(e, dict(dims)))
