"""Tensor instructions: what they say they do is what they do, and tiles of programs become them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from native_loops import Native
from pliant.check_instruction import check_form, check_with_llvm, marked, run_on_machine
from pliant.codegen.emit import emit_assembly
from pliant.codegen.llvm import generate
from pliant.interp.loop import run_loop
from pliant.loop.parse import parse_module
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify
from pliant.schedule import Schedule, Trace
from pliant.support.errors import ScheduleError
from pliant.target import target
from pliant.target.instructions import INSTRUCTIONS, instructions_of
from schedule_kernels import parse

CPU = {
    "avx512vnni": ("llvm:znver4", r"vpdp(busd|wssd)\s"),
    "avxvnni": ("llvm:alderlake", r"vpdpbusd\s"),
    "avx2": ("llvm:x86-64-v3", r"vpmadd(wd|ubsw)\s"),
    "neon": ("llvm:cortex-a76+dotprod", r"([su]dot|fmla)\s"),
    "i8mm": ("llvm:neoverse-n2", r"(s|u|us)mmla\s"),
    "wasm": ("wasm+relaxed-simd", r"i32x4\.(dot_i16x8_s|relaxed_dot_i8x16_i7x16_add_s)"),
    "fma": ("llvm:znver4", r"vfmadd\d+p[sd]\s"),
}
NUMPY = {"u8": "uint8", "i8": "int8", "i16": "int16", "i32": "int32", "f32": "float32", "f64": "float64"}


def arguments(func: Any, seed: int) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    made = []
    for b in func.buffers:
        shape = tuple(int(e.value) for e in b.shape)
        kind = np.dtype(NUMPY[b.dtype.name])
        limits = np.iinfo(kind) if kind.kind in "iu" else None
        numbers = rng.standard_normal(shape) if limits is None else rng.integers(limits.min, limits.max + 1, shape)
        made.append(np.where(rng.random(shape) < 0.3, limits.min, numbers).astype(kind) if limits else numbers.astype(kind))
    return made


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_the_implementation_does_what_the_description_says(name: str) -> None:
    found = INSTRUCTIONS[name]
    description, implementation = (parse_module(text)["f"] for text in (found.description, found.implementation))
    verify(description)
    verify(implementation)
    for seed in range(3):
        expected = arguments(description, seed)
        got = [a.copy() for a in expected]
        run_loop(description, expected)
        run_loop(implementation, got)
        assert expected[0].tobytes() == got[0].tobytes()


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_the_machine_is_asked_for_it(name: str) -> None:
    to, pattern = CPU[name.partition(".")[0]]
    machine = target(to)
    assert INSTRUCTIONS[name].is_on(machine)
    record, func = INSTRUCTIONS[name], parse_module(INSTRUCTIONS[name].implementation)["f"]
    module = generate([marked(record, func) if record.llvm else func], machine)
    assert re.search(pattern, emit_assembly(module.text, machine))


@pytest.mark.parametrize("name", [name for name, i in INSTRUCTIONS.items() if i.llvm])
def test_forms_are_as_good_as_those_of_users(name: str) -> None:
    record, func = INSTRUCTIONS[name], parse_module(INSTRUCTIONS[name].implementation)["f"]
    check_form(record, func)
    check_with_llvm(record, func)
    if record.is_on(target("native")):
        run_on_machine(record, func)


def test_a_machine_has_what_its_features_say() -> None:
    names = {i.name for i in instructions_of(target("llvm:x86-64-v3"))}
    assert "avx2.dot_u8s8" in names and "fma.f32x8" in names
    assert not any(n.startswith(("avx512vnni", "avxvnni", "neon", "wasm")) for n in names) and "fma.f32x16" not in names


def matmul(left: str = "u8", right: str = "i8") -> Any:
    return parse(f"""
