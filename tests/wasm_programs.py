"""Loop programs and host programs as wasm modules that run in wasmtime, for comparing other machines with this one.

Wasm([f, g], "wasm+simd128").call(f, [x, y], [n])
y, = run_host(host, [x])          # prepare, then run, as the ABI says; state arguments are updated in place
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from native_loops import slot
from pliant.codegen.emit import emit_object
from pliant.codegen.link_wasm import link_wasm
from pliant.codegen.llvm import generate
from pliant.codegen.llvm_types import ctx_layout
from pliant.graph import node as g
from pliant.loop.buffer import Buffer
from pliant.loop.stmt import Func
from pliant.lower.host.host import HostProgram
from pliant.target import target

Array = np.ndarray[Any, Any]


class Wasm:
    """Loop programs in wasmtime, called through the ABI; `parallel_for` is a Python function."""

    def __init__(self, funcs: Sequence[Func], name: str) -> None:
        wasmtime = pytest.importorskip("wasmtime", reason="runs modules in wasmtime")
        settings = wasmtime.Config()
        settings.wasm_relaxed_simd_deterministic = True  # relaxed multiply-add is fused, whatever the machine has
        module = generate(funcs, target(name))
        engine = wasmtime.Engine(settings)
        code = wasmtime.Module(engine, link_wasm(emit_object(module.text, module.target, 1), module.exports))
        self.store = wasmtime.Store(engine)
        self.exports = wasmtime.Instance(self.store, code, []).exports(self.store)
        self.memory, self.table = self.exports["memory"], self.exports["table"]
        self.heap = self.exports["__heap_base"].value(self.store)
        i32, i64 = wasmtime.ValType.i32(), wasmtime.ValType.i64()
        host = wasmtime.Func(self.store, wasmtime.FuncType([i32, i32, i32, i64, i64], [i32]), self._parallel_for)
        self.parallel_for = self.table.grow(self.store, 1, host)
        self.layout = ctx_layout(module.target)

    def _parallel_for(self, ctx: int, body: int, env: int, extent: int, grain: int) -> int:
        function = self.table.get(self.store, body)
        for begin in range(0, extent, grain):
            code = function(self.store, ctx, env, begin, min(begin + grain, extent))
            if code:
                return int(code)
        return 0

    def call(self, func: Func, arguments: Sequence[Any], dims: Sequence[int]) -> int:
        """Run a program on arrays, in place."""
        self.top = self.heap
        arrays = [a for p, a in zip(func.params, arguments, strict=True) if isinstance(p.value, Buffer)]
        scalars = [slot(a, p.value.dtype) for p, a in zip(func.params, arguments, strict=True) if not isinstance(p.value, Buffer)]
        places = [self.put(a.tobytes()) for a in arrays]
        buffers = self.put(struct.pack(f"<{len(places)}I", *places))
        numbers = self.put(struct.pack(f"<{len(dims) + len(scalars)}q", *dims, *scalars))
        code = self.exports[func.name](self.store, self.put(self.context()), buffers, numbers)
        for a, place in zip(arrays, places, strict=True):
            self.fetch(a, place)
        return int(code)

    def context(self, room: int = 0) -> bytes:
        """A `Ctx` with a workspace of so many bytes."""
        record = bytearray(self.layout.error + 64)
        struct.pack_into("<I", record, self.layout.parallel_for, self.parallel_for)
        struct.pack_into("<I", record, self.layout.cancel, self.put(bytes(4)))
        struct.pack_into("<I", record, self.layout.workspace, self.put(bytes(room)))
        struct.pack_into("<q", record, self.layout.workspace_size, room)
        return bytes(record)

    def fetch(self, array: Array, place: int) -> None:
        """Fill an array with what lies at an address."""
        if array.nbytes:
            content = bytes(self.memory.read(self.store, place, place + array.nbytes))
            array[...] = np.frombuffer(content, array.dtype).reshape(array.shape)

    def put(self, content: bytes) -> int:
        """Write bytes to memory of their own; their address."""
        place = self.top
        self.top += len(content) + -len(content) % 64
        missing = self.top + 64 - self.memory.data_len(self.store)
        if missing > 0:
            self.memory.grow(self.store, -(-missing // 65536))
        self.memory.write(self.store, content, place)
        return int(place)


def module_of(host: HostProgram, name: str = "wasm+simd128") -> Wasm:
    """A host program as a module, for several runs."""
    return Wasm((host.prepare, host.size, host.run), name)


def run_host(host: HostProgram, arguments: Sequence[Any], module: Wasm | None = None) -> list[Array]:
    """The results of a compiled function in wasmtime; state arguments are updated in place."""
    wasm, layout = module or module_of(host), host.layout
    wasm.top = wasm.heap
    given = dict(zip(layout.params, arguments, strict=True))
    tensors = {p: np.ascontiguousarray(given[p]) for p, _ in layout.arguments() if isinstance(p.annotation, g.Tensor)}
    places = {p: wasm.put(a.tobytes()) for p, a in tensors.items()}
    numbers: list[int] = []
    for p, _ in layout.arguments():
        if p in tensors:
            numbers += [*tensors[p].shape, *(step // tensors[p].itemsize for step in tensors[p].strides)]
        else:
            assert isinstance(p.annotation, g.Scalar)
            numbers.append(slot(given[p], p.annotation.dtype))
    words = (*numbers, *([0] * (layout.at_workspace + 1 + len(layout.counts) - len(numbers))))
    dims = wasm.put(struct.pack(f"<{len(words)}q", *words))
    assert wasm.exports["prepare"](wasm.store, wasm.put(wasm.context()), 0, dims) == 0
    wasm.fetch(found := np.zeros(len(words), np.int64), dims)
    results, at = [], layout.at_outputs
    for o in host.outputs:
        shape = tuple(int(e) for e in found[at : at + len(o.annotation.shape)])
        at += len(shape)
        made = given[layout.params[o.alias]] if o.alias is not None else np.zeros(shape, o.annotation.dtype.numpy())
        place = places[layout.params[o.alias]] if o.alias is not None else wasm.put(bytes(math.prod(shape) * made.itemsize))
        results.append((made, place))
    constants = [wasm.put(np.ascontiguousarray(c.array).tobytes()) for c in host.constants]
    pointers = [*places.values(), *(place for _, place in results), *constants]
    buffers = wasm.put(struct.pack(f"<{len(pointers)}I", *pointers))
    assert wasm.exports["run"](wasm.store, wasm.put(wasm.context(int(found[layout.at_workspace]))), buffers, dims) == 0
    for array, place in results:
        wasm.fetch(array, place)
    return [array for array, _ in results]
