"""Instructions that users declare: they are checked, schedules use them, and the machine's instruction is in the code."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import pliant
from declared_instructions import declared
from levels import runs_here
from native_loops import Lifted
from pliant import InOut, Out, Schedule, Tensor, block, cast, exp, f32, fma, grid, i8, i32
from pliant.codegen.emit import emit_assembly
from pliant.codegen.llvm import generate
from pliant.interp.loop import run_loop
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify
from pliant.lower.host.lift_workspace import lift_workspace
from pliant.pipeline import compile_program
from pliant.schedule import Trace
from pliant.target import target
from pliant.target.declared import DECLARED, declared_text
from schedule_kernels import parse
from wasm_programs import Wasm

MATMUL = """
n = dim("n")
@kernel
def mm(a: Tensor[{dtype}, n, {k}], b: Tensor[{dtype}, {k}, {m}], c: Out[i32, n, {m}]) -> None:
    for i, j, k in grid(n, {m}, {k}):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0
            c[vi, vj] += cast(i32, a[vi, vk]) * cast(i32, b[vk, vj])
"""
CASES = [("x86_64", "i16", "llvm:x86-64", r"pmaddwd\s"), ("aarch64", "i8", "llvm:neoverse-n2", r"smmla\s")]
CASES += [("wasm32", "i16", "wasm+simd128", r"i32x4\.dot_i16x8_s")]


def operands(dtype: str, n: int, k: int, m: int) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng([n, k, m])
    kind = np.dtype({"i16": "int16", "i8": "int8"}[dtype])
    limits = np.iinfo(kind)
    a, b = (rng.integers(limits.min, limits.max, shape, kind, endpoint=True) for shape in ((n, k), (k, m)))
    return [a, b, np.full((n, m), 77, np.int32)]


@pytest.mark.parametrize(("k", "m"), [(24, 32), (13, 21), (1, 1)])
@pytest.mark.parametrize(("arch", "dtype", "to", "pattern"), CASES)
def test_auto_tensorize_uses_it(arch: str, dtype: str, to: str, pattern: str, k: int, m: int) -> None:
    func = parse(MATMUL.format(dtype=dtype, k=k, m=m))
    with declared(arch) as name:
        s = Schedule(func)
        handle = pliant.auto_tensorize(s, "c", name)
        assert handle.block.annotations["instruction"] == name and s.rounding == [] and not s.program.attrs.layouts
        verify(s.program)
        assert_same(Trace.from_json(s.trace.to_json()).apply(func), s.program)
        assert_same(parse(str(s.program)), s.program)
        module = generate([lift_workspace(s.program)[0]], target(to))
        assert re.search(pattern, emit_assembly(module.text, module.target))
        for n in (0, 1, 7):
            a, b, got = operands(dtype, n, k, m)
            expected = a.astype(np.int32) @ b.astype(np.int32)
            run_loop(s.program, [a, b, got], [n], order="shuffled")
            np.testing.assert_array_equal(got, expected)
            if runs_here(to):
                got[:] = 78
                assert Lifted([s.program], to=to).call(s.program, [a, b, got], [n]) == 0
                np.testing.assert_array_equal(got, expected)


def in_registers(name: str) -> Schedule:
    """A product whose sums stay in registers from one instruction to the next."""
    s = Schedule(parse(MATMUL.format(dtype="i16", k=8, m=16)))
    s.transform_layout("b", "lambda k, n: (n // 4, k // 2, n % 4, k % 2)")
    i, j, k = s.loops("c")
    j_0, j_1, j_2 = s.split(j, None, 2, 4)
    k_0, k_1 = s.split(k, 2)
    s.reorder(i, j_0, k_0, j_1, j_2, k_1)
    s.cache_write("c", j_0, scope="register")
    s.decompose_reduction("c", k_0)
    s.unroll(j_1)
    s.tensorize(j_2, name)
    for other in ("c_init", "c_write"):
        s.vectorize(s.loops(other)[-1])
        s.unroll(s.loops(other)[-2])
    return s


def test_sums_stay_in_registers() -> None:
    with declared("x86_64") as name:
        s = in_registers(name)
        verify(s.program)
        module = generate([s.program], target("llvm:x86-64"))
        inner = emit_assembly(module.text, module.target)
        loop = max(re.findall(r"^\.LBB\w+:.*?\bj\w+\s", inner, re.S | re.M), key=lambda text: text.count("pmaddwd"))
        assert loop.count("pmaddwd") == 2 and not re.search(r"movd?q[au]\s+%xmm\d+, \S*\(", loop), loop  # nothing is stored inside
        a, b, got = operands("i16", 5, 8, 16)
        packed = np.ascontiguousarray(b.reshape(4, 2, 4, 4).transpose(2, 0, 3, 1))
        run_loop(s.program, [a, packed, got], [5])
        np.testing.assert_array_equal(got, a.astype(np.int32) @ b.astype(np.int32))
        if runs_here("llvm:x86-64"):
            got[:] = 78
            assert Lifted([s.program], to="llvm:x86-64").call(s.program, [a, packed, got], [5]) == 0
            np.testing.assert_array_equal(got, a.astype(np.int32) @ b.astype(np.int32))


def test_it_runs_in_wasm() -> None:
    with declared("wasm32") as name:
        s = in_registers(name)
        a, b, got = operands("i16", 5, 8, 16)
        packed = np.ascontiguousarray(b.reshape(4, 2, 4, 4).transpose(2, 0, 3, 1))
        assert Wasm([s.program], "wasm+simd128").call(s.program, [a, packed, got], [5]) == 0
        np.testing.assert_array_equal(got, a.astype(np.int32) @ b.astype(np.int32))


def test_without_an_implementation_the_description_is_one() -> None:
    made = pliant.instruction(arch="x86_64", features=("fma",), name="mine.fma")
    shown = "<8 x float> @llvm.fma.v8f32(<8 x float> {a}, <8 x float> {b}, <8 x float> {c})"

    def axpy(c: InOut[f32, 8], a: Tensor[f32, 1], b: Tensor[f32, 8]) -> None:
        for j in grid(8):
            with block("c", "S", j) as vj:
                c[vj] = fma(a[0], b[vj], c[vj])

    declaration = made(axpy)
    try:
        assert "for j in range(8)" in declaration.record.implementation
    finally:
        declaration.withdraw()
    made = pliant.instruction(arch="x86_64", features=("fma",), name="mine.fma", llvm=shown)(axpy)  # runs, where the machine has it
    made.withdraw()
    assert not DECLARED


def test_another_machine_compiles_the_implementation() -> None:
    func = parse(MATMUL.format(dtype="i16", k=4, m=4))
    with declared("x86_64") as name:
        s = Schedule(func)
        pliant.auto_tensorize(s, "c", name)
        text = generate([lift_workspace(s.program)[0]], target("llvm:cortex-a76")).text
        assert "pmadd" not in text and "mul" in text


class Asked(Exception):
    """The key under which compiled code is looked for."""


def test_code_is_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(key: bytes) -> None:
        raise Asked(key)

    program = pliant.Program.of_kernel(parse(MATMUL.format(dtype="i16", k=4, m=4)))

    def key() -> bytes:
        with monkeypatch.context() as m, pytest.raises(Asked) as asked:
            m.setattr("pliant.runtime.code_cache.get", get)
            compile_program(program)
        return bytes(asked.value.args[0])

    machine = target("native")
    plain = key()
    with declared("wasm32"):
        assert declared_text(machine) == "" and key() == plain
    with declared(machine.arch) as name:
        text = declared_text(machine)
        if DECLARED[name].is_on(machine):
            assert name in text and "pmadd" in text and key() != plain
    assert declared_text(machine) == "" and key() == plain


def test_the_latest_declaration_counts() -> None:
    with declared("x86_64") as name:
        first = DECLARED[name]
        with declared("wasm32", name):
            assert DECLARED[name].arch == "wasm32"
        assert name not in DECLARED
        assert first.arch == "x86_64"


def test_declaring_costs_an_importer_nothing() -> None:
    code = "import pliant, sys; pliant.kernel; assert 'pliant.target.instructions' not in sys.modules and 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_form_of_several_lines() -> None:
    """Products of bytes by pairs of words: the operands are widened inside of the form."""
    form = """
        %wide = sext <8 x i8> {b} to <8 x i16>
        %word = sext <8 x i8> {a} to <8 x i16>
        %sum = call <4 x i32> @llvm.x86.sse2.pmadd.wd(<8 x i16> %word, <8 x i16> %wide)
        add <4 x i32> {c}, %sum
    """

    @pliant.instruction(arch="x86_64", features=("sse2",), llvm=form)
    def of_bytes(c: InOut[i32, 4], a: Tensor[i8, 2], b: Tensor[i8, 4, 2]) -> None:
        for j, k in grid(4, 2):
            with block("c", "SR", j, k) as (vj, vk):
                c[vj] += cast(i32, a[vk]) * cast(i32, b[vj, vk])

    assert DECLARED["of_bytes"].llvm == form.strip()
    of_bytes.withdraw()


def test_functions_that_passes_expand() -> None:
    """A made-up machine with an instruction for exp; what LLVM is asked for here is another function, so that it is seen to be asked."""
    form = "<4 x float> @llvm.sqrt.v4f32(<4 x float> {x})"

    def roots(y: Out[f32, 4], x: Tensor[f32, 4]) -> None:
        for j in grid(4):
            with block("y", "S", j) as vj:
                y[vj] = exp(x[vj])

    with pytest.raises(pliant.Error, match="the LLVM form does not compute what it should") as caught:
        pliant.instruction(arch=target("native").arch, llvm=form)(roots)
    assert "y[" in str(caught.value)
