"""How much random testing to do, and from which seeds on."""

from __future__ import annotations

import os

FIRST = int(os.environ.get("PLIANT_SEED", "0"))  # other seeds than the usual ones: a number that is added to them


def count(normal: int, long: int) -> int:
    """How many random cases to try: `normal`, `long` when PLIANT_LONG=1, a few when PLIANT_QUICK=1."""
    if os.environ.get("PLIANT_LONG") == "1":
        return long
    return max(1, normal // 20) if os.environ.get("PLIANT_QUICK") == "1" else normal


def seeds(normal: int, long: int, batch: int = 1) -> range:
    """The seeds of so many cases, or the first one of each batch."""
    return range(FIRST, FIRST + count(normal, long), batch)
