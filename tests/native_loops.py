"""Loop programs compiled and called directly through the ABI, for comparing them with the interpreter and with numpy.

Native(f).call("f", [x, y], [n], threads=2)
Lifted([f, g], level=0).call(f, [x, y], [n])        # what a program allocates as workspace is given to it
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from levels import runs_here
from pliant.codegen.llvm import Module, compile_module, generate
from pliant.dtype import DType, bool_, i64
from pliant.loop.buffer import Buffer
from pliant.loop.stmt import Alloc, For, Func, Stmt, Store, map_children, seq
from pliant.lower.host.lift_workspace import lift_workspace
from pliant.runtime.blob import load
from pliant.runtime.ctx import Ctx, Entry
from pliant.sym.expr import Const, Var
from pliant.sym.semantics import evaluate
from pliant.target import Target, target

POISONED = 4096  # elements; more are not filled


class Native:
    """Loop programs compiled for this machine."""

    def __init__(self, *funcs: Func, level: int = 1, to: str | Target = "native") -> None:
        assert runs_here(to), f"code for {to} is made and read here, not run"
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
        scalars = [slot(a, p.value.dtype) for p, a in zip(func.params, arguments, strict=True) if not isinstance(p.value, Buffer)]
        declared = [p.value for p in func.params if isinstance(p.value, Buffer)]
        assert all(a.flags.c_contiguous or b.strides is not None for a, b in zip(arrays, declared, strict=True)), "pointers are plain"
        assert len(dims) == len(func.symbols)
        buffers = (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
        slots = (ctypes.c_int64 * max(1, len(dims) + len(scalars)))(*dims, *scalars)
        entry = Entry(self.loaded.address(name))
        return int(entry(ctypes.addressof(ctx), ctypes.addressof(buffers), ctypes.addressof(slots)))


class Lifted(Native):
    """Loop programs whose workspace is lifted to parameters, and given to them at each call."""

    def __init__(self, funcs: Sequence[Func], level: int = 1, to: str | Target = "native") -> None:
        self.lifted = {f: lift_workspace(f) for f in funcs}
        super().__init__(*(g for g, _ in self.lifted.values()), level=level, to=to)

    def call(self, func: Func, arguments: Sequence[Any], dims: Sequence[int] = (), threads: int = 1) -> int:  # type: ignore[override]
        """Run a program on arrays in place; the code that it answers."""
        symbols = dict(zip(func.symbols, dims, strict=True))
        scratch = []
        for b in self.lifted[func][1]:
            shape = tuple(int(evaluate(e, symbols)) for e in b.shape)
            if b.dtype.bits < 8:
                shape = ((int(np.prod(shape)) * b.dtype.bits + 7) // 8,)
            scratch.append(aligned(shape, b.dtype.array_dtype()))
        return super().call(func.name, [*arguments, *scratch], dims, threads=threads)


def poisoned(func: Func, really: bool = True) -> Func:
    """The program with its memory on the stack and in registers filled with poison where it begins to be."""
    if not really:
        return func

    def fill(s: Stmt) -> Stmt:
        if not isinstance(s, Alloc) or s.buffer.scope not in ("stack", "register") or s.buffer.dtype.storage:
            return map_children(s, fill)
        b = s.buffer
        size = math.prod(int(e.value) for e in b.shape)  # type: ignore[attr-defined]
        if size > POISONED:
            return s
        wrong = Const(float("nan") if b.dtype.is_float else b.dtype is not bool_ and b.dtype.max - 84, b.dtype)
        vs = [Var(f"{b.name}_poison{d}") for d in range(b.ndim)]
        made: Stmt = Store(b, tuple(vs), wrong)
        for v, e in reversed(list(zip(vs, b.shape, strict=True))):
            made = For(v, Const(0, i64), e, "unroll" if b.scope == "register" else "serial", made)
        return seq(s, made)

    return func.with_(body=fill(func.body))


def run(func: Func, arguments: Sequence[Any], dims: Sequence[int] = (), **options: Any) -> None:
    """Compile a program and run it once; it must succeed."""
    threads = options.pop("threads", 1)
    assert Native(func, **options).call(func.name, arguments, dims, threads=threads) == 0


def set_threads(ctx: Ctx, threads: int) -> None:
    """Give a context what runs parallel loops."""
    from pliant.runtime.threads import launcher_for

    launcher = launcher_for(threads)
    ctx.parallel_for, ctx.pool = launcher.parallel_for, launcher.pool


def slot(value: Any, kind: DType) -> int:
    """A scalar argument as the i64 that the ABI passes: floats as the bits of the f64."""
    return int(struct.unpack("<q", struct.pack("<d", float(value)))[0]) if kind.is_float else int(i64.wrap(int(value)))


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays have equal bits; every NaN counts as the same."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype and a.shape == b.shape
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    bits = np.dtype(f"u{a.dtype.itemsize}")
    return bool(np.all((np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)) | (np.isnan(a) & np.isnan(b))))


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Memory aligned as a workspace is, full of bytes that are no sensible value."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.full(size + 64, 0xCD, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)
