"""The glossary: each of its words is used in the file that its row names, and README.md and ARCHITECTURE.md link to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| `([^`|]+)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_word_is_used_where_the_glossary_says(row: tuple[str, str, str, str]) -> None:
    word, _, _, file = row
    text = (ROOT / "src" / "pliant" / file).read_text(encoding="utf-8")
    assert re.search(rf"\b{word.removesuffix('s')}(s|es|ies)?\b", text, re.IGNORECASE), file


def test_the_glossary_is_complete_and_linked() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| word |")]
    words = [row[0] for row in ROWS]
    assert len(words) == len(lines) and len(set(words)) == len(words) > 30
    for page in ("README.md", "ARCHITECTURE.md"):
        assert "docs/glossary.md" in (ROOT / page).read_text(encoding="utf-8")
