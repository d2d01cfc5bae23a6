"""Backends: how programs become code for each kind of target.

    backend = backend_of(target("wasm+simd128"))
    func, why = backend.schedule(func, machine)          # the default rules of that kind of target
    with backend.assembly(machine) as assembly:
        assembly.kernel(func)                            # as soon as a kernel is scheduled
        code = assembly.finish((prepare, size, run))     # the host program: code.blob is the part of an artifact

The pipeline talks to a `Backend` (base.py) and to nothing else that knows about machine code. A new one is a module here, a row in
`BACKENDS`, and the record of its targets in `target/` (docs/design/0022-targets.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..target import Kind, Target

if TYPE_CHECKING:
    from .base import Backend

# The backend object of each kind of target, imported when it is first needed.
BACKENDS: dict[Kind, str] = {"llvm": ".elf:ELF", "wasm": ".wasm:WASM", "c": ".c:C_SOURCE"}


def backend_of(target: Target) -> Backend:
    """The backend that makes code for a target."""
    module, name = BACKENDS[target.kind].split(":")
    backend: Backend = getattr(import_module(module, __name__), name)
    return backend
