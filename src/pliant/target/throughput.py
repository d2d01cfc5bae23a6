"""How fast a machine's core computes, loads and fetches from its caches: the facts of the analytic model (`schedule/tile_cost_model.py`).

Figures are of the vector width that code is generated for, a cycle. They rank ways to do the same work and are not promises: published
latencies and port counts of each family of processors, rounded; what is not known gets the figures of its width.

    throughput(target("llvm:znver4")).multiply_adds       # 1.0: Zen 4 does 512 bits in two halves
"""

from __future__ import annotations

from typing import NamedTuple

from .machine import Target


class Throughput(NamedTuple):
    """What one core does in a cycle; bytes are those that a cache hands to the one before it."""

    multiply_adds: float  # vectors
    loads: float  # vectors
    broadcasts: float  # elements, each to all lanes of a vector
    latency: int  # cycles from a sum to the next one that needs it
    l2: float  # bytes
    l3: float
    memory: float


_WIDE = Throughput(1, 1, 2, 4, 32, 16, 8)  # 512 bits as two halves
_WIDE_TWICE = Throughput(2, 2, 2, 4, 48, 12, 6)
_HALF = Throughput(2, 2, 2, 4, 32, 16, 8)  # 256 bits
_SMALL = Throughput(2, 2, 2, 4, 32, 12, 6)  # 128 bits
_PLAIN = Throughput(1, 1, 1, 4, 16, 8, 4)  # 128 bits without multiply-add, or behind another machine's instructions

_WHOLE_UNITS = frozenset(
    ("skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "sapphirerapids", "emeraldrapids", "graniterapids", "znver5")
)


def throughput(target: Target) -> Throughput:
    """The figures of a target's core."""
    if target.vector_bits >= 512:
        return _WIDE_TWICE if target.tune in _WHOLE_UNITS else _WIDE
    if not target.has_fma or target.kind == "wasm":
        return _PLAIN
    return _HALF if target.vector_bits >= 256 else _SMALL
