"""Writes the tables of speed in README.md, and the chart docs/images/speed.svg, from the results that are kept in benchmarks/results.json.

    python tools/speed_chart.py             # after results were measured again and written to benchmarks/results.json
    python tools/speed_chart.py --check     # writes nothing; the exit code is 1 if a file is out of date

`tests/docs/test_speed_chart.py` checks that both are current.
"""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

from generated_files import update

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
README, CHART = ROOT / "README.md", ROOT / "docs" / "images" / "speed.svg"
START, END = "<!-- speed -->\n", "<!-- end of speed -->\n"

LABELS, BARS, LINE, WIDTH = 290, 380, 20, 720  # pixels: of the labels, of the longest bar, of a row, of all
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 } .group { font-weight: 600 } .note { fill: #59636e }
  .faster { fill: #2f6feb } .slower { fill: #b35900 } .peer { stroke: #59636e; stroke-dasharray: 3 3 }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .note { fill: #9198a1 } .faster { fill: #58a6ff } .slower { fill: #db8b3a } }
"""


class Row(NamedTuple):
    """A measured thing, with Pliant's number and that of the peer."""

    what: str
    ours: float
    peer: float


class Group(NamedTuple):
    """Rows with one peer, in one unit."""

    title: str
    unit: str
    more_is_better: bool
    peer: str
    command: str
    rows: list[Row]

    def ratio(self, row: Row) -> float:
        """Returns how many times faster than the peer Pliant is."""
        return row.ours / row.peer if self.more_is_better else row.peer / row.ours


def read() -> tuple[str, list[Group]]:
    """Returns the name of the machine, and the groups of results."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    groups = [
        Group(g["title"], g["unit"], g["better"] == "more", g["peer"], g["command"], [Row(*row) for row in g["rows"]])
        for g in kept["groups"]
    ]
    return kept["machine"], groups


def tables(groups: list[Group]) -> str:
    """Returns a table for each group, with the command that measures it."""
    lines: list[str] = []
    for g in groups:
        lines += [f"**{g.title}**, {g.unit}; {'more' if g.more_is_better else 'less'} is better: `{g.command}`", ""]
        lines += [f"| | Pliant | {g.peer} |", "|---|---|---|"]
        lines += [f"| {row.what} | {row.ours:g} | {row.peer:g} |" for row in g.rows]
        lines.append("")
    return "\n".join([*lines, ""])


def chart(machine: str, groups: list[Group]) -> str:
    """Returns an SVG with a bar for each row: how many times faster than its peer Pliant is, and a line where both are equal."""
    scale = BARS / max(g.ratio(row) for g in groups for row in g.rows)
    parts: list[str] = []
    y = 2 * LINE
    for g in groups:
        y += LINE
        name = f'<tspan class="group">{escape(g.title)}</tspan><tspan class="note" dx="8">beside {escape(g.peer)}</tspan>'
        parts.append(f'<text x="0" y="{y - 5}">{name}</text>')
        for row in g.rows:
            ratio = g.ratio(row)
            length = ratio * scale
            parts.append(f'<text x="{LABELS - 8}" y="{y + 15}" text-anchor="end">{escape(row.what)}</text>')
            parts.append(
                f'<rect x="{LABELS}" y="{y + 4}" width="{length:.1f}" height="14" class="{"faster" if ratio >= 1 else "slower"}"/>'
            )
            parts.append(f'<text x="{LABELS + length + 6:.1f}" y="{y + 15}">{ratio:.2f}</text>')
            y += LINE
        parts.append(f'<line x1="{LABELS + scale:.1f}" x2="{LABELS + scale:.1f}" y1="{y - LINE * len(g.rows)}" y2="{y + 4}" class="peer"/>')
        y += LINE // 2
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 8}" width="{WIDTH}" height="{y + 8}" role="img">'
    title = f"Speed of Pliant divided by that of the peer, on {machine}"
    first = [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", f'<text x="0" y="{LINE - 4}">{escape(title)}.</text>']
    return "\n".join(
        [*first, '<text x="0" y="36" class="note">The dashed lines are where both are equally fast.</text>', *parts, "</svg>\n"]
    )


def generated() -> dict[Path, str]:
    """Returns the files and the text that they should have."""
    machine, groups = read()
    before, rest = README.read_text(encoding="utf-8").split(START)
    return {README: before + START + tables(groups) + END + rest.split(END)[1], CHART: chart(machine, groups)}


if __name__ == "__main__":
    sys.exit(update(generated(), check="--check" in sys.argv[1:]))
