"""Checked mode of host scalars: what has to hold where the host program computes one, as statements before it.

    k = floor_divide(s, t)      ->      check(t != 0, "`s // t` divides by zero in `floor_divide`: …"); k = s // t

What is read from memory (an argument, or what a kernel has given) needs no check of its own: a host scalar is all of its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...graph import node as g
from ...loop.buffer import Load
from ...loop.passes.check_exprs import ExprChecks
from ...loop.stmt import Replacer, Stmt
from ...sym.expr import Expr, Var


def scalar_checks(n: g.Op, formula: Callable[[Sequence[Expr]], Expr], args: Sequence[Expr]) -> list[Stmt]:
    """What has to hold where an operator on host scalars is computed by its formula; messages call the arguments by their names."""
    named = [Var(v.name, e.dtype) if isinstance(e, Load) else e for v, e in zip(n.args, args, strict=True)]
    replacer = Replacer({v: e for v, e in zip(named, args, strict=True) if isinstance(v, Var) and v is not e})
    return [replacer.stmt(s) for s in ExprChecks(n.op, n.span).all([formula(named)])]


def size_checks(n: g.Op, value: Expr) -> list[Stmt]:
    """What has to hold where a host scalar made of dims is computed: no division by zero, no overflow."""
    return ExprChecks(n.op, n.span).all([value], index=True)
