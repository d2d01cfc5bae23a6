"""Detection of this machine without LLVM: CPU features from the operating system, and cache sizes where it reports them.

Decisions depend on features, never on the model name, so that a CPU newer than this file is served well. Features that cannot be detected
count as absent: the least is x86-64-v2, or plain NEON.
"""

from __future__ import annotations

import contextlib
import functools
import platform
import sys
from collections.abc import Callable, Mapping

from ..support.errors import UnsupportedError
from ..support.settings import read as read_settings
from . import aarch64, x86
from .machine import Caches, Cpu, Target
from .spelling import LIBRARY, Row, Spelled, this_os

ROWS = (Row("native", ("native",), "the machine that runs this process", LIBRARY),)
NAMES = ("native",)


def named(spelled: Spelled) -> Target | None:
    """Returns the target of this machine if the name is `native`, else None.

    Raises UnsupportedError for `native` with features or a system.
    """
    if spelled.base != "native":
        return None
    if spelled.features:
        raise spelled.refused(f"`native` has the features of this machine and takes no others: `{spelled.name}`")
    spelled.alone()
    return native()


def native() -> Target:
    """The machine that runs this process, restricted to the features of the setting PLIANT_CPU."""
    return detect(read_settings().cpu)


@functools.cache
def detect(cpu: str = "") -> Target:
    """Returns this machine as a target, with the features that it shares with the named CPU; with all of them if the name is empty.

    An x86 machine that reports less than x86-64-v2 is taken for one of that level. Raises UnsupportedError for processors other than x86-64
    and 64-bit ARM.
    """
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        flags = _x86_flags()
        features = {x86.LINUX_FLAGS.get(f, f) for f in flags} & x86.FEATURES
        if not features >= x86.level(2):
            features = set(x86.level(2))
        if cpu:
            features.intersection_update(_features_of(cpu, x86.CPUS))
        tune = x86.tune_for(flags)
        caches = _caches(x86.CPUS[tune].caches)
        return x86.make("native", "x86-64", tune, features, caches, os=this_os())
    if machine in ("aarch64", "arm64"):
        features = _aarch64_features() | {"neon"}
        if cpu:
            features.intersection_update(_features_of(cpu, aarch64.CPUS))
        caches = _caches(aarch64.CPUS["generic"].caches)
        return aarch64.make("native", "generic", features, caches, os=this_os())
    raise UnsupportedError(
        f"this machine's processor, `{machine}`, is not one that Pliant makes code for",
        facts=["native code is made for x86-64 and 64-bit ARM"],
        help='target="wasm" makes portable code',
    )


def _features_of(cpu: str, known: Mapping[str, Cpu]) -> tuple[str, ...]:
    """Returns the features of the CPU that the variable PLIANT_CPU names; raises UnsupportedError if it is unknown."""
    if cpu in known:
        return known[cpu].features
    raise UnsupportedError(f"PLIANT_CPU is `{cpu}`, which is no CPU of this architecture", help="it is one of " + ", ".join(known))


def cpu_name() -> str:
    """The processor's marketing name, for people to read; no decision depends on it."""
    if sys.platform == "darwin":
        return _sysctl_text("machdep.cpu.brand_string") or platform.machine()
    if sys.platform == "linux":
        with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == "model name":
                    return value.strip()
        with contextlib.suppress(OSError), open("/proc/device-tree/model", encoding="utf-8", errors="replace") as file:
            return file.read().strip("\0\n ")  # ARM machines report the board instead
    return platform.processor() or platform.machine()


# How macOS spells (in lower case) the flags that Linux spells differently.
_APPLE_X86_FLAGS = {
    "avx1.0": "avx",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "lahf": "lahf_lm",
    "lzcnt": "abm",
}


