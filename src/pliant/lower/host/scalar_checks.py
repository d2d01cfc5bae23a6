"""Checked mode for host scalars: emits checks for overflow and division by zero before the host program computes one.

    k = floor_divide(s, t)      ->      check(t != 0, "`s // t` divides by zero in `floor_divide`: …"); k = s // t

A load of a host scalar needs no bounds check: its buffer has exactly one element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...graph import node as g
from ...loop.buffer import Load
from ...loop.passes.check_exprs import ExprChecks
from ...loop.stmt import Replacer, Stmt
from ...sym.expr import Expr, Var


def scalar_checks(n: g.Op, formula: Callable[[Sequence[Expr]], Expr], args: Sequence[Expr]) -> list[Stmt]:
    """Returns the checks for an operator on host scalars that is computed by its formula; messages use the names of the arguments."""
    named = [Var(v.name, e.dtype) if isinstance(e, Load) else e for v, e in zip(n.args, args, strict=True)]
    replacer = Replacer({v: e for v, e in zip(named, args, strict=True) if isinstance(v, Var) and v is not e})
    return [replacer.stmt(s) for s in ExprChecks(n.op, n.span).all([formula(named)])]


def size_checks(n: g.Op, value: Expr) -> list[Stmt]:
    """Returns the checks for a host scalar computed from dims: no division by zero, no overflow."""
    return ExprChecks(n.op, n.span).all([value], index=True)
