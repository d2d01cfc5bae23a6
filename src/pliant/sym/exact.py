"""Formulas of dims as whole numbers of any size: what counts and bytes are asked for. Nothing wraps here, as i64 does in programs.

>>> n = Var("n"); exact(n * n * 4, {n: 2**31 - 1})
18446744056529682436
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ..support.errors import InternalError
from . import expr as E
from .expr import Const, Expr, Var, walk

_OPS: dict[type[Expr], Callable[..., Any]] = {
    E.Add: operator.add,
    E.Sub: operator.sub,
    E.Mul: operator.mul,
    E.FloorDiv: lambda a, b: a // b if b else 0,
    E.FloorMod: lambda a, b: a % b if b else 0,
    E.Min: min,
    E.Max: max,
    E.Eq: operator.eq,
    E.Ne: operator.ne,
    E.Lt: operator.lt,
    E.Le: operator.le,
    E.BitAnd: operator.and_,
    E.BitOr: operator.or_,
    E.BitXor: operator.xor,
    E.And: lambda a, b: a and b,
    E.Or: lambda a, b: a or b,
    E.Not: operator.not_,
    E.Neg: operator.neg,
    E.Select: lambda c, a, b: a if c else b,
    E.Cast: int,
}


def exact(e: Expr, values: Mapping[Var, int]) -> int:
    """The number that a formula over dims gives."""
    found: dict[Expr, Any] = {}
    for node in walk(e):
        if isinstance(node, Const):
            found[node] = node.value
        elif isinstance(node, Var):
            found[node] = int(values[node])
        elif type(node) in _OPS and all(a.dtype.is_int or a.dtype.kind == "b" for a in node.args):
            found[node] = _OPS[type(node)](*(found[a] for a in node.args))
        else:
            raise InternalError(f"`{node}` is no part of a formula of dims")
    return int(found[e])
