"""Decisions that cannot be: values outside of a domain, names that nobody asks about, things that are no values."""

from __future__ import annotations

import pytest

import pliant
from pliant import Out, ScheduleError, Tensor, block, dim, f32, grid, init, kernel

n = dim("n")


@kernel
def matmul(a: Tensor[f32, n, 64], b: Tensor[f32, 64, 96], c: Out[f32, n, 96]) -> None:
    for i, j, k in grid(n, 96, 64):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


@pytest.mark.parametrize(
    ("name", "value", "what", "more"),
    [
        ("c.share", "columns", "decision `c.share` cannot be columns in `matmul`", "it may be panels, rows"),
        ("c.tile", (9, 1), "decision `c.tile` cannot be 9x1 in `matmul`", "it may be 1x1, 1x2, "),
        ("c.tile", 4, "decision `c.tile` cannot be 4 in `matmul`", "it may be 1x1, 1x2, "),
        ("c.unroll", True, "decision `c.unroll` cannot be True in `matmul`", "it may be 1, 2, 4, 8"),
        ("c.unroll", 3, "decision `c.unroll` cannot be 3 in `matmul`", "the default is 1"),
        ("c.tiles", (2, 1), "no rule makes a decision `c.tiles`", "did you mean `c.tile`"),
        ("d.tile", (2, 1), "no rule makes a decision `d.tile`", "`c.tile`"),
        ("other.c.tile", (2, 1), "no rule makes a decision `other.c.tile`", "there are `c.copy_from`, `c.tile`"),
        ("tile", (2, 1), "no rule makes a decision `tile`", "there are `c.copy_from`, `c.tile`"),
        ("c.tile", 1.5, "decision `c.tile` cannot be 1.5", "a decision is a whole number, a text, True or False, or a tuple"),
        ("c.tile", None, "decision `c.tile` cannot be None", "a decision is a whole number"),
    ],
)
def test_what_a_decision_cannot_be_is_said_with_what_it_may_be(name: str, value: object, what: str, more: str) -> None:
    with pytest.raises(ScheduleError) as error:
        pliant.compile(matmul, decisions={name: value})
    assert what in str(error.value) and more in str(error.value)


def test_a_schedule_of_ones_own_has_no_decisions() -> None:
    with pytest.raises(ScheduleError, match=r"no rule makes a decision `c\.tile`"):
        pliant.compile(pliant.Schedule(matmul), decisions={"c.tile": (2, 1)})
