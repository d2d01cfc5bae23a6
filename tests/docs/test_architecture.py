"""ARCHITECTURE.md and the design notes: every file they name is there, every part of the package has its place, numbers are in order."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pliant"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
NOTES = sorted((ROOT / "docs" / "design").glob("0*.md"))


def named(text: str) -> list[str]:
    """The files and folders in backticks, those with a placeholder as far as it is plain."""
    quoted = re.findall(r"`([\w./-]+?(?:/|\.py|\.md)|[\w/]+/<\w+>[\w.]*)`", text)
    return [q.partition("<")[0] for q in quoted]


def test_every_file_that_is_named_is_there() -> None:
    """A name in the row of a layer may be that of a file in this layer."""
    for line in TEXT.splitlines():
        found = named(line)
        layers = [PACKAGE / f for f in found if (PACKAGE / f).is_dir()]
        missing = [f for f in found if not any((place / f).exists() for place in (ROOT, PACKAGE, *layers))]
        assert missing == [], line
    assert len(named(TEXT)) > 60


def test_every_part_of_the_package_has_a_row() -> None:
    table = TEXT.partition("| layer |")[2].partition("\n\n")[0]
    rows = {f.strip("/") for row in table.splitlines() for f in named(row.split("|")[1] if "|" in row else "")}
    parts = {p.name for p in PACKAGE.iterdir() if (p.suffix == ".py" or (p / "__init__.py").exists()) and not p.name.startswith("__")}
    assert parts - rows == {"nn.py"} and rows <= parts  # nn.py is a name for what a frontend has


def test_no_merge_conflict_is_left() -> None:
    kinds = (".py", ".md", ".toml", ".txt", ".h")
    files = [f for folder in ("src", "docs", "tests", "tools", "benchmarks", "examples", ".ci") for f in (ROOT / folder).rglob("*")]
    texts = [f for f in (*files, *ROOT.glob("*.*")) if f.suffix in kinds or f.parent.name == ".ci"]
    assert len(texts) > 500
    marked = [f for f in texts if f.is_file() and re.search(r"^(<{7}|>{7}) ", f.read_text(encoding="utf-8"), re.MULTILINE)]
    assert marked == []


def test_design_notes_are_numbered() -> None:
    assert [int(note.name[:4]) for note in NOTES] == list(range(1, len(NOTES) + 1))
    for note in NOTES:
        assert note.read_text(encoding="utf-8").startswith(f"# {note.name[:4]}: "), note.name
