"""How much random testing to do."""

from __future__ import annotations

import os


def count(normal: int, long: int) -> int:
    """How many random cases to try: `normal`, `long` when PLIANT_LONG=1, a few when PLIANT_QUICK=1."""
    if os.environ.get("PLIANT_LONG") == "1":
        return long
    return max(1, normal // 20) if os.environ.get("PLIANT_QUICK") == "1" else normal
