"""Blocks as plain statements: where inits go. Programs are written and compared as text."""

from __future__ import annotations

import pytest

from pliant.loop.parse import parse_module
from pliant.loop.passes.lower_blocks import lower_blocks
from pliant.loop.printer import print_func
from pliant.loop.stmt import Block, Func, walk_stmts

HEAD = """from pliant import Out, Tensor, block, dim, f32, grid, init, kernel

n = dim("n")
m = dim("m")


@kernel
def f(a: Tensor[f32, n, m], c: Out[f32, n]) -> None:
"""


def lowered(body: str) -> str:
    """The body of a kernel after lowering, without its head."""
    func: Func = parse_module(HEAD + body)["f"]
    result = lower_blocks(func)
    assert not any(isinstance(s, Block) for s in walk_stmts(result.body))
    return print_func(result).split("-> None:\n")[1].rstrip()


CASES = {
    "the init runs before the reduction loop": (
        """
    for i in range(n):
        for k in range(m):
            with block("c", "SR", i, k) as (vi, vk):
                with init():
                    c[vi] = 0.0
                c[vi] += a[vi, vk]
""",
        """
    for i in range(n):
        c[i] = 0.0
        for k in range(m):
            c[i] += a[i, k]
""",
    ),
    "spatial loops inside of it are repeated": (
        """
    for k in range(m):
        for i in range(n):
            with block("c", "SR", i, k) as (vi, vk):
                with init():
                    c[vi] = 0.0
                c[vi] += a[vi, vk]
""",
        """
    for i in range(n):
        c[i] = 0.0
    for k, i in grid(m, n):
        c[i] += a[i, k]
""",
    ),
    "a fused loop asks for the first instance": (
        """
    for t in range(n * m):
        with block("c", "SR", t // m, t % m) as (vi, vk):
            with init():
                c[vi] = 0.0
            c[vi] += a[vi, vk]
""",
        """
    for t in range(n * m):
        if t % m == 0:
            c[t // m] = 0.0
        c[t // m] += a[t // m, t % m]
""",
    ),
    "a block without reduction iterators begins with its init": (
        """
    for i in range(n):
        with block("c", "S", i) as (vi,):
            with init():
                c[vi] = 0.0
            c[vi] += a[vi, 0]
""",
        """
    for i in range(n):
        c[i] = 0.0
        c[i] += a[i, 0]
""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_where_an_init_runs(name: str) -> None:
    before, after = CASES[name]
    assert lowered(before.lstrip("\n")) == after.strip("\n")


def test_a_predicate_guards_the_init_by_its_spatial_part() -> None:
    text = lowered(
        """    for k_0, i_0, i_1, k_1 in grid(m // 4 + 1, n // 8 + 1, 8, 4):
        with block("c", "SR", i_0 * 8 + i_1, k_0 * 4 + k_1) as (vi, vk):
            where(vi < n and vk < m)
            with init():
                c[vi] = 0.0
            c[vi] += a[vi, vk]
"""
    )
    init, rest = text.split("for k_0", 1)
    assert "if i_0 * 8 + i_1 < n:" in init and "k_" not in init
    assert "i_0" in rest and " < m" in rest


def test_a_program_without_blocks_is_returned_as_it_is() -> None:
    func = parse_module(HEAD + "    for i in range(n):\n        c[i] = a[i, 0]\n")["f"]
    assert lower_blocks(func) is func
