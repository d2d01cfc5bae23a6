"""Facts about 64-bit RISC-V processors: the features and caches of each named CPU. Features are spelled as LLVM spells them.

Every CPU here has the extensions m, a, f, d and c (RV64GC). The vector extension `v` (RVV 1.0) is used as fixed-width vectors, of the
guaranteed width of its registers: 128 bits, or more with `zvl256b` and `zvl512b`. Without `v` the same programs become scalar code.
"""

from __future__ import annotations

from collections.abc import Iterable

from .machine import Caches, Cpu, Target, cpu_target
from .spelling import CPU_FORM, LIBRARY, Row, Spelled

TRIPLE = "riscv64-unknown-none-elf"  # objects without an operating system: Pliant links them itself

_GC = ("a", "c", "d", "f", "m")


CPUS: dict[str, Cpu] = {
    "riscv64": Cpu(_GC, l3=0, llvm="generic-rv64"),
    "sifive-u74": Cpu((*_GC, "zba", "zbb"), l2=2048, l3=0),
    "spacemit-x60": Cpu((*_GC, "v", "zba", "zbb", "zvl128b", "zvl256b"), l3=0),
}

FEATURES = frozenset((*_GC, "v", "zba", "zbb", "zvl128b", "zvl256b", "zvl512b"))
IMPLIES: dict[str, tuple[str, ...]] = {"v": ("zvl128b",), "zvl128b": ("v",), "zvl256b": ("zvl128b",), "zvl512b": ("zvl256b",)}


_MEANS = "64-bit RISC-V (RV64GC; `v` optional)"
ROWS = (Row(CPU_FORM, ("riscv64", "riscv64+v@linux", "spacemit-x60@linux"), _MEANS, LIBRARY),)
NAMES = tuple(CPUS)


def named(spelled: Spelled) -> Target | None:
    """Returns the target for a name of a RISC-V CPU in CPUS, or None if it is none.

    Raises UnsupportedError for systems other than `linux` (the default) and `none`, and for an unknown feature.
    """
    if spelled.cpu not in CPUS:
        return None
    if spelled.os not in ("", "linux", "none"):
        raise spelled.refused(f"code for RISC-V is made for `linux` and `none`, not for `{spelled.os}`")
    cpu = CPUS[spelled.cpu]
    features = spelled.closed(FEATURES, IMPLIES).union(cpu.features)
    # Linux is the only system that Pliant supports on RISC-V.
    return make(spelled.name, cpu.llvm or spelled.cpu, features, cpu.caches, os=spelled.os or "linux")


def make(name: str, cpu: str, features: Iterable[str], caches: Caches, *, os: str) -> Target:
    """Returns the target for LLVM's RISC-V `cpu` with `features`."""
    have = frozenset(features)
    wide = 512 if "zvl512b" in have else 256 if "zvl256b" in have else 128
    registers = 32 if "v" in have else 8  # without `v` LLVM splits each vector into four scalars: 32 float registers hold eight vectors
    return cpu_target(name, TRIPLE, cpu, have, caches, os, vector_bits=wide, n_vector_registers=registers)
