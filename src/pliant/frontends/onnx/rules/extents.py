"""Arithmetic on dims in rules: integers for constant dims, expressions for symbolic ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....sym.expr import Const, Expr, Max, Min, const, product
from ....sym.simplify import simplify
from ..emit import ops


def plain(n: Any) -> Any:
    """Returns an extent simplified; an integer if it is constant."""
    n = simplify(n) if isinstance(n, Expr) else n
    return n.value if isinstance(n, Const) else n


def total(dims: Sequence[Any]) -> Any:
    """Returns the product of dims; an integer if it is constant."""
    return plain(product(tuple(const(n) if isinstance(n, int) else n for n in dims)))


def least(n: Any, m: Any) -> Any:
    """Returns the smaller of two extents; an integer if it is constant."""
    return plain(Min(*(const(v) if isinstance(v, int) else v for v in (n, m))))


def most(n: Any, m: Any) -> Any:
    """Returns the larger of two extents; an integer if it is constant."""
    return plain(Max(*(const(v) if isinstance(v, int) else v for v in (n, m))))


def extent(n: Any, of: Any) -> Any:
    """Returns a dim as a value of a dtype: a literal, or a host scalar."""
    n = plain(n)
    if isinstance(n, int):
        return ops.constant(n if of.is_int else float(n), of)
    value = ops.add(n, 0)
    return value if value.annotation.dtype is of else ops.cast(value, of)
