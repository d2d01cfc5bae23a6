"""Facts about x86-64 processors: the features and caches of each named CPU, and how features become a target.

A CPU is a psABI level (v1 to v4), the further features that generated code can use, and its cache sizes. Features are spelled as LLVM
spells them; generated code relies on no others.
"""

from __future__ import annotations

from collections.abc import Iterable

from .machine import Caches, Cpu, Target, cpu_target
from .spelling import CPU_FORM, LIBRARY, Row, Spelled

TRIPLE = "x86_64-unknown-none-elf"  # objects without an operating system: Pliant links them itself

# Features by psABI level, and those that Ice Lake added.
_V1 = ("sse2",)
_V2 = (*_V1, "cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_ICE = ("avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512vpopcntdq", "gfni")


# The preferred vector width. Where 512-bit instructions lower the clock of the whole core and one of the two units is missing (client Ice
# Lake and similar), 256 bits is the better default. Zen 4 splits them into halves without a lower clock: the FMA rate is the same, and with
# fewer instructions the decoder layer of examples/ took 12 to 14 % less time for one token on 1 thread and 10 to 20 % less for 128 tokens
# on
# 2 threads; for 128 tokens on 1 thread the difference was below 4 %.
CPUS: dict[str, Cpu] = {
    "x86-64": Cpu(_V1),
    "x86-64-v2": Cpu(_V2),
    "x86-64-v3": Cpu(_V3),
    "x86-64-v4": Cpu(_V4, l2=1024),
    "nehalem": Cpu(_V2, l2=256),
    "westmere": Cpu(_V2, l2=256),
    "sandybridge": Cpu((*_V2, "avx"), l2=256),
    "ivybridge": Cpu((*_V2, "avx", "f16c"), l2=256),
    "haswell": Cpu(_V3, l2=256),
    "broadwell": Cpu(_V3, l2=256),
    "skylake": Cpu(_V3, l2=256),
    "skylake-avx512": Cpu(_V4, 32, 1024, 16, 512),
    "cascadelake": Cpu((*_V4, "avx512vnni"), 32, 1024, 16, 512),
    "cooperlake": Cpu((*_V4, "avx512bf16", "avx512vnni"), 32, 1024, 16, 512),
    "icelake-client": Cpu((*_V4, *_ICE), 48, 512, 8),
    "icelake-server": Cpu((*_V4, *_ICE), 48, 1280, 32, 512),
    "tigerlake": Cpu((*_V4, *_ICE), 48, 1280, 12),
    "rocketlake": Cpu((*_V4, *_ICE), 48, 512, 16),
    "alderlake": Cpu((*_V3, "avxvnni", "gfni"), 32, 1280, 24),
    "raptorlake": Cpu((*_V3, "avxvnni", "gfni"), 32, 2048, 30),
    "meteorlake": Cpu((*_V3, "avxvnni", "gfni"), 32, 2048, 24),
    "sapphirerapids": Cpu((*_V4, *_ICE, "avx512bf16", "avx512fp16", "avxvnni"), 48, 2048, 32, 512),
    "emeraldrapids": Cpu((*_V4, *_ICE, "avx512bf16", "avx512fp16", "avxvnni"), 48, 2048, 32, 512),
    "graniterapids": Cpu((*_V4, *_ICE, "avx512bf16", "avx512fp16", "avxvnni"), 48, 2048, 32, 512),
    "silvermont": Cpu((*_V2, "movbe"), 24, 1024, 0),
    "goldmont": Cpu((*_V2, "movbe"), 24, 1024, 0),
    "btver2": Cpu((*_V2, "avx", "bmi", "f16c", "lzcnt", "movbe"), 32, 2048, 0),
    "bdver2": Cpu((*_V2, "avx", "bmi", "f16c", "fma", "lzcnt"), 16, 2048, 8),
    "znver1": Cpu(_V3),
    "znver2": Cpu(_V3, l3=16),
    "znver3": Cpu(_V3, l3=32),
    "znver4": Cpu((*_V4, *_ICE, "avx512bf16"), 32, 1024, 32, 512),
    "znver5": Cpu((*_V4, *_ICE, "avx512bf16", "avxvnni"), 48, 1024, 32, 512),
}

FEATURES = frozenset(f for cpu in CPUS.values() for f in cpu.features)

# Features that a feature implies, so that a name such as x86-64+avx512vnni includes all that it needs.
IMPLIES: dict[str, tuple[str, ...]] = {
    "sse4.1": ("sse3", "ssse3"),
    "sse4.2": ("sse4.1",),
    "avx": ("sse4.2",),
    "avx2": ("avx",),
    "avxvnni": ("avx2",),
    "fma": ("avx",),
    "f16c": ("avx",),
    "avx512f": ("avx2", "f16c", "fma"),
    **{f: ("avx512f",) for f in FEATURES if f.startswith("avx512") and f != "avx512f"},
    **dict.fromkeys(("avx512bf16", "avx512bitalg", "avx512vbmi", "avx512vbmi2"), ("avx512f", "avx512bw")),
    "avx512fp16": ("avx512bw", "avx512dq", "avx512vl"),
}

# How Linux spells (in /proc/cpuinfo) the features that LLVM spells differently.
LINUX_FLAGS = {
    "pni": "sse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "lahf_lm": "sahf",
    "bmi1": "bmi",
    "abm": "lzcnt",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx_vnni": "avxvnni",
}

# The CPU to tune for, by flags as Linux spells them: the first row whose flags are all present. `sse4a` and `clzero` identify the Zen
# family without reading a model name.
_TUNE: tuple[tuple[tuple[str, ...], str], ...] = (
    (("sse4a", "avx512f", "avx_vnni"), "znver5"),
    (("sse4a", "avx512f"), "znver4"),
    (("sse4a", "avx2", "vaes"), "znver3"),
    (("sse4a", "avx2", "clwb"), "znver2"),
    (("sse4a", "avx2", "clzero"), "znver1"),
    (("avx512f", "amx_tile"), "sapphirerapids"),
    (("avx512f", "avx512_bf16"), "cooperlake"),
    (("avx512f", "avx512_vbmi2", "wbnoinvd"), "icelake-server"),
    (("avx512f", "avx512_vbmi2"), "icelake-client"),
    (("avx512f", "avx512_vnni"), "cascadelake"),
    (("avx512f",), "skylake-avx512"),
    (("avx2", "avx_vnni"), "alderlake"),
    (("avx2", "clflushopt"), "skylake"),
    (("avx2",), "haswell"),
)


ROWS = (Row(CPU_FORM, ("x86-64-v3", "znver4", "llvm:x86-64-v3"), "64-bit x86", LIBRARY),)
NAMES = tuple(CPUS)


def named(spelled: Spelled) -> Target | None:
    """Returns the target for a name of an x86-64 CPU in CPUS, or None if it is none; raises UnsupportedError for an unknown feature."""
    match spelled.among(CPUS, FEATURES, IMPLIES):
        case cpu, features:
            return make(spelled.name, spelled.cpu, spelled.cpu, features, cpu.caches, os=spelled.system)
    return None


def level(number: int) -> frozenset[str]:
    """Returns the features of the psABI level x86-64-v1 to v4, by its number."""
    return frozenset((_V1, _V2, _V3, _V4)[number - 1])


def tune_for(flags: Iterable[str]) -> str:
    """Returns the CPU whose instruction costs fit these flags (as Linux spells them) best; "x86-64" if none does."""
    have = set(flags)
    return next((cpu for needs, cpu in _TUNE if have.issuperset(needs)), "x86-64")


def make(name: str, cpu: str, tune: str, features: Iterable[str], caches: Caches, *, os: str) -> Target:
    """The target for LLVM's `cpu`, tuned for `tune`, with `features`, under the conventions of `os`."""
    have = frozenset(features)
    avx512 = have.issuperset(("avx512f", "avx512vl", "avx512bw", "avx512dq"))
    widest = 512 if avx512 else 256 if "avx2" in have else 128
    return cpu_target(
        name,
        TRIPLE,
        cpu,
        have,
        caches,
        os,
        tune=tune,
        vector_bits=min(widest, CPUS[tune].vector_bits),
        n_vector_registers=32 if avx512 else 16,
        has_fma="fma" in have,
        has_f16="avx512fp16" in have,
        has_f16c="f16c" in have,
        call_conv="win64cc" if os == "windows" else "",
    )
