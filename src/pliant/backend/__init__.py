"""Backends: code generation for each kind of target, behind one interface.

    backend = backend_of(target("wasm+simd128"))
    func, why = backend.schedule(func, machine)          # the default rules of that kind of target
    with backend.assembly(machine) as assembly:
        assembly.kernel(func)                            # as soon as a kernel is scheduled
        code = assembly.finish((prepare, size, run))     # the host program: code.blob is the part of an artifact
    files = backend.files(exported)                      # what `pliant.export` writes

The pipeline talks to a `Backend` (base.py) and to nothing else that knows about machine code. The backend of a kind of target is the object
`BACKEND` of the module of that name here; the kinds are those of `KINDS` in `target/names.py` (docs/design/0022-targets.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..target import Target

if TYPE_CHECKING:
    from .base import Backend


def backend_of(target: Target) -> Backend:
    """Return the backend that generates code for a target; its module is imported when it is first needed."""
    backend: Backend = import_module(f".{target.kind}", __name__).BACKEND
    return backend
