"""From the name of a target, as users write it, to the `Target`.

    native                        the machine that runs this process
    llvm:<cpu>[+feature]...       llvm:x86-64-v3, llvm:znver3, llvm:cortex-a76+dotprod
    wasm[+feature]...             wasm, wasm+simd128

CPUs and features are spelled as LLVM spells them. Code for `llvm:` follows the conventions of the operating system it
is made on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..support.errors import UnsupportedError
from ..support.source import caller_span
from . import aarch64, host, wasm, x86
from .machine import Target


def target(name: str | Target) -> Target:
    """The target of that name; a `Target` is its own answer."""
    if isinstance(name, Target):
        return name
    if not isinstance(name, str):
        raise UnsupportedError(f"a target is a name, not {name!r}", where=caller_span(), help=_HELP)
    if name == "native":
        return host.native()
    base, *extra = name.split("+")
    if base == "wasm":
        return wasm.make(name, _closed(name, extra, wasm.FEATURES, wasm.IMPLIES))
    kind, _, cpu = base.partition(":")
    if kind == "llvm" and cpu in x86.CPUS:
        on_x86 = x86.CPUS[cpu]
        features = _closed(name, extra, x86.FEATURES, x86.IMPLIES).union(on_x86.features)
        return x86.make(name, cpu, cpu, features, on_x86.caches, windows=host.is_windows())
    if kind == "llvm" and cpu in aarch64.CPUS:
        on_arm = aarch64.CPUS[cpu]
        features = _closed(name, extra, aarch64.FEATURES, aarch64.IMPLIES).union(on_arm.features)
        return aarch64.make(name, cpu, features, on_arm.caches, reserve_x18=host.reserves_x18())
    raise UnsupportedError(f"unknown target `{name}`", where=caller_span(), facts=_near(base, known_names()), help=_HELP)


def known_names() -> list[str]:
    """Every name that `target` takes, without added features."""
    return ["native", "wasm", "wasm+simd128", *(f"llvm:{cpu}" for cpu in (*x86.CPUS, *aarch64.CPUS))]


_Implies = Mapping[str, tuple[str, ...]]
_HELP = "targets are `native`, `llvm:<cpu>` and `wasm`, and `+feature` adds what the CPU has besides"


def _closed(name: str, features: Iterable[str], known: frozenset[str], implies: _Implies) -> frozenset[str]:
    """The features and all that they bring along."""
    found: set[str] = set()
    open_ = list(features)
    while open_:
        feature = open_.pop()
        if feature not in known:
            raise UnsupportedError(
                f"unknown feature `{feature}` in target `{name}`",
                where=caller_span(),
                facts=_near(feature, sorted(known)),
                help="features are spelled as LLVM spells them: " + ", ".join(sorted(known)),
            )
        if feature not in found:
            found.add(feature)
            open_ += implies.get(feature, ())
    return frozenset(found)


def _near(word: str, known: list[str]) -> list[str]:
    """The known words that `word` may have meant, as a fact for an error."""
    import difflib

    near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    # `znver3` is one prefix away from `llvm:znver3`, which the ratio of common letters alone does not see.
    near = [k for k in known if k == f"llvm:{word}"] or near
    return ["near: " + ", ".join(f"`{n}`" for n in near)] if near else []
