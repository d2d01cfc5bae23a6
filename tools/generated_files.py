"""Files that a tool writes: replaced where they are out of date, or only named.

sys.exit(update({PAGE: page()}, check="--check" in sys.argv[1:]))
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def update(generated: Mapping[Path, str], check: bool) -> int:
    """Writes the files whose text is another one, and prints their names; with `check`, only names them. Returns the exit code."""
    stale = {f: text for f, text in generated.items() if not f.exists() or f.read_text(encoding="utf-8") != text}
    for file, text in stale.items():
        print(file)
        if not check:
            file.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0
