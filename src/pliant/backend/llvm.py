"""The LLVM backend for CPUs: native and cross compilation of programs to flat machine code."""

from __future__ import annotations

from importlib import import_module

from ..codegen.link_elf import link
from ..loop.lowering import Watch
from ..target import Target
from .base import Assembly, Backend, Exported
from .llvm_assembly import LlvmAssembly

# For each operating system the module of `codegen/` that writes its files, by its function `library_files(blob, machine, symbols, name)`.
SYSTEMS = {"linux": "write_elf", "android": "write_elf", "none": "write_elf", "windows": "write_pe", "macos": "write_macho"}


class Llvm(Backend):
    """The backend for x86-64, aarch64 and riscv64: LLVM emits ELF objects for every operating system, and our own linker joins them."""

    def assembly(self, target: Target, level: int = 2, watch: Watch | None = None) -> Assembly:
        """Return the assembly of a program that becomes a flat blob of machine code."""
        return LlvmAssembly(target, level, link, watch)

    def files(self, program: Exported) -> dict[str, bytes]:
        """Return libraries and objects in the format of the target's operating system, a C header, a description, and the constants."""
        # Imported here: a compile for this machine writes no files.
        from ..codegen.export_description import constant_places, data_files
        from ..codegen.export_header import header
        from ..codegen.serial_for import with_serial_for

        name, machine = program.name, program.target
        writer = import_module(f"..codegen.{SYSTEMS[machine.os]}", __package__)
        blob = with_serial_for(program.package.blob, machine)
        entries = {entry: f"{name}_{entry}" for entry in blob.exports}
        interface, constants = program.package.interface, program.constants
        libraries: dict[str, bytes] = writer.library_files(blob, machine, {entries[e]: at for e, at in blob.exports.items()}, name)
        declared = header(name, machine, interface, constant_places(constants)).encode()
        return {f"{name}.h": declared, **libraries, **data_files(name, machine, interface, constants, entries)}


BACKEND = Llvm()
