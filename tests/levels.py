"""What this machine can run: x86-64 levels, and code for machines above it, which is made and read but never run.

@pytest.mark.parametrize("to", runnable("native", "llvm:x86-64-v3"))     # the second one only where it can run
assembly_for(kernel, "llvm:x86-64-v4")["matmul"]                         # on any machine
"""

from __future__ import annotations

from typing import Any

from pliant.api import program_of
from pliant.provenance import Provenance
from pliant.report.assembly import kernel_assembly, kernels_of
from pliant.target import Target, target

LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")


def runs_here(name: str | Target) -> bool:
    """Whether code for a target can run on this machine (or on what `--cpu` leaves of it)."""
    machine, here = target(name), target("native")
    return machine.arch == here.arch and set(machine.features) <= set(here.features)


def runnable(*names: str) -> list[str]:
    """Those of the targets that this machine can run; `native` is always one of them."""
    return [name for name in names if runs_here(name)]


def assembly_for(src: Any, to: str) -> dict[str, str]:
    """The assembly of each kernel of a program for a target, by the kernel's name."""
    provenance = Provenance(lambda: program_of(src), target(to))
    return {func.name: kernel_assembly(func, provenance) for func in kernels_of(provenance)}


def rules_for(src: Any, to: str) -> str:
    """What the default rules say of each kernel of a program for a target."""
    from pliant.pipeline import compile_program

    package = compile_program(program_of(src), target=target(to))
    return "\n".join(rule.why for rule in package.interface.rules)
