"""Compiles the runtime's own native code: the LLVM IR files of `runtime/native/`.

    thread_pool.ll     parallel loops on worker threads
    read_args.ll       arguments of a call, read from Python and numpy objects
    vectorcall.ll      the call of a compiled program as a builtin function of Python

It is compiled once per machine, together with the first program that is compiled there, and kept in the code cache. A process that
finds its program in the cache finds this code there too, and never loads LLVM.

    blob = native_blob()          # from the code cache; LLVM is loaded only if it is not there
    blob.exports                  # {"parallel_for": 0, "serial_for": …, "call": …}
"""

from __future__ import annotations

import contextlib
import platform
import sys
from pathlib import Path

from ..runtime import code_cache
from ..runtime.blob import Blob
from ..runtime.ctx import ERROR_VALUES
from ..runtime.records import CONSTANTS, LARGE, PAGE, RECORDS
from ..support.errors import ModelFileError, UnsupportedError
from .fields import with_fields

_FOLDER = Path(__file__).parents[1] / "runtime" / "native"  # not importlib.resources, whose import takes longer than all of this
_FILES = ("thread_pool.ll", "read_args.ll", "vectorcall.ll")  # parts of one module: a later one calls functions of an earlier one
EXPORTS = ("parallel_for", "serial_for", "worker_loop", "ticks", "call", "take_frame", "give_frame", "allocate", "release")

_TARGETS = {"x86_64": "llvm:x86-64", "aarch64": "llvm:generic"}  # the baseline CPU, so that the code runs on every such machine
# A steady cycle counter, and the hint that a spinning thread gives its core, with its declaration.
_INTRINSICS = {
    "x86_64": {
        "counter": "@llvm.readcyclecounter",
        "pause": "@llvm.x86.sse2.pause()",
        "pause_declaration": "@llvm.x86.sse2.pause()",
    },
    "aarch64": {
        "counter": "@llvm.readsteadycounter",  # the cycle counter is not readable from user mode
        "pause": "@llvm.aarch64.hint(i32 1)",
        "pause_declaration": "@llvm.aarch64.hint(i32)",
    },
}


def native_text(machine: str, windows: bool) -> str:
    """Return the LLVM IR for `machine` ("x86_64" or "aarch64"), with the calling convention of its system, Windows or another."""
    # On Windows, Python calls this code and this code calls the system with the Win64 convention.
    convention = "win64cc" if windows and machine == "x86_64" else ""
    numbers = {"large": LARGE, "page": PAGE, "error_words": 2 + ERROR_VALUES}
    text = "".join((_FOLDER / name).read_text(encoding="utf-8") for name in _FILES)
    return with_fields(text, RECORDS, {**CONSTANTS, **numbers, **_INTRINSICS[machine], "cc": convention})


def compile_native(machine: str, windows: bool) -> Blob:
    """Compile the runtime's native code (thread pool, call entry) with LLVM, for any machine of this architecture.

    `windows` selects the calling convention.
    """
    from ..target import target
    from .emit import emit_object
    from .link_elf import link

    # Without LLVM's passes: they would take ten times as long, in the first call on a machine, and gain 30 ns for a launch.
    return link(emit_object(native_text(machine, windows), target(_TARGETS[machine]), level=0), EXPORTS)


def native_blob() -> Blob:
    """Return the compiled native code for this machine, from the code cache; compiles it and puts it there if it is missing.

    Raises an UnsupportedError for machines other than 64-bit x86 and ARM.
    """
    name = platform.machine()
    machine = {"AMD64": "x86_64", "arm64": "aarch64", "ARM64": "aarch64"}.get(name, name)
    if machine not in _TARGETS or sys.maxsize < 2**32:
        raise UnsupportedError(f"machines of kind `{name}` are not supported", facts=[f"supported: {', '.join(_TARGETS)}"])
    windows = sys.platform == "win32"
    key = f"native code\0{sys.platform}\0{machine}\0{native_text(machine, windows)}".encode()
    cached = code_cache.get(key)
    if cached is not None:
        with contextlib.suppress(ModelFileError):  # written by a version with another blob format
            return Blob.from_bytes(cached)
    blob = compile_native(machine, windows)
    code_cache.put(key, blob.to_bytes())
    return blob