n = dim("n")
@kernel
def mm(a: Tensor[{left}, n, 24], b: Tensor[{right}, 24, 64], c: Out[i32, n, 64]) -> None:
    for i, j, k in grid(n, 64, 24):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0
            c[vi, vj] += cast(i32, a[vi, vk]) * cast(i32, b[vk, vj])
""")


def tensorized(func: Any, instruction: str, lanes: int, group: int, rows: int = 3) -> Schedule:
    s = Schedule(func)
    s.transform_layout("b", f"lambda k, n: (n // {lanes}, k // {group}, n % {lanes}, k % {group})", 0)
    i, j, k = s.loops("c")
    i_0, i_1 = s.split(i, rows, tail="cut")
    j_0, j_1 = s.split(j, lanes)
    k_0, k_1 = s.split(k, group)
    s.reorder(i_0, j_0, k_0, i_1, j_1, k_1)
    s.cache_write("c", j_0, scope="register")
    s.decompose_reduction("c", k_0)
    s.unroll(i_1)
    s.tensorize(j_1, instruction)
    for name in ("c_init", "c_write"):
        s.vectorize(s.loops(name)[-1])
        s.unroll(s.loops(name)[-2])
    return s


def packed(b: np.ndarray[Any, Any], lanes: int, group: int) -> np.ndarray[Any, Any]:
    k, n = b.shape
    return np.ascontiguousarray(b.reshape(k // group, group, n // lanes, lanes).transpose(2, 0, 3, 1))


@pytest.mark.parametrize(
    ("left", "right", "instruction", "lanes", "group", "to", "pattern"),
    [
        ("u8", "i8", "avx512vnni.dot_u8s8", 16, 4, "llvm:znver4", r"vpdpbusd\s.*zmm"),
        ("i8", "i8", "avx512vnni.dot_s8s8", 16, 4, "llvm:znver4", r"vpdpbusd\s.*zmm"),
        ("u8", "i8", "avx2.dot_u8s8", 8, 2, "llvm:x86-64-v3", r"vpmaddwd\s.*ymm"),
    ],
)
def test_a_matmul_of_bytes(left: str, right: str, instruction: str, lanes: int, group: int, to: str, pattern: str) -> None:
    func = matmul(left, right)
    s = tensorized(func, instruction, lanes, group)
    verify(s.program)
    assert_same(Trace.from_json(s.trace.to_json()).apply(func), s.program)
    rng = np.random.default_rng(1)
    a, b = (
        rng.integers(np.iinfo(d).min, np.iinfo(d).max + 1, shape).astype(d) for d, shape in ((NUMPY[left], (7, 24)), ("int8", (24, 64)))
    )
    expected = a.astype(np.int32) @ b.astype(np.int32)
    found = np.full((7, 64), 77, np.int32)
    run_loop(s.program, [a, packed(b, lanes, group), found], [7])
    np.testing.assert_array_equal(found, expected)
    module = generate([s.program], target(to))
    assert re.search(pattern, emit_assembly(module.text, module.target))
    if set(target(to).features) <= set(target("native").features):
        found[:] = 77
        assert Native(s.program, to=to, level=2).call("mm", [a, packed(b, lanes, group), found], [7]) == 0
        np.testing.assert_array_equal(found, expected)


def test_handles_of_the_tile_say_what_became_of_it() -> None:
    s = Schedule(matmul())
    i, j, k = s.loops("c")
    j_0, j_1 = s.split(j, 8)
    k_0, k_1 = s.split(k, 2)
    s.transform_layout("b", "lambda k, n: (n // 8, k // 2, n % 8, k % 2)")
    s.reorder(j_0, k_0, j_1, k_1)
    c = s.block("c")
    made = s.tensorize(j_1, "avx2.dot_u8s8")
    assert made.block.annotations["instruction"] == "avx2.dot_u8s8" and i.alive and k_0.alive
    assert not c.alive and not j_1.alive
    with pytest.raises(ScheduleError, match=r"it became the instruction `avx2\.dot_u8s8`"):
        s.unroll(k_1)
