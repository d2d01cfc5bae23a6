"""`pliant.export`: a program as files that are used without Pliant, for any target.

    pliant.export(model, "aarch64@android", "out/")      # libmodel.so, model.o, model.h, model.json, model.bin
    pliant.export(model, "wasm+simd128", "out/")         # model.wasm, model.json, model.bin
    pliant.export(model, "c:cortex-m7", "out/")          # model.c, model.h

The weights are in one file (`.bin`), already in the layouts that the code reads: what a program computes once from its weights is
computed here, by the kernels that are scheduled for the target, so that it has the bits that it would have there. `.json` describes the
program (docs/targets.md): arguments, results, dims, where each constant lies.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .api import program_of
from .pipeline import compile_program
from .program import Program
from .runtime.interface import Interface
from .runtime.loading import all_literals
from .runtime.package import ENTRIES, Package
from .runtime.slot import Layout
from .support.errors import ModelFileError, UnsupportedError
from .support.source import caller_span
from .target import Kind, Target
from .target import target as find_target

# Who makes the files of each kind of target: a function of the program, the target and the name that files and functions get.
Writer = Callable[[Program, Target, str], Mapping[str, bytes]]
WRITERS: dict[Kind, str] = {"llvm": ".exporting:library_files", "wasm": ".exporting:module_files", "c": ".c_export:c_source"}
_ALIGNMENT = 64  # of each constant, as in compiled programs


def export(
    src: Any, target: str | Target, path: str | os.PathLike[str], *, dims: Mapping[str, Any] | None = None, name: str | None = None
) -> list[Path]:
    """Writes a program as files for a target into the folder `path`, and returns them; `name` is what files and functions are called by."""
    machine = find_target(target)
    program = program_of(src)
    if dims:
        program = program.with_dims(dims)
    module, function = WRITERS[machine.kind].split(":")
    writer: Writer = getattr(import_module(module, __package__), function)
    files = writer(program, machine, identifier(name or program.entry.name))
    return _write(files, Path(path))


def identifier(name: str) -> str:
    """A name as C and file systems take it."""
    text = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return text if re.match(r"[A-Za-z_]", text) else f"_{text}"


def library_files(program: Program, machine: Target, name: str) -> dict[str, bytes]:
    """A shared library and an object of machine code, with a C header."""
    from .codegen.export_header import header
    from .codegen.serial_for import with_serial_for
    from .codegen.write_elf import object_file, shared_library

    if machine.os in ("macos", "windows"):
        raise UnsupportedError(
            f"libraries for {machine.os} are not written yet: export makes ELF files",
            where=caller_span(),
            help=f"name a system that has them: `{machine.name.partition('@')[0]}@linux`, or use f.save(path, targets=[…])",
        )
    package, constants = _compiled(program, machine)
    blob = with_serial_for(package.blob, machine)
    symbols = {f"{name}_{entry}": at for entry, at in blob.exports.items()}
    described = _described(package, machine, name, constants, {entry: f"{name}_{entry}" for entry in blob.exports})
    files = {f"{name}.h": header(name, machine, package.interface, described["constants"]).encode()}
    if machine.os != "none":
        files[f"lib{name}.so"] = shared_library(blob, machine.arch, symbols, f"lib{name}.so")
    files[f"{name}.o"] = object_file(blob, machine.arch, symbols)
    return _with_data(files, name, described, constants)


def module_files(program: Program, machine: Target, name: str) -> dict[str, bytes]:
    """One WebAssembly module that imports nothing."""
    package, constants = _compiled(program, machine)
    described = _described(package, machine, name, constants, {entry: entry for entry in package.blob.exports})
    return _with_data({f"{name}.wasm": package.blob.code}, name, described, constants)


def _compiled(program: Program, machine: Target) -> tuple[Package, list[Any]]:
    """The package of a program, and the bytes of its constants, computed on this machine."""
    package = compile_program(program, machine, load_here=True)
    if package.interface.calls:
        call = package.interface.calls[0]
        raise UnsupportedError(
            f"the program calls `{call.name}`, a function outside of compiled code, which no export can hold",
            where=caller_span(),
            help="write it with operators or as a @kernel, or compile the program where it runs",
        )
    arrays = package.interface.memory(all_literals(package, program.constants))
    return package, [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays]


def _described(package: Package, machine: Target, name: str, constants: list[Any], entries: Mapping[str, str]) -> dict[str, Any]:
    """What a caller without Pliant must know, as JSON has it."""
    interface, layout = package.interface, Layout(package.interface)
    record = json.loads(interface._replace(rules=(), kernels=(), constants=()).to_json())
    offsets, end = [], 0
    for array in constants:
        offsets.append({"offset": end, "size": int(array.nbytes)})
        end += array.nbytes + -array.nbytes % _ALIGNMENT
    dims = {"symbols": layout.b, "outputs": layout.c, "workspace": layout.d, "counts": layout.e, "total": layout.total}
    return {
        "format": "pliant-export",
        "version": 1,
        "name": name,
        "target": {"name": machine.name, "arch": machine.arch, "os": machine.os, "features": list(machine.features)},
        "pointer_bytes": machine.pointer_bits // 8,
        "entries": {entry: entries[entry] for entry in (*ENTRIES, *(e for e in entries if e not in ENTRIES))},
        "arguments": _arguments(interface),
        "outputs": record["outputs"],
        "symbols": record["symbols"],
        "counts": record["counts"],
        "checks": record["sites"],
        "dims": dims,
        "buffers": layout.buffers,
        "workspace": {"bytes": interface.workspace, "max": interface.workspace_max},
        "constants": offsets,
        "constants_bytes": end,
        "constants_file": f"{name}.bin" if constants else None,
    }


def _arguments(interface: Interface) -> list[dict[str, Any]]:
    """The arguments, each with its place in `dims` (a tensor's shape, then its strides) and in `buffers`."""
    layout = Layout(interface)
    at, buffer, scalar = 0, 0, layout.scalars
    found: list[dict[str, Any]] = []
    for i in interface.inputs:
        record: dict[str, Any] = {"name": i.name, "kind": i.kind, "dtype": i.dtype}
        if i.kind == "tensor":
            found.append(record | {"shape": list(i.shape), "strides": list(i.strides), "state": i.consumed, "buffer": buffer, "dims": at})
            at, buffer = at + 2 * len(i.shape), buffer + 1
        else:
            found.append(record | {"dims": scalar})
            scalar += 1
    return found


def _with_data(files: dict[str, bytes], name: str, described: dict[str, Any], constants: list[Any]) -> dict[str, bytes]:
    """The files with those that all targets have."""
    files[f"{name}.json"] = (json.dumps(described, indent=1) + "\n").encode()
    if constants:
        files[f"{name}.bin"] = b"".join(part for a in constants for part in (a.tobytes(), bytes(-a.nbytes % _ALIGNMENT)))
    return files


def _write(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Writes files into a folder, each under another name first, so that none is ever half there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                os.chmod(temporary, 0o644)
                os.replace(temporary, folder / name)
            except BaseException:
                os.unlink(temporary)
                raise
    except OSError as problem:
        raise ModelFileError(f"cannot write to {folder}: {problem.strerror or problem}") from None
    return [folder / name for name in files]
