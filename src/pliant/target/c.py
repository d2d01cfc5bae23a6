"""Facts about the machines that C code is made for: one lane, since C has no vectors, and the properties of the CPU if it is named.

c                 any machine with a C99 compiler
c:cortex-m7       a CPU of CPUS
"""

from __future__ import annotations

from typing import NamedTuple

from .machine import Caches, Target
from .spelling import Row, Spelled, near


class Cpu(NamedTuple):
    """A record of what the scheduler needs to know of a CPU for C code: FMA of f32, float registers, pointer size, caches."""

    has_fma: bool
    registers: int
    pointer_bits: int
    caches: Caches
    has_f64: bool = True  # in hardware


# A microcontroller without caches has memory as fast as an L1 cache: the size of its memory is given as that of L1.
CPUS: dict[str, Cpu] = {
    "generic": Cpu(False, 16, 64, Caches(32 << 10, 256 << 10, 4 << 20)),
    "cortex-m4": Cpu(True, 32, 32, Caches(64 << 10, 256 << 10, 0, 32), has_f64=False),
    "cortex-m7": Cpu(True, 32, 32, Caches(16 << 10, 256 << 10, 0, 32)),
    "cortex-m33": Cpu(True, 32, 32, Caches(64 << 10, 256 << 10, 0, 32), has_f64=False),
    "cortex-m55": Cpu(True, 32, 32, Caches(32 << 10, 512 << 10, 0, 32)),
}


_MEANS = "C99 for any compiler; a CPU decides tiles and fused multiply-add"
ROWS = (Row("c[:CPU]", ("c", "c:cortex-m7", "c:cortex-m4"), _MEANS, "a .c and a .h file"),)
NAMES = ("c", *(f"c:{cpu}" for cpu in CPUS))


def named(spelled: Spelled) -> Target | None:
    """Returns the target for a name of the form `c` or `c:CPU`, or None if it is none.

    Raises UnsupportedError for an unknown CPU, and for features or an operating system in the name.
    """
    kind, colon, cpu = spelled.base.partition(":")
    if kind != "c":
        return None
    spelled.alone()
    if colon and cpu not in CPUS:
        raise spelled.refused(f"unknown CPU `{cpu}` in target `{spelled.name}`", near(cpu, CPUS), "CPUs are " + ", ".join(CPUS))
    return make(spelled.name, cpu or "generic")


def make(name: str, cpu: str = "generic") -> Target:
    """Returns the target for C code on a CPU of CPUS."""
    facts = CPUS[cpu]
    return Target(
        name=name,
        kind="c",
        triple="c",
        cpu=cpu,
        tune=cpu,
        features=(),
        pointer_bits=facts.pointer_bits,
        vector_bits=32,
        n_vector_registers=facts.registers,
        has_fma=facts.has_fma,
        has_f16=False,
        has_f16c=False,
        caches=facts.caches,
        has_f64=facts.has_f64,
    )
