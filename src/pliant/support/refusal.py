"""A negative answer that is no error: `roles = matmul_of(block)` returns roles, or a `Refusal` that says why the block has none."""

from __future__ import annotations

from .record import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """A result that says why something does not apply: returned in place of a value."""

    reason: str