def _x86_flags() -> set[str]:
    """Returns this CPU's feature flags, spelled as in Linux' /proc/cpuinfo; empty if the system does not tell them."""
    if sys.platform == "linux":
        return _proc_cpuinfo("flags")
    if sys.platform == "darwin":
        names = ("machdep.cpu.features", "machdep.cpu.leaf7_features", "machdep.cpu.extfeatures")
        words = " ".join(_sysctl_text(name) for name in names).lower().split()
        return {_APPLE_X86_FLAGS.get(w, w) for w in words}
    if sys.platform == "win32":
        # Windows reports AVX2 but not FMA, F16C and BMI; all CPUs with AVX2 that Windows 10 supports have them.
        from ctypes import windll

        has: Callable[[int], int] = windll.kernel32.IsProcessorFeaturePresent
        reached = 4 if has(41) else 3 if has(40) else 2  # PF_AVX512F_..., PF_AVX2_INSTRUCTIONS_AVAILABLE
        return set(x86.level(reached))
    return set()


def _aarch64_features() -> set[str]:
    """Returns this CPU's features, spelled as LLVM spells them; empty if the system does not tell them."""
    if sys.platform == "linux":
        flags = _proc_cpuinfo("Features")
        return {aarch64.LINUX_FLAGS.get(f, f) for f in flags} & aarch64.FEATURES
    if sys.platform == "darwin":
        return {f for flag, f in aarch64.APPLE_FLAGS.items() if _sysctl_int(f"hw.optional.arm.{flag}")}
    if sys.platform == "win32":
        from ctypes import windll

        has: Callable[[int], int] = windll.kernel32.IsProcessorFeaturePresent
        known = {31: "crc", 34: "lse", 43: "dotprod"}  # PF_ARM_{V8_CRC32, V81_ATOMIC, V82_DP}_INSTRUCTIONS_AVAILABLE
        return {f for number, f in known.items() if has(number)}
    return set()


def _proc_cpuinfo(key: str) -> set[str]:
    """Returns the words of the first line `key : words` of /proc/cpuinfo; empty if there is none.

    Reads no further, because the file is long on large machines.
    """
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                name, _, words = line.partition(":")
                if name.strip() == key:
                    return set(words.split())
    except OSError:
        pass
    return set()


def _caches(default: Caches) -> Caches:
    """The cache sizes that the operating system reports; the others from `default`."""
    sizes: dict[int, int] = {}
    if sys.platform == "linux":
        sizes = _linux_caches()
    elif sys.platform == "darwin":
        # The sizes of the fast cores come first; machines with one kind of core have the plain names only.
        for level, name in ((1, "l1dcachesize"), (2, "l2cachesize"), (3, "l3cachesize")):
            sizes[level] = _sysctl_int(f"hw.perflevel0.{name}") or _sysctl_int(f"hw.{name}")
    known = (default.line, default.l1, default.l2, default.l3)
    line, l1, l2, l3 = (sizes.get(level) or size for level, size in enumerate(known))
    return Caches(l1, l2, l3, line)


def _linux_caches() -> dict[int, int]:
    """Returns the bytes of each data cache by level, and under 0 the bytes of a cache line, as Linux tells them."""
    sizes: dict[int, int] = {}
    for index in range(5):
        base = f"/sys/devices/system/cpu/cpu0/cache/index{index}/"
        try:
            if _read(base + "type") == "Instruction":
                continue
            size = _read(base + "size")
            unit = {"K": 10, "M": 20}.get(size[-1:], 0)
            sizes[int(_read(base + "level"))] = int(size.rstrip("KM")) << unit
            sizes[0] = int(_read(base + "coherency_line_size"))
        except (OSError, ValueError):
            continue
    return sizes


def _read(path: str) -> str:
    """Returns the text of a small file, without white space at its ends."""
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def _sysctl(name: str, size: int) -> bytes:
    """Returns the value of macOS' system setting `name`, empty if there is none."""
    import ctypes

    buffer, length = ctypes.create_string_buffer(size), ctypes.c_size_t(size)
    failed = ctypes.CDLL(None).sysctlbyname(name.encode(), buffer, ctypes.byref(length), None, ctypes.c_size_t(0))
    return b"" if failed else buffer.raw[: length.value]


def _sysctl_int(name: str) -> int:
    return int.from_bytes(_sysctl(name, 8), "little")


def _sysctl_text(name: str) -> str:
    return _sysctl(name, 8192).rstrip(b"\0").decode("ascii", "replace")
