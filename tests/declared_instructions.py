"""Tensor instructions that tests declare, as users do: for x86, aarch64 and wasm, of 16 bits, of bytes and of floats.

with declared("x86_64") as name: ...                 # products of i16 (on aarch64: of i8), withdrawn at the end
with declared("wasm32", kind=BYTES) as name: ...     # of u8 and i8, as in quantized models
with declared("aarch64", kind=OUTER) as name: ...    # 4x4 products of two vectors of floats
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pliant
from pliant import InOut, Kernel, Tensor, block, cast, f32, grid, i8, i16, i32, kernel, u8, vector

MULTIPLY_ADD = "%p = call <4 x i32> @{}(<8 x i16> {{a}}, <8 x i16> {{b}})\nadd <4 x i32> {{c}}, %p"
WITH: dict[str, dict[str, Any]] = {
    "x86_64": {"features": ("sse2",), "llvm": MULTIPLY_ADD.format("llvm.x86.sse2.pmadd.wd")},
    "wasm32": {"features": ("simd128",), "llvm": MULTIPLY_ADD.format("llvm.wasm.dot")},
    "aarch64": {
        "features": ("i8mm",),
        "llvm": "<4 x i32> @llvm.aarch64.neon.smmla.v4i32.v16i8(<4 x i32> {c}, <16 x i8> {a}, <16 x i8> {b})",
    },
}


@kernel
def by_lanes(c: InOut[i32, 4], a: Tensor[i16, 2], b: Tensor[i16, 4, 2]) -> None:
    for j in vector(4):
        c[j] += cast(i32, a[0]) * cast(i32, b[j, 0]) + cast(i32, a[1]) * cast(i32, b[j, 1])


@kernel
def pairs(c: InOut[i32, 4], a: Tensor[i16, 2], b: Tensor[i16, 4, 2]) -> None:
    for j, k in grid(4, 2):
        with block("c", "SR", j, k) as (vj, vk):
            c[vj] += cast(i32, a[vk]) * cast(i32, b[vj, vk])


@kernel
def tiles(c: InOut[i32, 2, 2], a: Tensor[i8, 2, 8], b: Tensor[i8, 2, 8]) -> None:
    for i, j, k in grid(2, 2, 8):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            c[vi, vj] += cast(i32, a[vi, vk]) * cast(i32, b[vj, vk])


@kernel
def byte_pairs(c: InOut[i32, 4], a: Tensor[u8, 2], b: Tensor[i8, 4, 2]) -> None:
    for j, k in grid(4, 2):
        with block("c", "SR", j, k) as (vj, vk):
            c[vj] += cast(i32, a[vk]) * cast(i32, b[vj, vk])


@kernel
def byte_tiles(c: InOut[i32, 2, 2], a: Tensor[u8, 2, 8], b: Tensor[i8, 2, 8]) -> None:
    for i, j, k in grid(2, 2, 8):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            c[vi, vj] += cast(i32, a[vi, vk]) * cast(i32, b[vj, vk])


@kernel
def outer(c: InOut[f32, 4, 4], a: Tensor[f32, 4], b: Tensor[f32, 4]) -> None:
    for i, j in grid(4, 4):
        with block("c", "SS", i, j) as (vi, vj):
            c[vi, vj] += a[vi] * b[vj]


class Declaration(NamedTuple):
    """What is declared for an architecture."""

    description: Kernel
    options: Mapping[str, Any]


_WIDENED = """
    %wide = sext <8 x i8> {{b}} to <8 x i16>
    %word = zext <8 x i8> {{a}} to <8 x i16>
    %sum = call <4 x i32> @{}(<8 x i16> %word, <8 x i16> %wide)
    add <4 x i32> {{c}}, %sum
"""
_OUTER = """
    %rows = shufflevector <4 x float> {a}, <4 x float> poison, <16 x i32> <ORDER>
    %products = fmul <16 x float> {b}, %rows
    fadd <16 x float> {c}, %products
""".replace("ORDER", ", ".join(f"i32 {n // 4}" for n in range(16)))
_USMMLA = "<4 x i32> @llvm.aarch64.neon.usmmla.v4i32.v16i8(<4 x i32> {c}, <16 x i8> {a}, <16 x i8> {b})"

WORDS = {
    "x86_64": Declaration(pairs, {**WITH["x86_64"], "implementation": by_lanes}),
    "wasm32": Declaration(pairs, {**WITH["wasm32"], "implementation": by_lanes}),
    "aarch64": Declaration(tiles, WITH["aarch64"]),
}
# What a compiler of C for x86 has; a loop elsewhere.
_IN_C = (
    "_mm_storeu_si128((__m128i *){c}, _mm_add_epi32(_mm_loadu_si128((const __m128i *){c}), "
    "_mm_madd_epi16(_mm_set_epi16({a}[1], {a}[0], {a}[1], {a}[0], {a}[1], {a}[0], {a}[1], {a}[0]), "
    "_mm_set_epi16({b}[7], {b}[6], {b}[5], {b}[4], {b}[3], {b}[2], {b}[1], {b}[0]))))"
)
C_FORM = {"c": _IN_C, "c_if": "defined(__SSE2__)", "headers": ("emmintrin.h",)}

BYTES = {
    "x86_64": Declaration(byte_pairs, {"features": ("sse2",), "llvm": _WIDENED.format("llvm.x86.sse2.pmadd.wd"), **C_FORM}),
    "wasm32": Declaration(byte_pairs, {"features": ("simd128",), "llvm": _WIDENED.format("llvm.wasm.dot")}),
    "aarch64": Declaration(byte_tiles, {"features": ("i8mm",), "llvm": _USMMLA}),
}
OUTER = {arch: Declaration(outer, {"llvm": _OUTER}) for arch in WORDS}


@contextmanager
def declared(arch: str, name: str = "mine", kind: Mapping[str, Declaration] = WORDS) -> Iterator[str]:
    """The instruction of an architecture, declared while the block runs."""
    description, options = kind[arch]
    made = pliant.instruction(arch=arch, name=name, **options)(description)
    try:
        yield made.name
    finally:
        made.withdraw()
