"""docs/onnx.md: its tables are what the suite gives; `PLIANT_UPDATE=1` runs all of it and writes them anew."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="the suite is part of the package onnx")
from counts import count
from onnx_suite import PILLOW, REASONS, missing_words, outcomes

PAGE = Path(__file__).parents[2] / "docs" / "onnx.md"
START, END = "<!-- suite -->\n", "<!-- end of the suite -->\n"


def tables() -> str:
    """How many cases pass, and why the others do not, by the number of cases."""
    found = outcomes()
    lines = ["| cases | all | pass |", "|---|---|---|"]
    lines += [f"| {kind} | {len(all_)} | {all_.count(None)} |" for kind, all_ in found.items()]
    lines += ["", "| left out | node | simple |", "|---|---|---|"]
    counts = [Counter(why for why in found[kind] if why) for kind in ("node", "simple")]
    lines += [f"| {why} | {counts[0][why]} | {counts[1][why]} |" for why, _ in (counts[0] + counts[1]).most_common()]
    return "\n".join([*lines, ""])


def test_the_tables_are_those_of_the_suite() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    written, _, after = rest.partition(END)
    if os.environ.get("PLIANT_UPDATE") == "1":
        PAGE.write_text(f"{before}{START}{tables()}{END}{after}", encoding="utf-8")
    elif count(0, 1):
        if not PILLOW:
            pytest.skip("cases with images need the package pillow")
        assert written == tables()
    for reason in (*(why for _, why in REASONS), *missing_words()):
        assert f"| {reason} |" in PAGE.read_text(encoding="utf-8"), reason
