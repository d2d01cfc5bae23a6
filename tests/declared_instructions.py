"""Tensor instructions that tests declare, as users do: one for x86, one for aarch64, one for wasm, each of sums of products of i16 or i8.

with declared(PAIRS["x86_64"]) as name: ...        # withdrawn at the end
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pliant
from pliant import InOut, Tensor, block, cast, grid, i8, i16, i32, kernel, vector

MULTIPLY_ADD = "%p = call <4 x i32> @{}(<8 x i16> {{a}}, <8 x i16> {{b}})\nadd <4 x i32> {{c}}, %p"
WITH = {
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


@contextmanager
def declared(arch: str, name: str = "mine") -> Iterator[str]:
    """The instruction of an architecture, declared while the block runs."""
    description, how = (tiles, {}) if arch == "aarch64" else (pairs, {"implementation": by_lanes})
    options: dict[str, Any] = {**WITH[arch], **how}
    made = pliant.instruction(arch=arch, name=name, **options)(description)
    try:
        yield made.name
    finally:
        made.withdraw()
