"""From the name of a target, as users write it, to the `Target`: one grammar, shown to users by `TABLE` and docs/targets.md.

    name = (native | [llvm:]CPU | wasm | c[:CPU]) [+FEATURE]... [@OS]

    target("x86-64-v3"), target("llvm:cortex-a76+dotprod"), target("riscv64@linux"), target("wasm+simd128"), target("c:cortex-m7")

CPUs and features are spelled as LLVM spells them. The operating system decides conventions of calls and of files, no more; it is that
of this machine where none is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..support.errors import UnsupportedError
from ..support.source import caller_span
from . import aarch64, c, host, riscv, wasm, x86
from .machine import Target


class Row(NamedTuple):
    """One form of target names: how it is written, names of that form, what they stand for, and what `pliant.export` writes."""

    form: str
    examples: tuple[str, ...]
    means: str
    export: str


_LIBRARY = "a shared library and an object (ELF), a C header"
TABLE: tuple[Row, ...] = (
    Row("native", ("native",), "the machine that runs this process", _LIBRARY),
    Row("[llvm:]CPU", ("x86-64-v3", "znver4", "llvm:x86-64-v3"), "64-bit x86", _LIBRARY),
    Row("", ("aarch64", "llvm:cortex-a76+dotprod", "aarch64@android"), "64-bit ARM", _LIBRARY),
    Row("", ("riscv64", "riscv64+v@linux", "spacemit-x60@linux"), "64-bit RISC-V (RV64GC; `v` optional)", _LIBRARY),
    Row("wasm", ("wasm", "wasm+simd128", "wasm+relaxed-simd"), "WebAssembly with a 32-bit memory", "one module that imports nothing"),
    Row(
        "c[:CPU]",
        ("c", "c:cortex-m7", "c:cortex-m4"),
        "C99 for any compiler; a CPU decides tiles and fused multiply-add",
        "a .c and a .h file",
    ),
)
OSES = ("linux", "android", "macos", "windows", "none")
_HELP = "targets are `native`, `[llvm:]CPU`, `wasm` and `c[:CPU]`, then `+FEATURE` and `@OS`: `pliant export --help` shows them"
# What people may ask for and what is not there yet, in one sentence each.
_LATER = {
    "webgpu": "the target `webgpu` is not there yet: Pliant makes no code for GPUs",
    "web": "`web` is no target but a kind of export, and pages are not written yet; `wasm+simd128` makes the module for one",
}


class _Spelled(NamedTuple):
    """A name cut into its parts."""

    name: str
    kind: str  # "native", "wasm", "c" or "llvm"
    cpu: str
    features: tuple[str, ...]
    os: str  # "" where none is said


def target(name: str | Target) -> Target:
    """The target of that name; a `Target` is its own answer."""
    if isinstance(name, Target):
        return name
    if not isinstance(name, str):
        raise UnsupportedError(f"a target is a name, not {name!r}", where=caller_span(), help=_HELP)
    spelled = _spelled(name)
    if spelled.kind != "llvm" and spelled.os:
        raise UnsupportedError(f"the target `{spelled.kind}` takes no operating system: `{name}`", where=caller_span(), help=_HELP)
    if spelled.kind == "native":
        return host.native()
    if spelled.kind == "wasm":
        return wasm.make(name, _closed(spelled, wasm.FEATURES, wasm.IMPLIES))
    if spelled.kind == "c":
        return c.make(name, spelled.cpu or "generic")
    return _cpu_target(spelled)


def _spelled(name: str) -> _Spelled:
    """The parts of a name, each known for itself."""
    whole, at, os = name.partition("@")
    if at and os not in OSES:
        raise UnsupportedError(
            f"unknown operating system `{os}` in target `{name}`",
            where=caller_span(),
            facts=_near(os, OSES),
            help="systems are " + ", ".join(OSES),
        )
    base, *features = whole.split("+")
    if base == "native" and features:
        raise UnsupportedError(f"`native` has the features of this machine and takes no others: `{name}`", where=caller_span(), help=_HELP)
    if base in ("native", "wasm"):
        return _Spelled(name, base, "", tuple(features), os)
    if base == "c" or base.startswith("c:"):
        return _c_spelled(name, base[2:], tuple(features), os)
    cpu = base.removeprefix("llvm:")
    if not any(cpu in cpus for cpus in (x86.CPUS, aarch64.CPUS, riscv.CPUS)):
        if base in _LATER:
            raise UnsupportedError(_LATER[base], where=caller_span())
        raise UnsupportedError(f"unknown target `{name}`", where=caller_span(), facts=_near(cpu, known_names()), help=_HELP)
    return _Spelled(name, "llvm", cpu, tuple(features), os)


def _c_spelled(name: str, cpu: str, features: tuple[str, ...], os: str) -> _Spelled:
    """The parts of a name of C source."""
    if cpu and cpu not in c.CPUS:
        raise UnsupportedError(
            f"unknown CPU `{cpu}` in target `{name}`", where=caller_span(), facts=_near(cpu, c.CPUS), help="CPUs are " + ", ".join(c.CPUS)
        )
    if features:
        raise UnsupportedError(f"the target `c` takes no features: `{name}`", where=caller_span(), help=_HELP)
    return _Spelled(name, "c", cpu, (), os)


def _cpu_target(spelled: _Spelled) -> Target:
    """The target of a named CPU."""
    name, cpu, os = spelled.name, spelled.cpu, spelled.os or host.this_os()
    if cpu in x86.CPUS:
        on_x86 = x86.CPUS[cpu]
        features = _closed(spelled, x86.FEATURES, x86.IMPLIES).union(on_x86.features)
        return x86.make(name, cpu, cpu, features, on_x86.caches, os=os)
    if cpu in aarch64.CPUS:
        on_arm = aarch64.CPUS[cpu]
        features = _closed(spelled, aarch64.FEATURES, aarch64.IMPLIES).union(on_arm.features)
        return aarch64.make(name, "generic" if cpu == "aarch64" else cpu, features, on_arm.caches, os=os)
    on_riscv = riscv.CPUS[cpu]
    if os not in ("linux", "none"):
        if spelled.os:
            raise UnsupportedError(f"code for RISC-V is made for `linux` and `none`, not for `{os}`", where=caller_span())
        os = "linux"  # no other system that Pliant runs on is there for RISC-V
    features = _closed(spelled, riscv.FEATURES, riscv.IMPLIES).union(on_riscv.features)
    return riscv.make(name, on_riscv.llvm or cpu, features, on_riscv.caches, os=os)


def known_names() -> list[str]:
    """Every name that `target` takes, without `llvm:`, added features and systems."""
    return [
        "native",
        "wasm",
        "wasm+simd128",
        "wasm+relaxed-simd",
        "c",
        *(f"c:{cpu}" for cpu in c.CPUS),
        *x86.CPUS,
        *aarch64.CPUS,
        *riscv.CPUS,
    ]


_Implies = Mapping[str, tuple[str, ...]]


def _closed(spelled: _Spelled, known: frozenset[str], implies: _Implies) -> frozenset[str]:
    """The features and all that they bring along."""
    have: set[str] = set()
    open_ = list(spelled.features)
    while open_:
        feature = open_.pop()
        if feature not in known:
            raise UnsupportedError(
                f"unknown feature `{feature}` in target `{spelled.name}`",
                where=caller_span(),
                facts=_near(feature, sorted(known)),
                help="features are spelled as LLVM spells them: " + ", ".join(sorted(known)),
            )
        if feature not in have:
            have.add(feature)
            open_ += implies.get(feature, ())
    return frozenset(have)


def _near(word: str, known: Iterable[str]) -> list[str]:
    """The known words that `word` may have meant, as a fact for an error."""
    import difflib

    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.5)
    return ["near: " + ", ".join(f"`{n}`" for n in near)] if near else []
