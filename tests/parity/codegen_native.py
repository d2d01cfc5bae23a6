"""Compiling loop programs and running them on numpy arrays, for the tests of code generators."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from pliant.codegen.llvm import Module, compile_module, generate
from pliant.loop.buffer import Buffer
from pliant.loop.stmt import Func
from pliant.runtime.blob import load
from pliant.runtime.ctx import Ctx, Entry
from pliant.target import Target, target


class Native:
    """Loop programs compiled for this machine."""

    def __init__(self, *funcs: Func, level: int = 1, to: str | Target = "native") -> None:
        self.funcs = {f.name: f for f in funcs}
        self.module: Module = generate(funcs, target(to))
        self.loaded = load(compile_module(self.module, level))
        self.ctx = Ctx()
        self.cancel = ctypes.c_int32(0)
        self.profile: int | None = None

    def call(self, name: str, arguments: Sequence[Any], dims: Sequence[int] = (), *, threads: int = 1, workspace: int = 0) -> int:
        """Run a program on arrays and numbers, one for each parameter; the code that it answers."""
        func = self.funcs[name]
        self.ctx = ctx = Ctx()
        ctx.cancel = ctypes.addressof(self.cancel)
        ctx.profile = self.profile
        set_threads(ctx, threads)
        memory = np.zeros(workspace + 64, np.uint8)
        ctx.workspace, ctx.workspace_size = memory.ctypes.data + -memory.ctypes.data % 64, workspace
        arrays = [a for p, a in zip(func.params, arguments, strict=True) if isinstance(p.value, Buffer)]
        scalars = [slot(a) for p, a in zip(func.params, arguments, strict=True) if not isinstance(p.value, Buffer)]
        assert all(a.flags.c_contiguous for a in arrays), "the ABI passes plain pointers"
        assert len(dims) == len(func.symbols)
        buffers = (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
        slots = (ctypes.c_int64 * max(1, len(dims) + len(scalars)))(*dims, *scalars)
        entry = Entry(self.loaded.address(name))
        return int(entry(ctypes.addressof(ctx), ctypes.addressof(buffers), ctypes.addressof(slots)))


def run(func: Func, arguments: Sequence[Any], dims: Sequence[int] = (), **options: Any) -> None:
    """Compile a program and run it once; it must succeed."""
    threads = options.pop("threads", 1)
    assert Native(func, **options).call(func.name, arguments, dims, threads=threads) == 0


def set_threads(ctx: Ctx, threads: int) -> None:
    """Give a context what runs parallel loops."""
    from pliant.runtime.threads import launcher_for

    launcher = launcher_for(threads)
    ctx.parallel_for, ctx.pool = launcher.parallel_for, launcher.pool


def slot(value: Any) -> int:
    """A scalar argument as the i64 that the ABI passes: floats as the bits of the f64."""
    kind = np.asarray(value).dtype
    if kind.kind in "fV":
        return int(struct.unpack("<q", struct.pack("<d", float(value)))[0])
    return int(np.int64(np.asarray(value).astype(np.int64)))


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays have equal bits; every NaN counts as the same."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype and a.shape == b.shape
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    bits = np.dtype(f"u{a.dtype.itemsize}")
    return bool(np.all((np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)) | (np.isnan(a) & np.isnan(b))))
