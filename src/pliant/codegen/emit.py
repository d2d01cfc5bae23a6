"""Compiles LLVM IR text to machine code: the only module that runs LLVM.

It keeps two promises for all code generators. *Floats are exact*: no fast-math, no FMA contraction.
*No undefined symbols*: LLVM would turn loops into calls of memset and memcpy, so every function is marked "no-builtins".
Operations that LLVM implements by a library call (fma without the instruction, f16 without f16c, frem, i128 on wasm) must not
be in the IR; the linkers refuse them.

    code = emit_object(ir_text, target("native"))        # an ELF or wasm relocatable object

LLVM's vectorizers and unroller are off: schedules decide what is vectorized and unrolled.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

from ..support.errors import InternalError
from ..target import Target

if TYPE_CHECKING:
    import llvmlite.binding as llvm


def _after_fork() -> None:
    binding = sys.modules.get("llvmlite.binding.ffi")
    lock: Any = getattr(getattr(binding, "lib", None), "_lock", None)
    if hasattr(lock, "_lock"):
        lock._lock = threading.RLock()  # another thread of the parent may have held it, and does not exist in the child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def emit_object(ir_text: str, target: Target, level: int = 2) -> bytes:
    """Compile a module to a relocatable object; `level` is 0 (no passes at all) to 3."""
    module, machine = _optimized(ir_text, target, level)
    return bytes(machine.emit_object(module))


def emit_assembly(ir_text: str, target: Target, level: int = 2) -> str:
    """Compile a module to assembly text, for people and tests."""
    module, machine = _optimized(ir_text, target, level)
    return str(machine.emit_assembly(module))


def optimize(ir_text: str, target: Target, level: int = 2) -> str:
    """Return the module's IR text after LLVM's passes, for people and tests."""
    module, _ = _optimized(ir_text, target, level)
    return str(module)


def _optimized(ir_text: str, target: Target, level: int) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    import llvmlite.binding as llvm

    machine = _machine(target, level)
    try:
        # Each module has its own context: otherwise LLVM renames types of one module that another one also names.
        module = llvm.parse_assembly(_with_attributes(ir_text, target), llvm.create_context())
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise InternalError("LLVM refuses the generated code", facts=[str(error).strip()]) from error
    if level > 0:
        _run_passes(module, machine, level)
    return module, machine


def _run_passes(module: llvm.ModuleRef, machine: llvm.TargetMachine, level: int) -> None:
    """Run LLVM's passes over a module, in place, without vectorizing or unrolling loops: loop programs were scheduled before.

    Each module has its own pass builder: a run registers callbacks of an object that llvmlite has on the stack, so a second run of the same
    builder would call into freed memory (it was seen to write "Skipping pass …" to stderr).
    """
    import llvmlite.binding as llvm

    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.loop_interleaving = False
    options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    try:
        manager.run(module, builder)
    finally:
        _free(manager)
        builder.close()
        options.close()


def _free(manager: Any) -> None:
    """Free the memory of a pass manager. In llvmlite, an empty `_dispose` of another base class hides the method that does it."""
    from llvmlite.binding import ffi, newpassmanagers

    if type(manager)._dispose is ffi.ObjectRef._dispose:
        newpassmanagers.NewPassManager._dispose(manager)
        manager.detach()


@functools.cache
def _machine(target: Target, level: int) -> Any:
    """Return LLVM's target machine, cached; initializes only the part of LLVM that it needs."""
    import llvmlite.binding as llvm

    _initialize(native=target.arch == _HOST_ARCHES.get(platform.machine().lower()))
    features = ",".join(f"+{feature}" for feature in target.features)
    # A blob may be mapped anywhere; a wasm module owns its memory, so addresses are constants there.
    reloc = "static" if target.arch == "wasm32" else "pic"
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=features, opt=level, reloc=reloc, codemodel="small"
    )


_HOST_ARCHES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


@functools.cache
def _initialize(*, native: bool) -> None:
    import llvmlite.binding as llvm

    if native:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    # Expand division of integers wider than a register in place, instead of calling the compiler's library. This setting is
    # process-wide; it changes no results of other users of LLVM.
    llvm.set_option("pliant", "--expand-div-rem-bits=64")


# A function header: one line, with the brace at its end or alone on the next.
_DEFINE = re.compile(r"^([ \t]*define\b[^\n]*?)\s*\{[ \t]*$", re.MULTILINE)
_ANY_DEFINE = re.compile(r"^[ \t]*define\b", re.MULTILINE)


def _with_attributes(ir_text: str, target: Target) -> str:
    """Return the text with LLVM attributes (nounwind, no-builtins, tune-cpu, stack probes, noredzone) added to every function.

    Raises an InternalError if a function header is not on one line.
    """
    attributes = f'nounwind "no-builtins" "tune-cpu"="{target.tune}"'
    if target.probes_stack:
        attributes += ' "probe-stack"="inline-asm"'
    if target.call_conv == "win64cc":  # Windows may write below the stack pointer
        attributes += " noredzone"
    text, count = _DEFINE.subn(rf"\1 {attributes} {{", ir_text)
    if count != len(_ANY_DEFINE.findall(ir_text)):
        raise InternalError("the header of a generated function is not on one line")
    return text
