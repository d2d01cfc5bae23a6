"""Removes FMA contraction from expressions, for machines without fused multiply-add.

    unfuse(muladd(a, b, exp(x)))  ->  a * b + exp(x, fused=False)

An explicit `Fma` stays: its author requires a single rounding. See docs/design/0016-functions-without-fma.md.
"""

from __future__ import annotations

from .expr import Add, Call, Expr, Mul, MulAdd
from .function_names import UNFUSED
from .walk import rewrite


def unfuse(e: Expr, memo: dict[Expr, Expr] | None = None) -> Expr:
    """`e` without `MulAdd` and without functions that are defined by FMA; the same object if there are none."""
    memo = {} if memo is None else memo

    def leaf(node: Expr) -> Expr | None:
        if isinstance(node, MulAdd):
            a, b, c = (rewrite(x, leaf, memo) for x in node.args)
            return Add(Mul(a, b), c)
        if isinstance(node, Call) and node.fn in UNFUSED:
            return Call(UNFUSED[node.fn], *(rewrite(x, leaf, memo) for x in node.args))
        return None

    return rewrite(e, leaf, memo)
