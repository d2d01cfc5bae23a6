"""Throughput of a core (FMAs, loads, cache bandwidth per cycle): the machine facts of the cost model (`schedule/tile_cost_model.py`).

Figures are per cycle, for the vector width that code is generated for. They rank alternatives and are not promises: published latencies
and port counts of each family of processors, rounded. An unknown CPU gets the figures of its vector width.

    throughput(target("llvm:znver4")).multiply_adds       # 1.0: Zen 4 does 512 bits in two halves
"""

from __future__ import annotations

from typing import NamedTuple

from .machine import Target


class Throughput(NamedTuple):
    """A record of what one core does per cycle; bytes are those that a cache delivers to the next inner one."""

    multiply_adds: float  # vector FMAs
    loads: float  # vector loads
    broadcasts: float  # loads of one element to all lanes of a vector
    latency: int  # latency of an FMA in cycles
    l2: float  # bytes from the L2 cache
    l3: float  # bytes from the L3 cache
    memory: float  # bytes from memory


_WIDE = Throughput(1, 1, 2, 4, 32, 16, 8)  # 512 bits, executed as two halves
_WIDE_TWICE = Throughput(2, 2, 2, 4, 48, 12, 6)  # 512 bits with two full units
_HALF = Throughput(2, 2, 2, 4, 32, 16, 8)  # 256 bits
_SMALL = Throughput(2, 2, 2, 4, 32, 12, 6)  # 128 bits
_PLAIN = Throughput(1, 1, 1, 4, 16, 8, 4)  # 128 bits without FMA, or behind an engine (wasm)

# CPUs (as LLVM names them for tuning) with full-width 512-bit units.
_WHOLE_UNITS = frozenset(
    ("skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "sapphirerapids", "emeraldrapids", "graniterapids", "znver5")
)


def throughput(target: Target) -> Throughput:
    """Returns the estimated throughput of a target's core."""
    if target.vector_bits >= 512:
        return _WIDE_TWICE if target.tune in _WHOLE_UNITS else _WIDE
    if not target.has_fma or target.arch == "wasm32":
        return _PLAIN
    return _HALF if target.vector_bits >= 256 else _SMALL
