"""Sums of products of small integers: which instruction they become on which CPU, and that they are the interpreter's numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from levels import runnable
from native_loops import Native
from pliant.codegen.emit import emit_assembly
from pliant.codegen.llvm import generate
from pliant.interp.loop import run_loop
from pliant.loop.parse import parse_module
from pliant.loop.stmt import Func
from pliant.target import target

HEAD = "from pliant import InOut, Tensor, cast, i8, i16, i32, kernel, u4, u8, vector\n"


def program(left: str, right: str, group: int, lanes: int, value: str = "a[{t}]", other: str = "b[j, {t}]") -> Func:
    """`lanes` sums of `group` products; the left factors are shared by the lanes."""
    terms = " + ".join(f"cast(i32, {value.format(t=t)}) * cast(i32, {other.format(t=t)})" for t in range(group))
    text = f"""
@kernel
def f(c: InOut[i32, {lanes}], a: Tensor[{left}, {group}], b: Tensor[{right}, {lanes}, {group}]) -> None:
    for j in vector({lanes}):
        c[j] += {terms}
"""
    return parse_module(HEAD + text)["f"]


def assembly(func: Func, to: str) -> str:
    module = generate([func], target(to))
    return emit_assembly(module.text, module.target)


X86 = "llvm:x86-64-v3"
SELECTED = [
    (X86, "u8", "i8", 4, 8, "a[{t}]", r"vpmaddwd\s"),
    (X86, "u8", "i8", 4, 8, "(a[{t}] & 127)", r"vpmaddubsw\s"),
    (X86, "i8", "i8", 2, 8, "a[{t}]", r"vpmaddwd\s.*ymm"),
    (X86, "i16", "i16", 2, 8, "a[{t}]", r"vpmaddwd\s.*ymm"),
    (X86, "u8", "u8", 4, 8, "a[{t}]", r"vpmaddwd\s"),
    ("llvm:x86-64", "i8", "i8", 2, 8, "a[{t}]", r"pmaddwd\s.*xmm"),
    ("llvm:znver4", "u8", "i8", 4, 16, "a[{t}]", r"vpdpbusd\s.*zmm"),
    ("llvm:znver4", "i8", "u8", 4, 32, "a[{t}]", r"vpdpbusd\s.*zmm"),
    ("llvm:znver4", "i8", "i8", 4, 16, "a[{t}]", r"vpdpbusd\s.*zmm"),
    ("llvm:znver4", "i8", "i8", 2, 16, "a[{t}]", r"vpdpwssd\s.*zmm"),
    ("llvm:icelake-client", "u8", "i8", 4, 16, "a[{t}]", r"vpdpbusd\s.*ymm"),
    ("llvm:alderlake", "u8", "i8", 4, 8, "a[{t}]", r"vpdpbusd\s.*ymm"),
    ("llvm:cortex-a76+dotprod", "i8", "i8", 4, 4, "a[{t}]", r"sdot\s"),
    ("llvm:cortex-a76+dotprod", "u8", "u8", 4, 8, "a[{t}]", r"udot\s"),
    ("llvm:cortex-a76+dotprod", "u8", "i8", 4, 8, "a[{t}]", r"sdot\s"),
    ("llvm:neoverse-v1", "u8", "i8", 4, 8, "a[{t}]", r"usdot\s"),
    ("wasm+simd128", "i8", "i8", 2, 4, "a[{t}]", r"i32x4\.dot_i16x8_s"),
    ("wasm+simd128", "u8", "i8", 4, 4, "a[{t}]", r"i32x4\.dot_i16x8_s"),
    ("wasm+relaxed-simd", "u8", "i8", 4, 4, "(a[{t}] & 127)", r"i32x4\.relaxed_dot_i8x16_i7x16_add_s"),
]


@pytest.mark.parametrize(("to", "left", "right", "group", "lanes", "value", "instruction"), SELECTED)
def test_the_instruction_is_used(to: str, left: str, right: str, group: int, lanes: int, value: str, instruction: str) -> None:
    assert re.search(instruction, assembly(program(left, right, group, lanes, value), to))


def test_saturating_products_need_a_proof() -> None:
    assert not re.search(r"vpmaddubsw", assembly(program("u8", "i8", 4, 8), X86))
    assert not re.search(r"relaxed_dot", assembly(program("u8", "i8", 4, 4), "wasm+relaxed-simd"))


def extremes(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Random numbers of a small integer type, the least and the greatest more often than others."""
    limits = np.iinfo(dtype)
    made = rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
    kind = rng.integers(0, 4, shape)
    return np.where(kind == 0, limits.min, np.where(kind == 1, limits.max, made)).astype(dtype)


@pytest.mark.parametrize("to", runnable("llvm:x86-64", "llvm:x86-64-v2", X86, "native"))
def test_native_code_gives_the_interpreters_numbers(to: str) -> None:
    numpy_names = {"u8": "uint8", "i8": "int8", "i16": "int16"}
    rng = np.random.default_rng(0)
    parts = {"u8": ("{}", "({} & 127)", "({} & 143)", "({} >> 3)"), "i8": ("{}", "({} & -3)", "({} >> 3)")}
    pairs = [("u8", "i8"), ("i8", "u8"), ("i8", "i8"), ("u8", "u8")]
    cases = [(a, b, g, n, v.format("a[{t}]")) for a, b in pairs for g in (2, 4, 8) for n in (4, 8, 32) for v in parts[a]]
    cases += [(a, b, g, 16, "a[{t}]", v.format("b[j, {t}]")) for a, b in pairs for g in (2, 4) for v in parts[b][1:]]
    cases.append(("i16", "i16", 2, 16, "a[{t}]"))
    funcs = [program(*c).with_(name=f"f{n}") for n, c in enumerate(cases)]
    native = Native(*funcs, to=to, level=1)
    for func, (left, right, group, lanes, *_) in zip(funcs, cases, strict=True):
        a = extremes(rng, numpy_names[left], (group,))
        b = extremes(rng, numpy_names[right], (lanes, group))
        c = rng.integers(-(2**31), 2**31, lanes).astype(np.int32)
        expected, found = c.copy(), c.copy()
        run_loop(func, [expected, a, b])
        assert native.call(func.name, [found, a, b]) == 0
        np.testing.assert_array_equal(found, expected, err_msg=str(func))


def test_packed_elements_prove_their_range() -> None:
    func = program("u4", "i8", 4, 8)
    assert re.search(r"vpmaddubsw\s", assembly(func, X86))
