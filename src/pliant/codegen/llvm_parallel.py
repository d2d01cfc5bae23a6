"""Parallel loops."""

from __future__ import annotations

from ..loop.stmt import For
from .llvm_vector import VectorLoops


class ParallelLoops(VectorLoops):
    def parallel_loop(self, s: For) -> None:
        self.serial(s)
