"""A negative answer that is no error: `roles = matmul_of(block)` returns roles, or a `Refusal` that says why the block has none."""

from __future__ import annotations

from .record import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why something does not apply."""

    reason: str
