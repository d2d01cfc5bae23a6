"""The native code of the runtime itself, compiled once for a machine.

It has two parts, because compiling both takes LLVM some fifteen milliseconds: `entry`, the way into a program (enter.py, call.py), is
needed by every executable; `pool` (pool.py) by the first call that may run a parallel loop.

    blob = native_blob("entry")          # from the code cache; LLVM is loaded only if it is not there
    blob.exports                         # {"call": 0, "take_frame": …}
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
import sys

from ..runtime import cache
from ..runtime.blob import Blob
from ..runtime.records import RECORDS, Plan
from ..support.errors import ModelFileError, UnsupportedError
from . import call, enter, pool
from .fields import with_fields

EXPORTS = {"entry": call.EXPORTS, "pool": pool.EXPORTS}
_TARGETS = {"x86_64": "llvm:x86-64", "aarch64": "llvm:generic"}  # what every such machine is


def native_text(part: str, machine: str, windows: bool) -> str:
    """The LLVM IR of a part for a kind of machine."""
    # On Windows the code is called with, and calls, functions of the Win64 convention.
    cc = "win64cc " if windows and machine == "x86_64" else ""
    if part == "pool":
        return pool.pool_text(machine, cc)
    text = (enter.TEXT + call.TEXT).replace("CC ", cc).replace("PLAN", f"[{ctypes.sizeof(Plan)} x i8]")
    return with_fields(text, RECORDS)


def compile_native(part: str, machine: str, windows: bool) -> Blob:
    """A part compiled by LLVM for any machine of its kind."""
    from ..target import target
    from .emit import emit_object
    from .link_elf import link

    # Without LLVM's passes: they would take ten times as long, in the first call on a machine, and gain 30 ns for a launch.
    return link(emit_object(native_text(part, machine, windows), target(_TARGETS[machine]), level=0), EXPORTS[part])


def native_blob(part: str) -> Blob:
    """The compiled part for this machine, from the code cache if it is there."""
    name = platform.machine()
    machine = {"AMD64": "x86_64", "arm64": "aarch64", "ARM64": "aarch64"}.get(name, name)
    if machine not in _TARGETS or sys.maxsize < 2**32:
        raise UnsupportedError(f"machines of kind `{name}` are not supported", facts=[f"supported: {', '.join(_TARGETS)}"])
    windows = sys.platform == "win32"
    key = f"native code\0{sys.platform}\0{machine}\0{native_text(part, machine, windows)}".encode()
    kept = cache.get(key)
    if kept is not None:
        with contextlib.suppress(ModelFileError):  # a form of an older version
            return Blob.from_bytes(kept)
    blob = compile_native(part, machine, windows)
    cache.put(key, blob.to_bytes())
    return blob
