"""The code of one kernel apart from the program that calls it, as the kernel cache keeps it.

A large kernel is an object of its own. A small one is LLVM text, which joins a module with others: a module has a fixed cost.
"""

from __future__ import annotations

from ..support.record import dataclass


@dataclass(frozen=True, slots=True)
class KernelCode:
    """The code of a kernel: an object file in `object`, or, if that is empty, LLVM `functions` with the `declarations` that they need."""

    symbol: str
    signature: str  # its parameter types in LLVM text
    parallel: bool  # True if it may call `parallel_for`
    functions: tuple[str, ...] = ()
    declarations: tuple[tuple[str, str], ...] = ()  # name, line
    object: bytes = b""
