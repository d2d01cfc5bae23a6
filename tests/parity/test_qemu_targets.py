"""Loop programs on other CPUs, run in qemu-user: every operator on edge values equals its definition, random programs equal native code."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from test_codegen_ops import DTYPES, edges, elementwise, operations
from test_targets import with_scratch

from counts import count
from exported_programs import CTX, Qemu
from generate_loops import clone, make_arguments, make_program, whole
from native_loops import Lifted, same_bits, slot
from pliant.codegen.emit import emit_object
from pliant.codegen.link_elf import link
from pliant.codegen.llvm import generate
from pliant.codegen.serial_for import with_serial_for
from pliant.dtype import dtype
from pliant.loop.buffer import Buffer
from pliant.loop.stmt import Func
from pliant.sym.expr import Cast, Expr, Var
from pliant.sym.semantics import evaluate
from pliant.target import target

CPUS = {"aarch64@linux": "cortex-a53", "riscv64@linux": "rv64", "riscv64+v@linux": "rv64,v=true,vext_spec=v1.0,vlen=128"}


class Programs:
    """Loop programs as machine code; calls are collected, and made in one run of qemu."""

    def __init__(self, funcs: Sequence[Func], name: str) -> None:
        machine = target(name)
        module = generate(funcs, machine)
        blob = with_serial_for(link(emit_object(module.text, machine, 1), module.exports), machine)
        self.qemu = Qemu(machine.arch, blob.code, blob.exports, CPUS[name])
        self.calls: list[tuple[str, int, int, int]] = []
        self.results: list[tuple[np.ndarray, int]] = []

    def add(self, func: Func, arguments: Sequence[Any], dims: Sequence[int]) -> None:
        """A call on arrays, which `run` updates."""
        put = self.qemu.put
        arrays = [a for p, a in zip(func.params, arguments, strict=True) if isinstance(p.value, Buffer)]
        scalars = [slot(a, p.value.dtype) for p, a in zip(func.params, arguments, strict=True) if not isinstance(p.value, Buffer)]
        places = [put(a.tobytes()) for a in arrays]
        buffers = put(struct.pack(f"<{len(places)}Q", *places))
        numbers = put(struct.pack(f"<{len(dims) + len(scalars)}q", *dims, *scalars))
        _, _, parallel_for, cancel, error = CTX[8]
        ctx = bytearray(error + 64)
        struct.pack_into("<Q", ctx, parallel_for, self.qemu.serial_for())
        struct.pack_into("<Q", ctx, cancel, put(bytes(4)))
        self.calls.append((func.name, put(bytes(ctx)), buffers, numbers))
        self.results += zip(arrays, places, strict=True)

    def run(self) -> int:
        """Make the calls; 0 if all of them answer so."""
        code = self.qemu.call_all(self.calls)
        for array, place in self.results:
            if array.nbytes:
                array[...] = np.frombuffer(self.qemu.fetch(place, array.nbytes), array.dtype).reshape(array.shape)
        return code


def way(n: int, e: Expr, name: str) -> str:
    """Whether a loop is serial or of vectors: they take turns, except where qemu before 8.0 ends with an assertion of its own."""
    narrow = isinstance(e, Cast) and e.args[0].dtype.is_float and e.dtype.is_int  # vfncvt.rtz
    return "serial" if narrow and name == "riscv64+v@linux" else ("serial", "vector")[n % 2]


@pytest.mark.parametrize("name", CPUS)
@pytest.mark.parametrize("element", DTYPES)
def test_every_operator(element: str, name: str) -> None:
    if element not in ("f16", "f32", "f64", "i8", "u32", "i64") and count(0, 1) == 0:
        pytest.skip("takes long to compile: with PLIANT_LONG=1")
    d = dtype(element)
    variables = tuple(Var(v, d) for v in "abc")
    a = edges(d)
    inputs = [np.repeat(a, len(a)), np.tile(a, len(a)), np.resize(np.roll(a, 5), len(a) ** 2)]
    cases = list(operations(d, *variables))
    funcs = [elementwise(f"f{n}", e, variables, way(n, e, name)) for n, e in enumerate(cases)]
    programs = Programs(funcs, name)
    outs = [np.zeros(len(inputs[0]), e.dtype.numpy()) for e in cases]
    for func, out in zip(funcs, outs, strict=True):
        programs.add(func, [*map(np.array, inputs), out], [len(out)])
    assert programs.run() == 0
    for e, out in zip(cases, outs, strict=True):
        expected = np.broadcast_to(evaluate(e, dict(zip(variables, inputs, strict=True))), out.shape)
        assert same_bits(out, expected), e


@pytest.mark.parametrize("name", CPUS)
def test_random_programs_equal_native(name: str) -> None:
    cases = []
    for seed in range(count(6, 400)):
        func = make_program(seed)
        arguments, dims = make_arguments(func, seed)
        native, foreign = [clone(a) for a in arguments], [clone(a) for a in arguments]  # strides are part of `dims`
        if Lifted([func], 1).call(func, native, dims) == 0:
            lifted, with_room = with_scratch(func, [whole(a) for a in foreign], dims)
            cases.append((seed, func, lifted.with_(name=f"program{seed}"), native, foreign, with_room, dims))
    programs = Programs([c[2] for c in cases], name)
    for _, _, lifted, _, _, with_room, dims in cases:
        programs.add(lifted, with_room, dims)
    assert programs.run() == 0
    for seed, func, _, native, foreign, _, _ in cases:
        for p, x, y in zip(func.params, native, foreign, strict=True):
            assert same_bits(x, y), f"seed {seed}: {p.value}"
