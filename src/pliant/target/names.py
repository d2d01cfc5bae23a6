"""Parser of target names: one grammar, shown to users by `TABLE` and docs/targets.md.

    name = (native | [llvm:]CPU | wasm | web | c[:CPU]) [+FEATURE]... [@OS]

    target("x86-64-v3"), target("llvm:cortex-a76+dotprod"), target("riscv64@linux"), target("wasm+simd128"), target("c:cortex-m7")

CPUs and features are spelled as LLVM spells them. The operating system only decides the calling convention and file formats; by default
it is that of this machine.
"""

from __future__ import annotations

from ..support.errors import UnsupportedError
from ..support.source import caller_span
from . import aarch64, c, native, riscv, wasm, web, x86
from .machine import Target
from .spelling import Row, Spelled, near

# The kinds of targets and CPU architectures: modules with the interface that `spelling.py` describes.
KINDS = (native, x86, aarch64, riscv, wasm, web, c)

TABLE: tuple[Row, ...] = tuple(row for kind in KINDS for row in kind.ROWS)
OSES = ("linux", "android", "macos", "windows", "none")
_FORMS = [f"`{form}`" for form in dict.fromkeys(row.form for row in TABLE)]
_HELP = f"targets are {', '.join(_FORMS[:-1])} and {_FORMS[-1]}, then `+FEATURE` and `@OS`: `pliant export --help` shows them"
# Targets that users may ask for and that do not exist yet, each with its message.
_LATER = {
    "webgpu": "the target `webgpu` is not there yet: Pliant makes no code for GPUs",
}


def target(name: str | Target) -> Target:
    """Returns the target of that name; a `Target` is returned as it is. Raises UnsupportedError for an unknown name."""
    if isinstance(name, Target):
        return name
    if not isinstance(name, str):
        raise UnsupportedError(f"a target is a name, not {name!r}", where=caller_span(), help=_HELP)
    spelled = _spelled(name)
    for kind in KINDS:
        machine: Target | None = kind.named(spelled)
        if machine is not None:
            return machine
    if spelled.base in _LATER:
        raise UnsupportedError(_LATER[spelled.base], where=caller_span())
    raise spelled.refused(f"unknown target `{name}`", near(spelled.cpu, known_names()))


def _spelled(name: str) -> Spelled:
    """Splits a target name into base, features and operating system; raises an error for an unknown operating system."""
    whole, at, os = name.partition("@")
    base, *features = whole.split("+")
    spelled = Spelled(name, base, tuple(features), os, _HELP)
    if at and os not in OSES:
        raise spelled.refused(f"unknown operating system `{os}` in target `{name}`", near(os, OSES), "systems are " + ", ".join(OSES))
    return spelled


def known_names() -> list[str]:
    """Every name that `target` accepts, without `llvm:`, added features and systems."""
    return [name for kind in KINDS for name in kind.NAMES]
