"""The `Target` record: everything that the compiler knows about a machine.

All properties of the machine (vector width, registers, caches, instructions) are read from a `Target`, never from the machine itself, so
that cross compilation works like native compilation.

    t = target("x86-64-v3")
    t.vector_bits, t.n_vector_registers, t.has_fma        # 256, 16, True
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import NamedTuple

from ..support.record import dataclass


@dataclass(frozen=True, slots=True)
class Caches:
    """A record of the bytes of one core's data caches, and of a cache line; `l3` is shared, 0 if there is none."""

    l1: int
    l2: int
    l3: int
    line: int = 64


class Cpu(NamedTuple):
    """A CPU that targets name: its features, level 1 and 2 cache sizes in KiB, level 3 in MiB."""

    features: tuple[str, ...]
    l1: int = 32
    l2: int = 512
    l3: int = 8
    vector_bits: int = 256  # the preferred vector width, if it has several (x86)
    llvm: str = ""  # LLVM's name for it, if different

    @property
    def caches(self) -> Caches:
        """The sizes of the caches in bytes."""
        return Caches(self.l1 << 10, self.l2 << 10, self.l3 << 20)


@dataclass(frozen=True, slots=True)
class Target:
    """A machine to compile for; two targets are equal if they give the same code, however they were written."""

    name: str = field(compare=False)  # as the user wrote it
    kind: str  # the module of `backend/` that generates its code
    triple: str
    cpu: str  # as LLVM spells it: decides which instructions may be used
    tune: str  # as LLVM spells it: decides the instruction costs
    features: tuple[str, ...]  # available features, as LLVM spells them without the sign, sorted
    pointer_bits: int
    vector_bits: int  # the width that generated code should use, at most that of the machine
    n_vector_registers: int
    has_fma: bool  # fused multiply-add in one instruction
    has_f16: bool  # arithmetic on f16
    has_f16c: bool  # conversion between f16 and f32
    caches: Caches
    has_f64: bool = True  # f64 arithmetic in hardware; if so, long f32 sums are finished in f64
    probes_stack: bool = False  # the system grows stacks page by page, so large frames must touch each page
    call_conv: str = ""  # LLVM's name for the calling convention of exported functions and callbacks; "" is that of C
    os: str = field(default="none", compare=False)  # the system whose files are written; code depends only on the fields above

    @property
    def arch(self) -> str:
        """The architecture, as the triple spells it: x86_64, aarch64, riscv64 or wasm32."""
        return self.triple.partition("-")[0]

    @property
    def convention(self) -> str:
        """The ABI that code and its callers must agree on beside the architecture: the calling convention, and who owns register x18."""
        return (self.call_conv or "c") + ("-x18" if "reserve-x18" in self.features else "")

    def __str__(self) -> str:
        return self.name


def cpu_target(
    name: str,
    triple: str,
    cpu: str,
    features: Iterable[str],
    caches: Caches,
    os: str,
    *,
    vector_bits: int,
    n_vector_registers: int,
    tune: str = "",
    has_fma: bool = True,
    has_f16: bool = False,
    has_f16c: bool = False,
    call_conv: str = "",
) -> Target:
    """Returns the target for a 64-bit CPU whose code LLVM generates, tuned for `cpu` unless `tune` names another.

    See the fields of `Target`.
    """
    return Target(
        name=name,
        kind="llvm",
        triple=triple,
        cpu=cpu,
        tune=tune or cpu,
        features=tuple(sorted(features)),
        pointer_bits=64,
        vector_bits=vector_bits,
        n_vector_registers=n_vector_registers,
        has_fma=has_fma,
        has_f16=has_f16,
        has_f16c=has_f16c,
        caches=caches,
        probes_stack=os == "windows",
        call_conv=call_conv,
        os=os,
    )
