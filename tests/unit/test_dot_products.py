"""Products of small integers by the default rules: which instruction, exact results, and a row alone equals the row in a batch."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import pliant
from native_loops import Lifted
from pliant import Tensor, dim, function, i8, i32, ops, u8
from pliant.codegen.emit import emit_assembly
from pliant.codegen.llvm import generate
from pliant.loop.stmt import Func
from pliant.lower.host.lift_workspace import lift_workspace
from pliant.schedule import default_schedule
from pliant.schedule.library.layouts import wanted_layouts
from pliant.schedule.primitives.layout import transform_layout
from pliant.target import target
from pliant.target.instructions import instructions_of
from schedule_kernels import pack, parse

VNNI = "llvm:znver4"


def product(name: str, left: str, right: str, k: int, n: int, transposed: bool = False, epilogue: bool = False) -> Func:
    """`c[i, j] += a[i, k] * b[k, j]` of small integers, for any number of rows."""
    shape, place = (f"{n}, {k}", "vj, vk") if transposed else (f"{k}, {n}", "vk, vj")
    out = f"total = alloc((m, {n}), i32)" if epilogue else ""
    c = "total" if epilogue else "c"
    text = f"""
m = dim("m")
@kernel
def {name}(a: Tensor[{left}, m, {k}], b: Tensor[{right}, {shape}], c: Out[{"f32" if epilogue else "i32"}, m, {n}]) -> None:
    {out}
    for i, j, k in grid(m, {n}, {k}):
        with block("dot", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                {c}[vi, vj] = 0
            {c}[vi, vj] += cast(i32, a[vi, vk]) * cast(i32, b[{place}])
"""
    if epilogue:
        text += f"""    for i, j in grid(m, {n}):
        with block("out", "SS", i, j) as (vi, vj):
            c[vi, vj] = max(cast(f32, total[vi, vj]) * 0.5, 0.0)
"""
    return parse(text)


def packed(func: Func, to: str = "native") -> Func:
    """The program with its right-hand side as the rules want it."""
    (found,) = wanted_layouts(func, target(to)).items()
    return transform_layout(func, found[0].name, found[1], 0)[0]


SHAPES = [
    ("u8", "i8", 24, 68, False),
    ("i8", "i8", 13, 23, False),
    ("u8", "u8", 7, 20, True),
    ("i8", "u8", 4, 16, True),
    ("u8", "i8", 5, 6, False),
    ("u8", "i8", 9, 65, False),
]


@pytest.fixture(scope="module")
def natives() -> tuple[list[tuple[Func, Func]], Lifted]:
    logical = [product(f"p{n}", *shape) for n, shape in enumerate(SHAPES)]
    logical += [packed(product(f"q{n}", *shape)) for n, shape in enumerate(SHAPES)]
    funcs = [(f, default_schedule(f, target("native"))[0]) for f in logical]
    return funcs, Lifted([f for _, f in funcs], level=1)


def numbers(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Random numbers of a small integer type, the least and the greatest more often than others."""
    limits = np.iinfo(dtype)
    found = rng.integers(limits.min, limits.max + 1, shape)
    return np.where(rng.random(shape) < 0.2, rng.choice([limits.min, limits.max], shape), found).astype(dtype)


@pytest.mark.parametrize("rows", [0, 1, 5, 7, 70])
def test_results_are_exact(rows: int, natives: tuple[list[tuple[Func, Func]], Lifted]) -> None:
    funcs, native = natives
    rng = np.random.default_rng(rows)
    for n, (logical, func) in enumerate(funcs):
        left, right, k, width, transposed = SHAPES[n % len(SHAPES)]
        a = numbers(rng, left.replace("i", "int").replace("u", "uint"), (rows, k))
        b = numbers(rng, right.replace("i", "int").replace("u", "uint"), (width, k) if transposed else (k, width))
        arguments = pack(logical, [a, b, np.zeros((rows, width), np.int32)], {"m": rows})
        assert native.call(func, arguments, [rows], threads=2) == 0
        wide = (b.T if transposed else b).astype(np.int32)
        np.testing.assert_array_equal(arguments[2], a.astype(np.int32) @ wide, err_msg=func.name)


def test_a_row_alone_equals_the_row_in_a_batch(natives: tuple[list[tuple[Func, Func]], Lifted]) -> None:
    funcs, native = natives
    func = funcs[len(SHAPES)][1]
    rng = np.random.default_rng(0)
    a, b, c = (
        numbers(rng, "uint8", (9, 24)),
        numbers(rng, "int8", tuple(int(str(e)) for e in func.buffers[1].shape)),
        np.zeros((9, 68), np.int32),
    )
    assert native.call(func, [a, b, c], [9]) == 0
    for row in range(9):
        alone = np.zeros_like(c[:1])
        assert native.call(func, [a[row : row + 1].copy(), b, alone], [1]) == 0
        assert alone.tobytes() == c[row : row + 1].tobytes()


def test_words_are_packed_for_the_instruction() -> None:
    plain = product("p", "u8", "i8", 13, 40)
    layouts = {name: str(next(iter(wanted_layouts(plain, target(name)).values()))) for name in (VNNI, "llvm:x86-64-v3")}
    assert layouts == {
        VNNI: "lambda d0, d1: (d1 // 16, d0 // 4, d1 % 16, d0 % 4)",
        "llvm:x86-64-v3": "lambda d0, d1: (d1 // 8, d0 // 2, d1 % 8, d0 % 2)",
    }
    shape = [int(str(e)) for e in packed(plain, VNNI).buffers[1].shape]
    assert shape == [3, 4, 16, 4]


def test_what_is_said() -> None:
    _, why = default_schedule(packed(product("p", "u8", "i8", 16, 64), VNNI), target(VNNI))
    assert re.fullmatch(r"dot products: `dot` in tiles of \d+x64 in registers by `avx512vnni.dot_u8s8`, right-hand side packed", why)
    _, why = default_schedule(product("p", "u8", "i8", 16, 64), target(VNNI))
    copying, direct = why.split("; else: ")
    assert copying.startswith("if m > 63: dot products:") and "right-hand side copied by panels" in copying
    assert direct.startswith("not dot products: `b` is not packed in words of 4 for 16 columns")


def test_the_epilogue_is_in_the_write_back() -> None:
    func, why = default_schedule(packed(product("p", "u8", "i8", 16, 32, epilogue=True), VNNI), target(VNNI))
    assert why.endswith("with `out` in its write-back")
    assert "alloc((m" not in str(func)


SELECTED = [
    (VNNI, "u8", "i8", r"vpdpbusd\s.*zmm"),
    (VNNI, "i8", "i8", r"vpdpbusd\s.*zmm"),
    ("llvm:alderlake", "u8", "i8", r"vpdpbusd\s.*ymm"),
    ("llvm:x86-64-v3", "u8", "i8", r"vpmaddwd\s.*ymm"),
    ("llvm:cortex-a76+dotprod", "i8", "i8", r"sdot\s"),
    ("llvm:cortex-a76+dotprod", "u8", "u8", r"udot\s"),
]


@pytest.mark.parametrize(("to", "left", "right", "instruction"), SELECTED)
def test_the_instruction_is_used(to: str, left: str, right: str, instruction: str) -> None:
    func, _ = default_schedule(packed(product("p", left, right, 16, 32), to), target(to))
    module = generate([lift_workspace(func)[0]], target(to))
    assert re.search(instruction, emit_assembly(module.text, module.target))


def test_no_instruction_is_said_so() -> None:
    func = product("p", "u8", "i8", 16, 32)
    _, why = default_schedule(func, target("llvm:cortex-a53"))
    assert "dot products" not in why and "matmul: `dot`" in why


m = dim("m", max=99)
CODES = numbers(np.random.default_rng(3), "int8", (30, 36))


@function
def centered(a: Tensor[u8, m, 30], rows: Tensor[u8, m], columns: Tensor[i8, 36]) -> Tensor[i32, m, 36]:
    return ops.matmul_integer(a, ops.constant(CODES), rows, columns)


def test_zero_points_stay_outside_of_the_products() -> None:
    f = pliant.compile(centered, threads=1)
    has_dots = any(i.name.endswith("dot_u8s8") for i in instructions_of(target("native")))
    assert ("right-hand side packed" in str(pliant.explain(f))) and (("dot products: `dot`" in str(pliant.explain(f))) == has_dots)
    rng = np.random.default_rng(4)
    for size in (0, 1, 11):
        a, rows, columns = numbers(rng, "uint8", (size, 30)), numbers(rng, "uint8", (size,)), numbers(rng, "int8", (36,))
        wide, less, zero = a.astype(np.int32), rows.astype(np.int32)[:, None], columns.astype(np.int32)
        np.testing.assert_array_equal(f(a, rows, columns), (wide - less) @ (CODES.astype(np.int32) - zero))
