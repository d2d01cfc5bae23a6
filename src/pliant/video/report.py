"""The report of a stream: one page of HTML with curves by frame and a table of maps; no script, and nothing from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from ..support.html_table import html_table
from ..support.output_file import write_text
from .program import Array, Last, StreamProgram

WIDTH, HEIGHT, MARGIN = 900, 160, 40
POINTS = 900  # of a curve: more are drawn as the mean of neighbors
CELLS = 48  # squares of a heat map along its longer side


def write_report(
    path: str | os.PathLike[str], program: StreamProgram, limits: Array, history: Sequence[Last], calibrated: str | None
) -> None:
    """Writes the page of a stream's frames and maps."""
    curves = [
        ("Time of a frame, ms", {"stream": [x.ms for x in history]}),
        ("Share of the operations", {"stream": [x.density for x in history]}),
        ("Share of the pixels that changed", {"stream": [x.changed for x in history]}),
    ]
    rows = [(m.name, " x ".join(map(str, m.shape)), str(m.operations), _limit(x)) for m, x in zip(program.maps, limits, strict=True)]
    parts = [f"<p>{escape(calibrated)}</p>" if calibrated else "", *(curve(title, lines) for title, lines in curves)]
    write_page(path, "Video stream", [*parts, html_table("Maps", ("map", "shape", "operations", "limit"), rows)])


def _limit(limit: Any) -> str:
    return "exact" if limit < 0 else f"{float(limit):.4g}"


def write_page(path: str | os.PathLike[str], title: str, parts: Iterable[str]) -> None:
    """Writes a page of these parts, which are HTML; a file at the path is replaced as a whole."""
    style = (
        ":root{color-scheme:light dark;font:15px system-ui,sans-serif}body{max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "svg{width:100%;height:auto}table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left}"
        "path{fill:none;stroke-width:1.5}.a{stroke:#2a78d6}.b{stroke:#d6602a}text{fill:currentColor;font-size:12px}"
    )
    page = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    page += f"<title>{escape(title)}</title><style>{style}</style><body><h1>{escape(title)}</h1>{''.join(parts)}"
    write_text(path, page)


def curve(title: str, lines: Mapping[str, Sequence[float]]) -> str:
    """Returns a diagram of values by frame as HTML: one line for each name, with the scale of the largest value."""
    most = max((v for values in lines.values() for v in values if np.isfinite(v)), default=0.0) or 1.0
    frames = max(map(len, lines.values()), default=0)
    paths = "".join(f"<path class={'ab'[k % 2]} d='{_path(values, most)}'/>" for k, values in enumerate(lines.values()) if len(values) > 1)
    names = ", ".join(f"{name} ({('blue', 'orange')[k % 2]})" for k, name in enumerate(lines)) if len(lines) > 1 else ""
    texts = f"<text x=0 y=12>{most:.3g}</text><text x=0 y={HEIGHT}>0</text>"
    texts += f"<text x={WIDTH} y={HEIGHT} text-anchor=end>{frames} frames</text>"
    return f"<h2>{escape(title)}</h2><p>{escape(names)}</p><svg viewBox='0 0 {WIDTH} {HEIGHT}'>{texts}{paths}</svg>"


def _path(values: Sequence[float], most: float) -> str:
    """Returns the path of a line; several frames share a point if there are many."""
    parts = np.array_split(np.nan_to_num(np.asarray(values, np.float64), posinf=most), min(POINTS, len(values)))
    ys = [HEIGHT - 4 - float(p.mean()) / most * (HEIGHT - 20) for p in parts]
    xs = np.linspace(MARGIN, WIDTH, len(ys))
    return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True))


def heat_map(title: str, heat: Array) -> str:
    """Returns how often each part of an image was computed, values from 0 to 1, as HTML."""
    step = max(1, -(-max(heat.shape) // CELLS))
    rows, columns = (-(-n // step) for n in heat.shape)
    cells = [
        f"<rect x={x} y={y} width=1 height=1 fill='rgb(214,96,42)' fill-opacity={float(part.mean()):.2f} />"
        for y in range(rows)
        for x in range(columns)
        if (part := heat[y * step : (y + 1) * step, x * step : (x + 1) * step]).any()
    ]
    frame = f"<rect width={columns} height={rows} fill=none stroke=currentColor stroke-width=.1 />"
    return f"<h2>{escape(title)}</h2><svg viewBox='0 0 {columns} {rows}' style='max-width:40rem'>{frame}{''.join(cells)}</svg>"
