"""What the tests share: how much random testing to do."""

from __future__ import annotations

import os


def count(normal: int, long: int) -> int:
    """How many random cases to try: `normal`, or `long` when PLIANT_LONG=1."""
    return long if os.environ.get("PLIANT_LONG") == "1" else normal
