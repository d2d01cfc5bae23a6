"""Golden files that show a program before and after one change of the compiler.

compare("rules/matmul", "the rule `matmul`", before, after)      # PLIANT_UPDATE=1 writes the file instead
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"
MAX_LINES = 60  # a golden is there to be read


def compare(name: str, change: str, before: str, after: str) -> None:
    """Compare a golden with the text of a program before and after a change, and see that it is short."""
    text = f"# before\n{_body(before)}\n\n# after {change}\n{_body(after)}\n"
    file = FOLDER / f"{name}.txt"
    if os.environ.get("PLIANT_UPDATE") == "1":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert before != after
    assert text == file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES


def names(folder: str) -> set[str]:
    """Return the names of the goldens in a folder."""
    return {f.stem for f in (FOLDER / folder).glob("*.txt")}


def _body(text: str) -> str:
    """Return the text of a program without imports, and without declarations of dims that repeat the one before."""
    lines: list[str] = []
    declared: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" = dim(")
        if line.startswith("from ") or (value and declared.get(name) == value) or (not line and not (lines and lines[-1])):
            continue
        if value:
            declared[name] = value
        lines.append(line)
    return "\n".join(lines).strip()
