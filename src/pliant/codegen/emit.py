"""LLVM IR text in, machine code out: the only place that runs LLVM.

Two promises are kept here for all code generators. *Floats are exact*: no fast-math, and a multiplication and an
addition are never contracted. *No undefined symbols*: LLVM likes to turn loops into calls of memset and memcpy; every
function is marked so that it does not. What LLVM can do only by a library call (fma without the instruction, f16
without f16c, frem, i128 on wasm) must not be in the IR; the linkers refuse it.

    code = emit_object(ir_text, target("native"))        # an ELF or wasm relocatable object

LLVM's vectorizers and unroller are off: loop programs say what is a vector and what is unrolled.
"""

from __future__ import annotations

import functools
import platform
import re
from typing import TYPE_CHECKING, Any

from ..support.errors import InternalError
from ..target import Target

if TYPE_CHECKING:
    import llvmlite.binding as llvm


def emit_object(ir_text: str, target: Target, level: int = 2) -> bytes:
    """The relocatable object of a module, optimized at `level` 0 (no passes at all) to 3."""
    module, machine = _optimized(ir_text, target, level)
    return bytes(machine.emit_object(module))


def emit_assembly(ir_text: str, target: Target, level: int = 2) -> str:
    """The assembly text of a module, for people and tests to read."""
    module, machine = _optimized(ir_text, target, level)
    return str(machine.emit_assembly(module))


def optimize(ir_text: str, target: Target, level: int = 2) -> str:
    """The module's IR text after LLVM's passes, for people and tests to read."""
    module, _ = _optimized(ir_text, target, level)
    return str(module)


def _optimized(ir_text: str, target: Target, level: int) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    import llvmlite.binding as llvm

    machine = _machine(target, level)
    try:
        # A context of its own: types named in one module must not be renamed because another has the same name.
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
    """Run LLVM's passes over a module.

    Each module has a pass builder of its own: running one registers callbacks of an object that llvmlite has on the stack, so that a second
    run of the same builder would call into memory that is gone (it was seen to write "Skipping pass …" to stderr).
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
    """Gives back the memory of passes. In llvmlite the method that does it stands behind an empty one of another base class."""
    from llvmlite.binding import ffi, newpassmanagers

    if type(manager)._dispose is ffi.ObjectRef._dispose:
        newpassmanagers.NewPassManager._dispose(manager)
        manager.detach()


@functools.cache
def _machine(target: Target, level: int) -> Any:
    """LLVM's machine for the target, with only the needed part of LLVM initialized."""
    import llvmlite.binding as llvm

    _initialize(native=target.arch == _HOST_ARCHES.get(platform.machine().lower()))
    features = ",".join(f"+{feature}" for feature in target.features)
    # A blob may lie anywhere; the memory of a wasm module is its own, so addresses there are plain numbers.
    reloc = "static" if target.kind == "wasm" else "pic"
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
    # Division of integers wider than a register is expanded in place instead of calling the compiler's library. This is
    # a setting of the whole process, which changes no result for others who use LLVM in it.
    llvm.set_option("pliant", "--expand-div-rem-bits=64")


# A function header: one line, with the brace at its end or alone on the next.
_DEFINE = re.compile(r"^([ \t]*define\b[^\n]*?)\s*\{[ \t]*$", re.MULTILINE)
_ANY_DEFINE = re.compile(r"^[ \t]*define\b", re.MULTILINE)


def _with_attributes(ir_text: str, target: Target) -> str:
    """The module with what holds for every function of ours written at each of them."""
    attributes = f'nounwind "no-builtins" "tune-cpu"="{target.tune}"'
    if target.probes_stack:
        attributes += ' "probe-stack"="inline-asm"'
    if target.call_conv == "win64cc":  # the system may write below the stack pointer
        attributes += " noredzone"
    text, count = _DEFINE.subn(rf"\1 {attributes} {{", ir_text)
    if count != len(_ANY_DEFINE.findall(ir_text)):
        raise InternalError("the header of a generated function is not on one line")
    return text
