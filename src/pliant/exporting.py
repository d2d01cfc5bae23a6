"""`pliant.export`: writes a program as files that run without Pliant, for any target.

    pliant.export(model, "aarch64@android", "out/")      # libmodel.so, model.o, model.h, model.json, model.bin
    pliant.export(model, "wasm+simd128", "out/")         # model.wasm, model.json, model.bin
    pliant.export(model, "c:cortex-m7", "out/")          # model.c, model.h

The weights are in one file (`.bin`), already packed in the layouts that the code reads. The load-time computations on weights run here,
with the kernels that are scheduled for the target, so that the results have the same bits as on the target. `.json` describes the program
(docs/targets.md): arguments, results, dims, and the offset of each constant.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .api import program_of
from .backend import backend_of
from .backend.base import Exported
from .loop.stmt import Func
from .lower.host.argument_checks import shapes_func
from .pipeline import compile_as_far_as, compile_program
from .program import Program
from .runtime.loading import constants_of
from .support.errors import ModelFileError, UnsupportedError
from .support.source import caller_span
from .target import Target
from .target import target as find_target


def export(
    src: Any, target: str | Target, path: str | os.PathLike[str], *, dims: Mapping[str, Any] | None = None, name: str | None = None
) -> list[Path]:
    """Writes a program as files for a target into the folder `path`; returns the files. `name` is the base name of files and functions.

    `src` is what `pliant.compile` takes, `target` a name of docs/targets.md or a Target. `dims` sets, narrows or unifies dims first.
    """
    machine = find_target(target)
    program = program_of(src)
    if dims:
        program = program.with_dims(dims)
    return _write(_files(program, machine, identifier(name or program.entry.name)), Path(path))


def export_with_chat(program: Program, path: str | os.PathLike[str], name: str, chat: bytes) -> list[Path]:
    """Writes a decoder of a language model as a page that chats; `chat` is what the page needs beside the program (`llm/page.py`)."""
    return _write(_files(program, find_target("web"), identifier(name), chat), Path(path))


def _files(program: Program, machine: Target, name: str, chat: bytes | None = None) -> Mapping[str, bytes]:
    """Compiles a program for a target and its variants; returns the files."""
    backend = backend_of(machine)
    variants = tuple(exported(program, other, name + suffix) for suffix, other in backend.variants(machine).items())
    return backend.files(replace(exported(program, machine, name), variants=variants, chat=chat))


def identifier(name: str) -> str:
    """Returns the name as a valid C identifier and file name: other characters become `_`."""
    text = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return text if re.match(r"[A-Za-z_]", text) else f"_{text}"


def exported(program: Program, machine: Target, name: str) -> Exported:
    """Compiles a program for a target; computes its constants on this machine. Raises if it calls functions outside of compiled code."""
    host: tuple[Func, ...] = ()
    if backend_of(machine).writes_host:
        state = compile_as_far_as("emit", program, machine, load_here=True)
        assert state.package is not None and state.host is not None
        host = shapes_func(state.host.layout), state.host.prepare, state.host.size, state.host.run
        package, literals = state.package, state.constants
    else:
        package, literals = compile_program(program, machine, load_here=True), program.constants
    if package.interface.calls:
        call = package.interface.calls[0]
        raise UnsupportedError(
            f"the program calls `{call.name}`, a function outside of compiled code, which no export can hold",
            where=caller_span(),
            help="write it with operators or as a @kernel, or compile the program where it runs",
        )
    arrays = constants_of(package, literals)
    return Exported(name, machine, package, tuple(map(np.ascontiguousarray, arrays)), host)


def _write(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Writes files into a folder, each to a temporary file that is then renamed, so that no file is ever incomplete. Returns their paths.

    Raises ModelFileError if the folder cannot be written.
    """
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
