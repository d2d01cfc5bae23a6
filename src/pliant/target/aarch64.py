"""Facts about 64-bit ARM processors: the features and caches of each named CPU, and how features become a target.

NEON is always present; SVE is not used. Features are spelled as LLVM spells them.
"""

from __future__ import annotations

from collections.abc import Iterable

from .machine import Caches, Cpu, Target, cpu_target
from .spelling import CPU_FORM, LIBRARY, Row, Spelled

TRIPLE = "aarch64-unknown-none-elf"  # objects without an operating system: Pliant links them itself

# Features by architecture version.
_BASE = ("neon",)
_V81 = (*_BASE, "crc", "lse", "rdm")
_V82 = (*_V81, "dotprod", "fullfp16")
_V84 = (*_V82, "fp16fml")
_V86 = (*_V84, "bf16", "i8mm")


CPUS: dict[str, Cpu] = {
    "aarch64": Cpu(_BASE, l3=2, llvm="generic"),
    "generic": Cpu(_BASE, l3=2),  # LLVM's name for the same
    "cortex-a53": Cpu((*_BASE, "crc"), 32, 512, 0),
    "cortex-a55": Cpu(_V82, 32, 128, 1),
    "cortex-a57": Cpu((*_BASE, "crc"), 32, 1024, 0),
    "cortex-a72": Cpu((*_BASE, "crc"), 32, 1024, 0),
    "cortex-a73": Cpu((*_BASE, "crc"), 32, 1024, 0),
    "cortex-a75": Cpu(_V82, 64, 256, 2),
    "cortex-a76": Cpu(_V82, 64, 256, 2),
    "cortex-a77": Cpu(_V82, 64, 256, 4),
    "cortex-a78": Cpu(_V82, 64, 512, 4),
    "cortex-x1": Cpu(_V82, 64, 1024, 8),
    "cortex-a510": Cpu(_V86, 32, 256, 4),
    "cortex-a710": Cpu(_V86, 64, 512, 8),
    "cortex-x2": Cpu(_V86, 64, 1024, 8),
    "cortex-x3": Cpu(_V86, 64, 1024, 8),
    "neoverse-n1": Cpu(_V82, 64, 1024, 32),
    "neoverse-n2": Cpu(_V86, 64, 1024, 32),
    "neoverse-v1": Cpu(_V86, 64, 1024, 32),
    "neoverse-v2": Cpu(_V86, 64, 2048, 32),
    "apple-a12": Cpu((*_V81, "fullfp16"), 128, 8192, 8),
    "apple-a13": Cpu(_V84, 128, 8192, 16),
    "apple-a14": Cpu(_V84, 128, 8192, 16),
    "apple-m1": Cpu(_V84, 128, 12288, 8),
    "apple-m2": Cpu(_V86, 128, 16384, 8),
    "apple-m3": Cpu(_V86, 128, 16384, 8),
    "apple-m4": Cpu(_V86, 128, 16384, 8),
}

FEATURES = frozenset(f for cpu in CPUS.values() for f in cpu.features)

IMPLIES: dict[str, tuple[str, ...]] = {"fp16fml": ("fullfp16",)}

# How Linux spells (in /proc/cpuinfo) the features that LLVM spells differently.
LINUX_FLAGS = {
    "asimd": "neon",
    "crc32": "crc",
    "atomics": "lse",
    "asimdrdm": "rdm",
    "asimddp": "dotprod",
    "asimdhp": "fullfp16",
    "asimdfhm": "fp16fml",
}

# The names of the same features in macOS' sysctl, under hw.optional.arm.
APPLE_FLAGS = {
    "FEAT_CRC32": "crc",
    "FEAT_LSE": "lse",
    "FEAT_RDM": "rdm",
    "FEAT_DotProd": "dotprod",
    "FEAT_FP16": "fullfp16",
    "FEAT_FHM": "fp16fml",
    "FEAT_BF16": "bf16",
    "FEAT_I8MM": "i8mm",
}


ROWS = (Row(CPU_FORM, ("aarch64", "llvm:cortex-a76+dotprod", "aarch64@android"), "64-bit ARM", LIBRARY),)
NAMES = tuple(CPUS)


def named(spelled: Spelled) -> Target | None:
    """Returns the target for a name of a 64-bit ARM CPU in CPUS, or None if it is none; raises UnsupportedError for an unknown feature."""
    match spelled.among(CPUS, FEATURES, IMPLIES):
        case cpu, features:
            return make(spelled.name, cpu.llvm or spelled.cpu, features, cpu.caches, os=spelled.system)
    return None


def make(name: str, cpu: str, features: Iterable[str], caches: Caches, *, os: str) -> Target:
    """Returns the target for LLVM's `cpu` with `features`; macOS, Windows and Android reserve register x18."""
    have = {*features, *(("reserve-x18",) if os in ("macos", "windows", "android") else ())}
    has_f16 = "fullfp16" in have
    return cpu_target(name, TRIPLE, cpu, have, caches, os, vector_bits=128, n_vector_registers=32, has_f16=has_f16, has_f16c=True)
