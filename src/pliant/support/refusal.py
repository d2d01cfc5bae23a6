"""An answer that says no, for questions where that is no error: `roles = matmul_of(block)` gives roles, or why a block has none."""

from __future__ import annotations

from .record import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something does not apply, in words."""

    reason: str
