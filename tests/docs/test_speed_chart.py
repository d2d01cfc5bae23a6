"""The tables of speed in README.md and the chart are made from benchmarks/results.json."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import speed_chart


@pytest.mark.parametrize("file", speed_chart.generated(), ids=lambda f: f.name)
def test_generated_files_are_current(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == speed_chart.generated()[file], "run python tools/speed_chart.py"


def test_bars_are_ratios() -> None:
    """A bar is as long as its ratio says, whichever way is better; a slower row has another color."""
    rows = [speed_chart.Row("a", 10, 5), speed_chart.Row("b", 4, 5)]
    groups = [speed_chart.Group("more", "1/s", True, "p", "", rows), speed_chart.Group("less", "s", False, "<q>", "", rows)]
    assert [[g.ratio(row) for row in g.rows] for g in groups] == [[2.0, 0.8], [0.5, 1.25]]
    svg = ElementTree.fromstring(speed_chart.chart("a machine", groups))
    bars = svg.findall("{*}rect")
    assert [float(b.attrib["width"]) / speed_chart.BARS for b in bars] == [1.0, 0.4, 0.25, 0.625]
    assert [b.attrib["class"] for b in bars] == ["faster", "slower", "slower", "faster"]


def test_results_name_benchmarks_that_exist() -> None:
    machine, groups = speed_chart.read()
    assert re.search("AVX", machine) and len(groups) >= 3
    assert all(row.ours > 0 and row.peer > 0 for g in groups for row in g.rows)
    files = [speed_chart.ROOT / g.command.removeprefix("python ") for g in groups if g.command.startswith("python ")]
    assert files and all(f.is_file() for f in files)
