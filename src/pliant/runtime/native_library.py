"""Maps the runtime's own native code (`runtime/native/*.ll`, compiled) once for the process.

native().address("parallel_for")
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from .blob import Loaded

_T = TypeVar("_T")
_loaded: Loaded | None = None
_lock = threading.Lock()


def native() -> Loaded:
    """Return the mapped code. It comes from the code cache if it is there, so LLVM is needed once per machine."""
    global _loaded
    if _loaded is None:
        from ..codegen.native_code import native_blob
        from .blob import load

        with _lock:
            if _loaded is None:
                _loaded = immortal(load(native_blob()))
    return _loaded


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # a thread of the parent may have held the old one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def immortal(value: _T) -> _T:
    """Return the value with one reference too many, so that it is never freed: worker threads read it while the interpreter shuts down."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    return value
