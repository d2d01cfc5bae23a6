"""The native code of the runtime itself: the way into a program (enter.py, call.py) and the thread pool (pool.py).

It is compiled once for a machine, with the first program that is compiled there, so that a process which finds its program in the
cache finds this code there too and never loads LLVM.

    blob = native_blob()          # from the code cache; LLVM is loaded only if it is not there
    blob.exports                  # {"parallel_for": 0, "serial_for": …, "call": …}
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
import re
import sys

from ..runtime import code_cache
from ..runtime.blob import Blob
from ..runtime.records import LARGE, PAGE, RECORDS, Plan
from ..support.errors import ModelFileError, UnsupportedError
from . import call, enter, pool
from .fields import with_fields

EXPORTS = (*pool.EXPORTS, *call.EXPORTS)
_TARGETS = {"x86_64": "llvm:x86-64", "aarch64": "llvm:generic"}  # what every such machine is


def native_text(machine: str, windows: bool) -> str:
    """The LLVM IR for a kind of machine."""
    # On Windows the code is called with, and calls, functions of the Win64 convention.
    cc = "win64cc " if windows and machine == "x86_64" else ""
    numbers = {"PLAN": f"[{ctypes.sizeof(Plan)} x i8]", "LARGE": str(LARGE), "PAGE": str(PAGE)}
    entry = re.sub("|".join(numbers), lambda m: numbers[m[0]], (enter.TEXT + call.TEXT).replace("CC ", cc))
    return pool.pool_text(machine, cc) + with_fields(entry, RECORDS)


def compile_native(machine: str, windows: bool) -> Blob:
    """The code compiled by LLVM for any machine of its kind."""
    from ..target import target
    from .emit import emit_object
    from .link_elf import link

    # Without LLVM's passes: they would take ten times as long, in the first call on a machine, and gain 30 ns for a launch.
    return link(emit_object(native_text(machine, windows), target(_TARGETS[machine]), level=0), EXPORTS)


def native_blob() -> Blob:
    """The compiled code for this machine, from the code cache if it is there."""
    name = platform.machine()
    machine = {"AMD64": "x86_64", "arm64": "aarch64", "ARM64": "aarch64"}.get(name, name)
    if machine not in _TARGETS or sys.maxsize < 2**32:
        raise UnsupportedError(f"machines of kind `{name}` are not supported", facts=[f"supported: {', '.join(_TARGETS)}"])
    windows = sys.platform == "win32"
    key = f"native code\0{sys.platform}\0{machine}\0{native_text(machine, windows)}".encode()
    kept = code_cache.get(key)
    if kept is not None:
        with contextlib.suppress(ModelFileError):  # a form of an older version
            return Blob.from_bytes(kept)
    blob = compile_native(machine, windows)
    code_cache.put(key, blob.to_bytes())
    return blob
