"""Loop programs and whole programs as C, built by the system's compiler, for comparing them with the interpreter and with LLVM's code.

C([f, g]).call(f, [x, y], [n])                     # through the ABI
Model(mlp).compare({"x": x})                        # through the function of the header, by name
"""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from native_loops import aligned, slot
from pliant.api import program_of
from pliant.backend import backend_of
from pliant.backend.c import BACKEND as C_BACKEND
from pliant.codegen.c_render import CModule, render
from pliant.dtype import ALL
from pliant.exporting import exported
from pliant.graph import node as g
from pliant.interp.memory import contiguous
from pliant.loop.buffer import Buffer
from pliant.loop.stmt import Func
from pliant.lower.host.host import HostProgram
from pliant.lower.host.lift_workspace import lift_workspace
from pliant.pipeline import CODE, compile_as_far_as
from pliant.program import Program
from pliant.runtime.ctx import Ctx, Entry
from pliant.runtime.loading import open_package
from pliant.sym.semantics import evaluate
from pliant.target import Target, target

Array = np.ndarray[Any, Any]
FLAGS = ("-std=c99", "-pedantic", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
# Random programs compare what is always equal, and write what nobody reads; compilers warn of that.
RANDOM = ("-Wno-type-limits", "-Wno-tautological-compare", "-Wno-unused-but-set-variable")


def compiler() -> str:
    """The system's C compiler; the test is skipped where there is none."""
    found = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not found:
        pytest.skip("builds C code, and there is no C compiler on this machine")
    return found


def build(files: dict[str, bytes], *flags: str) -> ctypes.CDLL:
    """A shared library of C files, which must compile without a warning and need nobody's functions."""
    cc = compiler()
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            Path(folder, name).write_bytes(content)
        sources = [name for name in files if name.endswith(".c")]
        library = Path(folder, "code.so")
        command = [cc, *FLAGS, *flags, *sources, "-o", str(library)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:4000]
        return ctypes.CDLL(str(library))


class C:
    """Loop programs in C; what they allocate as workspace is given to them at each call."""

    def __init__(self, funcs: Sequence[Func], *flags: str) -> None:
        compiler()
        self.lifted = {f: lift_workspace(f) for f in funcs}
        self.module: CModule = render([f for f, _ in self.lifted.values()])
        self.library = build({"code.c": self.module.text.encode()}, *flags)

    def call(self, func: Func, arguments: Sequence[Any], dims: Sequence[int] = ()) -> int:
        """Run a program on arrays, in place; the code that it answers."""
        lifted, scratch = self.lifted[func]
        symbols = dict(zip(func.symbols, dims, strict=True))
        arrays = [a for p, a in zip(func.params, arguments, strict=True) if isinstance(p.value, Buffer)]
        for b in scratch:
            shape = tuple(int(evaluate(e, symbols)) for e in b.shape)
            if b.dtype.bits < 8:
                shape = ((math.prod(shape) * b.dtype.bits + 7) // 8,)
            arrays.append(aligned(shape, b.dtype.array_dtype()))
        scalars = [slot(a, p.value.dtype) for p, a in zip(func.params, arguments, strict=True) if not isinstance(p.value, Buffer)]
        return enter(self.library, lifted.name, arrays, np.array([*dims, *scalars, 0], np.int64))


def enter(library: ctypes.CDLL, name: str, arrays: Sequence[Array], dims: Array, workspace: int = 0) -> int:
    """Call a function of the ABI; the code that it answers."""
    ctx, cancel = Ctx(), ctypes.c_int32(0)
    ctx.cancel = ctypes.addressof(cancel)
    memory = aligned((workspace,), np.dtype(np.uint8))
    ctx.workspace, ctx.workspace_size = memory.ctypes.data, workspace
    buffers = (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
    entry = Entry(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0)
    return int(entry(ctypes.addressof(ctx), ctypes.addressof(buffers), dims.ctypes.data))


def run_host(host: HostProgram, library: ctypes.CDLL, arguments: Sequence[Array], suffix: str) -> list[Array]:
    """The results of a host program over tensors whose functions have names with a suffix; those of run-time dims have all their memory."""
    layout = host.layout
    tensors = dict(zip(layout.params, map(np.ascontiguousarray, arguments), strict=True))
    dims = np.zeros(layout.at_counts + len(layout.counts), np.int64)
    for p, at in layout.arguments():
        assert isinstance(p.annotation, g.Tensor)
        shape = tensors[p].shape
        if p.annotation.dtype.bits < 8:
            shape = (*shape[:-1], shape[-1] * p.annotation.dtype.per_byte)
        dims[at : at + 2 * len(shape)] = (*shape, *contiguous(shape))
    assert enter(library, f"prepare{suffix}", [], dims) == 0
    results, at = [], layout.at_outputs
    for o in host.outputs:
        kind, rank = o.annotation.dtype, len(o.annotation.shape)
        results.append(np.full(kind.array_shape(tuple(map(int, dims[at : at + rank]))), 77, kind.array_dtype()))
        at += rank
    constants = [np.ascontiguousarray(c.array) for c in host.constants]
    ordered = [tensors[p] for p, _ in layout.arguments()]
    assert enter(library, f"run{suffix}", [*ordered, *results, *constants], dims, int(dims[layout.at_workspace])) == 0
    return results


def c_source(program: Program, machine: Target, name: str, inside: bool | None = None) -> dict[str, bytes]:
    """The files that `pliant.export` writes; weights are `inside` of the source unless they are large."""
    return C_BACKEND.files(exported(program, machine, name), inside)


class Model:
    """A whole program scheduled for a C target: as C, and the same scheduled program through LLVM."""

    def __init__(self, src: Any, to: str = "c", inside: bool | None = None, flags: Sequence[str] = ()) -> None:
        compiler()
        program = program_of(src)
        self.files = c_source(program, target(to), "model", inside)
        self.library = build(self.files, *flags)
        # The kernels that are scheduled for the C target, as code for this machine.
        state = compile_as_far_as("host", program, target(to), load_here=True)
        package = CODE[-1].run(replace(state, assembly=backend_of(target("native")).assembly(target("native")))).package
        assert package is not None
        self.interface = package.interface
        self.native = open_package(package, program.constants)

    def arena_bytes(self, **dims: int) -> int:
        """What `model_arena_bytes` answers."""
        ask = self.library.model_arena_bytes
        ask.restype = ctypes.c_int64
        return int(ask(*(ctypes.c_int64(dims[s.name]) for s in self.interface.symbols)))

    def status_text(self, status: int) -> str:
        """What `model_status_text` answers."""
        self.library.model_status_text.restype = ctypes.c_char_p
        return str(self.library.model_status_text(ctypes.c_int32(status)).decode())

    def run(self, arguments: dict[str, Any], results: Sequence[Array], dims: dict[str, int], arena: int | None = None) -> int:
        """Call the function of the header; results are written, state is updated in place; its status."""
        given: list[Any] = []
        for x in self.interface.inputs:
            if x.kind == "tensor":
                assert arguments[x.name].flags.c_contiguous
                given.append(ctypes.c_void_p(arguments[x.name].ctypes.data))
            else:
                kind = ALL[x.dtype]
                number = ctypes.c_float if kind.name == "f32" else ctypes.c_bool if kind.name == "bool" else ctypes.c_int64
                given.append(number(arguments[x.name]))
        given += [ctypes.c_void_p(r.ctypes.data) for r in results]
        given += [ctypes.c_int64(dims[s.name]) for s in self.interface.symbols]
        weights = np.frombuffer(self.files.get("model.bin", b""), np.uint8).copy()
        if "model.bin" in self.files:
            given.append(ctypes.c_void_p(weights.ctypes.data))
        memory = aligned((self.arena_bytes(**dims) if arena is None else arena,), np.dtype(np.uint8))
        return int(self.library.model(*given, ctypes.c_void_p(memory.ctypes.data), ctypes.c_int64(memory.nbytes)))

    def compare(self, arguments: dict[str, Any]) -> tuple[Array, ...]:
        """Run both on copies of the arguments: results and updated state have equal bits, NaN aside; the results of C."""
        ours, theirs = ({k: np.array(a) if isinstance(a, np.ndarray) else a for k, a in arguments.items()} for _ in range(2))
        dims = self.native.contract.check({x.name: ours[x.name].shape for x in self.interface.inputs if x.kind == "tensor"})
        wanted = self.native.run(theirs)
        results = {o.name: np.full_like(wanted[o.name], 77) for o in self.interface.outputs if o.alias is None}
        assert self.run(ours, list(results.values()), dims) == 0
        for name, a in results.items():
            assert np.array_equal(a, wanted[name], equal_nan=a.dtype.kind == "f"), name
        for x in self.interface.inputs:
            if x.consumed:
                assert np.array_equal(ours[x.name], theirs[x.name]), x.name
        return tuple(results.values())
