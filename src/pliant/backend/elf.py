"""The LLVM backend for CPUs: programs become flat machine code, for this machine or for another one."""

from __future__ import annotations

from ..codegen.link_elf import link
from ..loop.lowering import Watch
from ..target import Target
from .base import Assembly, Backend
from .llvm import LlvmAssembly


class Elf(Backend):
    """x86-64, aarch64: LLVM's ELF objects, linked by ourselves."""

    def assembly(self, target: Target, level: int = 2, watch: Watch | None = None) -> Assembly:
        """A program that becomes a blob of the form `flat`."""
        return LlvmAssembly(target, level, link, watch)


ELF = Elf()
