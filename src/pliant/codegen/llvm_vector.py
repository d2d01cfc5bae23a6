"""Vector loops."""

from __future__ import annotations

from ..loop.stmt import For
from .llvm_stmt import Statements


class VectorLoops(Statements):
    def vector_loop(self, s: For) -> None:
        self.serial(s)
