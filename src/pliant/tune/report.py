"""The report of a tuning: one self-contained HTML page with the table of kernels, their curves, and the effect of each decision.

write_report("t.html", result, states)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from math import log
from typing import TYPE_CHECKING, Protocol

from ..schedule.decisions import shown
from ..schedule.domains import Value
from ..support.output_file import write_text
from ..support.units import in_seconds
from .cost_model import Ridge
from .database import vector_of

if TYPE_CHECKING:
    from .tuner import TaskState

_STYLE = "body{font:14px sans-serif;margin:2em}td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ddd}"
_STYLE += "figure{display:inline-block}svg{background:#f8f8f8}"
_WIDTH, _HEIGHT = 420, 140  # of a chart, in pixels


class Result(Protocol):
    """What the page needs of a `pliant.TuningResult`."""

    seconds: float
    candidates: int
    left_out: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """The time of all kernels to that of the defaults."""


def write_report(path: str | os.PathLike[str], result: Result, states: Sequence[TaskState]) -> None:
    """Writes the page; another process sees all of it or none."""
    sections = "".join(_kernel(s) for s in sorted(states, key=lambda s: -s.task.calls * s.seconds))
    left_out = "".join(f"<li>{escape(reason)}</li>" for reason in result.left_out)
    head = (
        f"<p>{result.candidates} candidates in {result.seconds:.0f} s; kernels take {100 * result.ratio:.1f} % of the default's time.</p>"
    )
    body = f"<h1>Tuning</h1>{head}{sections}" + (f"<h2>Not tuned</h2><ul>{left_out}</ul>" if left_out else "")
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Tuning</title><style>{_STYLE}</style><body>{body}</body></html>\n'
    write_text(path, page)


def _kernel(s: TaskState) -> str:
    """Returns the section of a kernel."""
    found = "the default is the best known" if s.record is None else s.record.described()
    facts = f"{s.task.calls} calls, {in_seconds(s.seconds)} with the default on one thread; {found}"
    if s.problem:
        return f"<h2>{escape(s.task.name)}</h2><p>{escape(s.problem)}</p>"
    curve = _chart(s.curve, "best ratio over seconds", line=True)
    fit = _chart(_predicted(s), "measured over predicted ratio (logs)", line=False)
    return f"<h2>{escape(s.task.name)}</h2><p>{escape(facts)}</p>{curve} {fit}{_effects(s)}{_failures(s)}"


def _effects(s: TaskState) -> str:
    """Returns a table of the best ratio that was measured with each value of each decision."""
    best: dict[tuple[str, Value], float] = {}
    for text, o in s.outcomes.items():
        vector = vector_of(text)
        for name, d in s.space.decisions.items():
            if o.ratio is not None:
                at = (name, vector.get(name, d.default))
                best[at] = min(best.get(at, o.ratio), o.ratio)
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(shown(d.default))}</td><td>{escape(_values(name, best))}</td></tr>"
        for name, d in s.space.decisions.items()
    )
    return f"<table><tr><th>decision</th><th>default</th><th>best ratio with a value</th></tr>{rows}</table>" if rows else ""


def _values(name: str, best: dict[tuple[str, Value], float]) -> str:
    ratios = sorted((ratio, shown(value)) for (of, value), ratio in best.items() if of == name)
    return ", ".join(f"{value}: {ratio:.2f}" for ratio, value in ratios[:12])


def _failures(s: TaskState) -> str:
    """Returns a list of the candidates that have no time, with the reason."""
    bad = [(o.status, text, o.message) for text, o in s.outcomes.items() if o.ratio is None and o.status != "illegal"]
    lines = "".join(f"<li>{escape(f'{status}: {text}: {message}')}</li>" for status, text, message in sorted(bad)[:50])
    return f"<ul>{lines}</ul>" if lines else ""


def _predicted(s: TaskState) -> list[tuple[float, float]]:
    """Returns (predicted, measured) logs of the ratios of the candidates, by a model that was fitted to all of them."""
    measured = [(vector_of(text), o.ratio) for text, o in s.outcomes.items() if o.ratio is not None]
    model = Ridge()
    model.fit(s.space, measured)
    return list(zip(model.predict(s.space, [v for v, _ in measured]), (log(r) for _, r in measured), strict=True))


def _chart(points: Sequence[tuple[float, float]], title: str, line: bool) -> str:
    """Returns points as a small SVG chart."""
    if len(points) < 2:
        return ""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    placed = [(_placed(x, xs, _WIDTH), _HEIGHT - _placed(y, ys, _HEIGHT)) for x, y in points]
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"/>' for x, y in placed)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    drawn = f'<polyline points="{path}" fill="none" stroke="#06c"/>' if line else dots
    label = f"{title}: {min(ys):.2f} to {max(ys):.2f}"
    chart = f'<svg width="{_WIDTH}" height="{_HEIGHT}">{drawn}</svg>'
    return f"<figure>{chart}<figcaption>{label}</figcaption></figure>"


def _placed(v: float, values: Sequence[float], size: int) -> float:
    low, high = min(values), max(values)
    return 5 + (size - 10) * (v - low) / ((high - low) or 1.0)
