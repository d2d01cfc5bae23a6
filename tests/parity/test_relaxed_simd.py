"""`wasm+relaxed-simd`: fused multiply-add by the relaxed instruction, in an engine that fuses: the bits of every machine that does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_codegen_ops import edges

import pliant
from exported_models import Interpreted, Model
from exported_programs import Exported
from native_loops import same_bits
from pliant import Tensor, dim, f32, function, ops
from pliant.api import program_of
from pliant.codegen.emit import emit_assembly
from pliant.codegen.llvm import generate
from pliant.dtype import dtype, i64
from pliant.interp.loop import run_loop
from pliant.loop.attributes import SCHEDULED
from pliant.loop.buffer import Buffer
from pliant.loop.stmt import For, Func, Param, Store
from pliant.sym.expr import Const, Fma, Var
from pliant.target import target
from wasm_programs import Wasm

n = dim("n", max=64)
W = np.random.default_rng(0).standard_normal((24, 20)).astype(np.float32)


@function
def layer(x: Tensor[f32, n, 24]) -> Tensor[f32, n, 20]:
    return ops.softmax(ops.gelu(x @ W))


def same(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(ours, theirs, strict=True))


def multiply_add(element: str, lanes: int) -> Func:
    """`y[i, j] = fma(a[i, j], b[i, j], c[i, j])` over rows of so many lanes; one at a time for 0."""
    rows, i, j = Var("rows"), Var("i"), Var("j")
    width = Const(lanes or 3, i64)
    a, b, c, y = (Buffer(name, dtype(element), (rows, width)) for name in "abcy")
    store = Store(y, (i, j), Fma(*(x.load(i, j) for x in (a, b, c))))
    inner = For(j, Const(0, i64), width, "vector" if lanes else "serial", store)
    body = For(i, Const(0, i64), rows, "serial", inner)
    return Func(f"fma_{element}_{lanes}", (*map(Param, (a, b, c)), Param(y, "out")), body, SCHEDULED)


@pytest.mark.parametrize("element", ["f32", "f64", "f16"])
def test_fused_multiply_add_of_any_number_of_lanes(element: str) -> None:
    pytest.importorskip("wasmtime", reason="runs modules in wasmtime")
    funcs = {lanes: multiply_add(element, lanes) for lanes in (0, 2, 3, 4, 5, 6, 8, 11, 12, 16)}
    code = Wasm(list(funcs.values()), "wasm+relaxed-simd")
    values = edges(dtype(element))
    rng = np.random.default_rng(3)
    for lanes, func in funcs.items():
        shape = (40, lanes or 3)
        a, b, c = (rng.choice(values, shape) for _ in range(3))
        with np.errstate(all="ignore"):
            c[::3] = -(a * b)[::3]  # what a rounding of the product would lose is all that is left
        wanted, result = np.zeros(shape, values.dtype), np.zeros(shape, values.dtype)
        run_loop(func, [a, b, c, wanted], [40])
        assert code.call(func, [a, b, c, result], [40]) == 0
        assert same_bits(result, wanted), lanes


def test_the_instruction_is_used_where_it_was_asked_for() -> None:
    func = multiply_add("f32", 8)
    texts = {name: emit_assembly(generate([func], target(name)).text, target(name)) for name in ("wasm+relaxed-simd", "wasm+simd128")}
    assert texts["wasm+relaxed-simd"].count("f32x4.relaxed_madd") == 2 and "relaxed" not in texts["wasm+simd128"]


def test_a_program_has_the_bits_of_other_machines_that_fuse_and_says_what_it_needs(tmp_path: Path) -> None:
    pytest.importorskip("wasmtime", reason="runs modules in wasmtime")
    x = np.random.default_rng(1).standard_normal((37, 24)).astype(np.float32)
    pliant.export(layer, "wasm+relaxed-simd", tmp_path)
    exported = Exported(tmp_path, "layer")
    assert exported.machine.exports["fused"](exported.machine.store) == 1  # type: ignore[attr-defined]
    assert "fused" in json.loads((tmp_path / "layer.json").read_text())["entries"]
    model = Model(program_of(layer), {"x": x})
    results = exported.run(model.fresh())
    assert same(results, Interpreted(model.program, "wasm+relaxed-simd").run(model.fresh()))
    assert same(results, Interpreted(model.program, "x86-64-v3").run(model.fresh()))
    other = tmp_path / "plain"
    pliant.export(layer, "wasm+simd128", other)
    assert "fused" not in json.loads((other / "layer.json").read_text())["entries"]
