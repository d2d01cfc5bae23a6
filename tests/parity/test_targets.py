"""The same programs for other machines: wasm runs in wasmtime and equals native code bit for bit; no object needs anybody's functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from test_codegen_ops import DTYPES, edges, elementwise, operations
from test_dtypes import program
from test_vector_access import columns, copy, i, order

from counts import count
from generate_loops import clone, make_arguments, make_program, whole
from native_loops import Lifted, same_bits
from pliant.codegen.emit import emit_assembly, emit_object
from pliant.codegen.link_elf import undefined_symbols
from pliant.codegen.llvm import generate
from pliant.dtype import ALL, dtype, f32, i64
from pliant.loop.buffer import loaded_dtype
from pliant.loop.stmt import Func
from pliant.lower.host.lift_workspace import lift_workspace
from pliant.sym.expr import Cast, Var
from pliant.sym.semantics import evaluate
from pliant.target import target
from wasm_programs import Wasm

WASM = ["wasm", "wasm+simd128"]
OTHERS = [
    *WASM,
    "llvm:generic",
    "llvm:cortex-a76",
    "llvm:apple-m1",
    "llvm:x86-64",
    "llvm:x86-64-v2",
    "llvm:x86-64-v4",
    "riscv64",
    "riscv64+v",
]
SEEDS = range(count(16, 400))


def with_scratch(func: Func, arguments: Sequence[Any], dims: Sequence[int]) -> tuple[Func, list[Any]]:
    """A program whose workspace buffers are parameters, and arguments for them."""
    lifted, buffers = lift_workspace(func)
    values = dict(zip(func.symbols, dims, strict=True))
    shapes = [tuple(int(evaluate(e, values)) for e in b.shape) for b in buffers]
    sizes = [(int(np.prod(shape)) * b.dtype.bits + 7) // 8 for b, shape in zip(buffers, shapes, strict=True)]
    extra = [np.full(size, 0x55, np.uint8) for size in sizes]
    return lifted, [*arguments, *extra]


@pytest.mark.parametrize("name", WASM)
def test_random_programs_in_wasm_equal_native(name: str) -> None:
    programs = [make_program(seed) for seed in SEEDS]
    for seed, func in zip(SEEDS, programs, strict=True):
        arguments, dims = make_arguments(func, seed)
        native, foreign = [clone(a) for a in arguments], [clone(a) for a in arguments]  # strides are part of `dims`
        code = Lifted([func], 1).call(func, native, dims)
        lifted, foreign_arguments = with_scratch(func, [whole(a) for a in foreign], dims)
        assert Wasm([lifted], name).call(lifted, foreign_arguments, dims) == code
        if code == 0:
            for p, x, y in zip(func.params, native, foreign, strict=True):
                assert same_bits(x, y), f"seed {seed}: {p.value}"


@pytest.mark.parametrize(("element", "name"), [(d, w) for d in DTYPES for w in WASM if "simd" in w or d in ("i64", "f16", "f32", "f64")])
def test_every_operator_in_wasm(element: str, name: str) -> None:
    d = dtype(element)
    variables = tuple(Var(v, d) for v in "abc")
    a = edges(d)
    inputs = [np.repeat(a, len(a)), np.tile(a, len(a)), np.resize(np.roll(a, 5), len(a) ** 2)]
    cases = list(operations(d, *variables))
    funcs = [elementwise(f"f{n}", e, variables, ("serial", "vector")[n % 2]) for n, e in enumerate(cases)]
    wasm = Wasm(funcs, name)
    for func, e in zip(funcs, cases, strict=True):
        out = np.zeros(len(inputs[0]), e.dtype.numpy())
        assert wasm.call(func, [*inputs, out], [len(out)]) == 0
        expected = np.broadcast_to(evaluate(e, dict(zip(variables, inputs, strict=True))), out.shape)
        assert same_bits(out, expected), e


@pytest.mark.parametrize("name", OTHERS)
def test_no_object_has_undefined_symbols(name: str) -> None:
    funcs = []
    for element in ("bool", "i8", "u16", "i32", "i64", "u64", "f16", "bf16", "f32", "f64"):
        variables = tuple(Var(v, dtype(element)) for v in "abc")
        for n, e in enumerate(operations(dtype(element), *variables)):
            if n % 3 == 0 or element in ("f16", "f64"):
                funcs.append(elementwise(f"{element}_{n}", e, variables, ("serial", "vector")[n % 2]))
    programs = [lift_workspace(make_program(seed))[0] for seed in SEEDS]
    funcs += [f.with_(name=f"program{n}") for n, f in enumerate(programs)]
    assert undefined_symbols(emit_object(generate(funcs, target(name)).text, target(name), 1)) == []


CPUS = {
    "llvm:x86-64-v2": "%xmm",
    "llvm:x86-64-v3": "%ymm",
    "llvm:x86-64-v4": "%ymm",
    "llvm:znver3": "%ymm",
    "llvm:cortex-a76+dotprod": ".4s",
    "llvm:apple-m1": ".4s",
    "riscv64": "",
    "riscv64+v": "vle",
    "wasm": "",
    "wasm+simd128": "f32x4.",
}


@pytest.mark.parametrize(("name", "vectors"), CPUS.items())
def test_kernels_compile_for_any_cpu_by_name(name: str, vectors: str) -> None:
    """Decoding and encoding of storage types, gathers, and a column sum: vectors where there are any, nobody's functions."""
    funcs = [columns(None).with_(name="columns")]
    for d in (d for d in ALL.values() if d.storage):
        for way, source, to in (("decode", d, f32), ("encode", f32, d)):
            funcs.append(program(f"{way}_{d}", [source], to, lambda x, to=to: Cast(loaded_dtype(to), x), "vector"))
        funcs.append(copy(f"gather_{d}", d, Cast(i64, order.load(i)), i))
    text = generate(funcs, target(name)).text
    assert undefined_symbols(emit_object(text, target(name))) == []
    assembly = emit_assembly(text, target(name))
    assert vectors in assembly
    assert vectors or not ("f32x4" in assembly or "vsetivli" in assembly)
