"""Wrong declarations of tensor instructions: what is said, where, and that nothing stays declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pliant
from declared_instructions import MULTIPLY_ADD, by_lanes, pairs
from levels import runs_here
from pliant import Error, InOut, Out, Tensor, block, cast, dim, grid, i4, i16, i32, init, kernel, vector
from pliant.target.declared import DECLARED

n = dim("n")
NOT_THERE = "<4 x i32> @llvm.x86.avx512.vpdpwssd.128(<4 x i32> {c}, <8 x i16> {a}, <8 x i16> {b})"  # with SSE2 alone
GOOD = MULTIPLY_ADD.format("llvm.x86.sse2.pmadd.wd")


@kernel
def forgets_a_term(c: InOut[i32, 4], a: Tensor[i16, 2], b: Tensor[i16, 4, 2]) -> None:
    for j in vector(4):
        c[j] += cast(i32, a[0]) * cast(i32, b[j, 0])


@kernel
def other_operands(c: InOut[i32, 4], a: Tensor[i16, 2], b: Tensor[i16, 2, 4]) -> None:
    for j in vector(4):
        c[j] += cast(i32, a[0]) * cast(i32, b[0, j])


@kernel
def two_loops(c: InOut[i32, 4], a: Tensor[i16, 2], b: Tensor[i16, 4, 2]) -> None:
    for j in vector(4):
        c[j] += cast(i32, a[0]) * cast(i32, b[j, 0])
    for j in vector(4):
        c[j] += cast(i32, a[1]) * cast(i32, b[j, 1])


@kernel
def with_init(c: Out[i32, 4], a: Tensor[i16, 2], b: Tensor[i16, 4, 2]) -> None:
    for j, k in grid(4, 2):
        with block("c", "SR", j, k) as (vj, vk):
            with init():
                c[vj] = 0
            c[vj] += cast(i32, a[vk]) * cast(i32, b[vj, vk])


@kernel
def of_any_size(c: InOut[i32, n], a: Tensor[i32, n]) -> None:
    for j in grid(n):
        with block("c", "S", j) as vj:
            c[vj] = c[vj] + a[vj]


@kernel
def half_used(c: InOut[i32, 4], a: Tensor[i32, 8]) -> None:
    for j in grid(4):
        with block("c", "S", j) as vj:
            c[vj] = c[vj] + a[vj]


@kernel
def two_results(c: InOut[i32, 4], d: InOut[i32, 4]) -> None:
    for j in grid(4):
        with block("c", "S", j) as vj:
            c[vj] = c[vj] + d[vj]


@kernel
def nibbles(c: InOut[i32, 4], a: Tensor[i4, 4]) -> None:
    for j in grid(4):
        with block("c", "S", j) as vj:
            c[vj] = c[vj] + cast(i32, a[vj])


@kernel
def with_a_choice(c: InOut[i32, 4], a: Tensor[i16, 2], b: Tensor[i16, 4, 2]) -> None:
    for j in vector(4):
        if j < 4:
            c[j] += cast(i32, a[0]) * cast(i32, b[j, 0]) + cast(i32, a[1]) * cast(i32, b[j, 1])


# description, arguments of the declaration, what the message says
WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (pairs, {"arch": "x86"}, "there is no architecture `x86`"),
    (pairs, {"features": ("ssse4",)}, "x86_64 has no feature `ssse4`"),
    (pairs, {"name": "avx2.dot_u8s8"}, "there is a built-in instruction `avx2.dot_u8s8`"),
    (pairs, {"implementation": forgets_a_term}, "the implementation does not compute what it should"),
    (pairs, {"implementation": other_operands}, "its description and its implementation take different operands"),
    (pairs, {"implementation": two_loops}, "its implementation is not one loop"),
    (pairs, {"implementation": with_a_choice, "llvm": GOOD}, "code generators would not recognize its implementation"),
    (with_init, {}, "its description is not loops around one block"),
    (of_any_size, {}, "its operands are tensors of constant shapes"),
    (half_used, {}, r"`a\[j\]` does not go through all of `a`"),
    (two_results, {}, "it writes one operand, not 2"),
    (nibbles, {}, "operand `a` is not rows of whole bytes"),
    (pairs, {"llvm": "<4 x i32> @llvm.x86.sse2.pmadd.wd(<8 x i16> {a}, <8 x i16> {x})"}, "uses `{x}`, which is no operand"),
    (pairs, {"llvm": "<4 x i32> @memcpy(<4 x i32> {c})"}, "may not stand in an LLVM form"),
    (pairs, {"llvm": "call <4 x i32> @memcpy(<4 x i32> {c})"}, "calls only LLVM's intrinsics"),
    (pairs, {"llvm": "%x = add <4 x i32> {c}, {c}"}, "the last line of an LLVM form is the result"),
    (pairs, {"llvm": "add <4 x i32> {c}, {c}\nadd <4 x i32> {c}, {c}"}, "a line of an LLVM form names no value"),
    (pairs, {"llvm": "add <4 x i32> {c}, %p"}, "no line of the LLVM form names `%p` before"),
    (pairs, {"llvm": "%p = fadd fast <4 x i32> {c}, {c}\nadd <4 x i32> {c}, %p"}, "has the fast-math flag `fast`"),
    (pairs, {"llvm": "%p = load <4 x i32>, ptr {c}\nadd <4 x i32> {c}, %p"}, "`load` may not stand in an LLVM form"),
    (pairs, {"llvm": GOOD.replace("<8 x i16> {b}", "<3 x i16> {b}")}, "operand `b` is no <3 x i16>"),
    (pairs, {"llvm": "<8 x i32> @llvm.x86.sse2.pmadd.wd(<8 x i16> {a}, <8 x i16> {b})"}, "does not result in `c`"),
    (pairs, {"llvm": GOOD.replace("pmadd.wd", "pmadd.dw")}, "LLVM has no intrinsic `llvm.x86.sse2.pmadd.dw`"),
    (pairs, {"llvm": NOT_THERE}, "LLVM does not take its form"),
]  # fmt: skip


@pytest.mark.parametrize(("description", "options", "message"), WRONG, ids=[m for _, _, m in WRONG])
def test_wrong_declarations(description: Callable[..., Any], options: dict[str, Any], message: str) -> None:
    declare = pliant.instruction(**{"arch": "x86_64", "features": ("sse2",), **options})
    with pytest.raises(Error, match=message.replace("{", r"\{").replace("}", r"\}")) as caught:
        declare(description)
    places = [line for line in str(caught.value).splitlines() if "-->" in line]
    assert places and all("/tests/" in line for line in places)
    assert not DECLARED


def test_the_first_element_that_differs_is_told() -> None:
    with pytest.raises(Error) as caught:
        pliant.instruction(arch="x86_64", implementation=forgets_a_term)(pairs)
    text = str(caught.value)
    assert "c[0] is np.int32(" in text and "`b` = [[" in text


@pytest.mark.skipif(not runs_here("llvm:x86-64"), reason="runs x86-64 code")
def test_a_form_that_computes_something_else_is_found_by_running_it() -> None:
    with pytest.raises(Error, match="the LLVM form does not compute what it should") as caught:
        pliant.instruction(arch="x86_64", features=("sse2",), implementation=by_lanes, llvm=GOOD.replace("add <4", "sub <4"))(pairs)
    assert "c[0] is" in str(caught.value) and not DECLARED
