"""Loop programs compiled and called directly through the ABI, for comparing them with the interpreter.

native = Native([f, g], level=0); native.call(f, [x, y], [n], threads=2)
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from pliant.codegen.llvm import compile_module, generate
from pliant.dtype import i64
from pliant.loop.buffer import Buffer
from pliant.loop.stmt import Func
from pliant.lower.lift_workspace import lift_workspace
from pliant.runtime.blob import load
from pliant.runtime.ctx import Ctx, Entry
from pliant.runtime.threads import launcher_for
from pliant.sym.semantics import evaluate
from pliant.target import target


class Native:
    """Some programs as native code of this machine."""

    def __init__(self, funcs: Sequence[Func], level: int) -> None:
        lifted = {f: lift_workspace(f) for f in funcs}
        self.scratch = {f: buffers for f, (_, buffers) in lifted.items()}
        self.code = load(compile_module(generate([g for g, _ in lifted.values()], target("native")), level))

    def call(self, func: Func, arguments: Sequence[Any], dims: Sequence[int], threads: int = 1) -> int:
        """Runs a program on arrays in place; answers the code that it returned."""
        symbols = dict(zip(func.symbols, dims, strict=True))
        arrays = [a for p, a in zip(func.params, arguments, strict=True) if isinstance(p.value, Buffer)]
        for b in self.scratch[func]:
            shape = tuple(int(evaluate(e, symbols)) for e in b.shape)
            if b.dtype.bits < 8:
                shape = ((int(np.prod(shape)) * b.dtype.bits + 7) // 8,)
            arrays.append(aligned(shape, b.dtype.array_dtype()))
        scalars = [(p.value.dtype, a) for p, a in zip(func.params, arguments, strict=True) if not isinstance(p.value, Buffer)]
        words = [*dims, *(struct.unpack("<q", struct.pack("<d", a))[0] if d.is_float else i64.wrap(int(a)) for d, a in scalars)]
        buffers = (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
        values = (ctypes.c_int64 * max(1, len(words)))(*words)
        flag = ctypes.c_int32(0)
        launcher = launcher_for(threads)
        ctx = Ctx()
        ctx.cancel = ctypes.addressof(flag)
        ctx.parallel_for, ctx.pool = launcher.parallel_for, launcher.pool
        return int(Entry(self.code.address(func.name))(ctypes.addressof(ctx), ctypes.addressof(buffers), ctypes.addressof(values)))


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Memory aligned as a workspace is, full of bytes that are no sensible value."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.full(size + 64, 0xCD, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)
