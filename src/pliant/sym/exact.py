"""Evaluates formulas of dims in unbounded integers, for operation counts and bytes; unlike i64 in programs, nothing wraps.

>>> n = Var("n"); exact(n * n * 4, {n: 2**31 - 1})
18446744056529682436
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ..support.errors import InternalError
from . import expr as E
from .expr import Const, Expr, Var
from .walk import walk

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
    """Returns the value of a formula for concrete dims, computed in unbounded integers.

    Raises InternalError for other than integer operations.
    """
    value: dict[Expr, Any] = {}
    for node in walk(e):
        if isinstance(node, Const):
            value[node] = node.value
        elif isinstance(node, Var):
            value[node] = int(values[node])
        elif type(node) in _OPS and all(a.dtype.is_int or a.dtype.kind == "b" for a in node.args):
            value[node] = _OPS[type(node)](*(value[a] for a in node.args))
        else:
            raise InternalError(f"`{node}` is no part of a formula of dims")
    return int(value[e])
