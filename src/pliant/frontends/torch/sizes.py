"""Arithmetic on sizes in an exported graph: nodes that call Python operators on symbolic integers, and questions about sizes.

sym_size.int(x, 0) * 2 + 1       ->      n * 2 + 1, from the shape that our operators deduced for x
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import cache
from typing import Any

from ...dtype import bool_, f64, i64
from ...sym.expr import And, Cast, Const, Div, Eq, Expr, Le, Lt, Max, Min, Ne, Not, Or, Select, product
from ...sym.function_names import ARITIES
from .site import shape
from .symbols import plain, wide


def _real(x: Any) -> Expr:
    """Returns a number or an expression as an f64 expression."""
    if isinstance(x, Expr):
        return x if x.dtype is f64 else Cast(f64, x)
    return Const(float(x), f64)


def _binary(integers: Callable[[Any, Any], Any], reals: Callable[[Any, Any], Any] | None = None) -> Callable[[Any, Any], Any]:
    """Returns a function of two sizes from one of integer expressions and one of f64 expressions (by default the same).

    It takes the second if a number is a float or an expression is f64.
    """

    def apply(a: Any, b: Any) -> Any:
        if any(isinstance(x, float) or (isinstance(x, Expr) and x.dtype is f64) for x in (a, b)):
            return (reals or integers)(_real(a), _real(b))
        return integers(wide(a), wide(b))

    return apply


def _called(name: str) -> Callable[[Any], Any]:
    """Returns a function that applies the function of this name to a number or an expression, as an f64 expression."""
    from ...sym.expr import Call

    assert name in ARITIES
    return lambda x: Call(name, _real(x))


def _whole(name: str) -> Callable[[Any], Any]:
    """Returns a function that rounds a number or an expression to an i64 expression; one that is i64 already stays."""
    inner = _called(name)
    return lambda x: x if isinstance(x, Expr) and x.dtype is i64 else Cast(i64, inner(x))


def _condition(x: Any) -> Expr:
    """Returns a condition or a bool as an expression."""
    return x if isinstance(x, Expr) else Const(bool(x), bool_)


@cache
def functions() -> dict[Any, tuple[Callable[..., Any], Callable[..., Any]]]:
    """Returns, for each Python function that graphs call on sizes, the function of numbers and that of expressions."""
    import torch

    compare = {
        operator.eq: lambda a, b: Eq(a, b), operator.ne: lambda a, b: Ne(a, b), operator.lt: lambda a, b: Lt(a, b),
        operator.le: lambda a, b: Le(a, b), operator.gt: lambda a, b: Lt(b, a), operator.ge: lambda a, b: Le(b, a),
    }  # fmt: skip
    table: dict[Any, tuple[Callable[..., Any], Callable[..., Any]]] = {f: (f, _binary(build)) for f, build in compare.items()}
    for f in (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod):
        table[f] = (f, _binary(f))
    table |= {
        operator.truediv: (operator.truediv, lambda a, b: Div(_real(a), _real(b))),
        operator.neg: (operator.neg, operator.neg),
        operator.pow: (operator.pow, lambda a, b: plain(product((wide(a),) * b)) if isinstance(b, int) else None),
        operator.and_: (operator.and_, lambda a, b: And(_condition(a), _condition(b))),
        operator.or_: (operator.or_, lambda a, b: Or(_condition(a), _condition(b))),
        torch.sym_not: (operator.not_, lambda a: Not(_condition(a))),
        torch.sym_max: (max, _binary(lambda a, b: Max(a, b))),
        torch.sym_min: (min, _binary(lambda a, b: Min(a, b))),
        torch.sym_ite: (lambda c, a, b: a if c else b, lambda c, a, b: Select(_condition(c), wide(a), wide(b))),
        torch.sym_float: (float, _real),
        torch.sym_int: (int, _whole("trunc")),
        math.trunc: (math.trunc, _whole("trunc")),
        math.floor: (math.floor, _whole("floor")),
        math.ceil: (math.ceil, _whole("ceil")),
        round: (round, _whole("round")),
    }
    return table


def computed(target: Any, args: tuple[Any, ...]) -> Any:
    """Returns the result of a Python function of sizes: a number if all arguments are numbers, else a simplified expression."""
    numbers, expressions = functions()[target]
    if any(isinstance(a, Expr) for a in args):
        return plain(expressions(*args))
    return numbers(*args)


def asked(name: str, args: tuple[Any, ...]) -> Any:
    """Returns the answer to a question about a tensor: `aten.sym_size`, `sym_numel`, `sym_stride` or `sym_storage_offset`.

    Sizes and strides are those of one axis if it is given, else a list. Strides are those of a contiguous tensor, the offset is 0.
    """
    extents = shape(args[0])
    if name == "aten.sym_numel":
        return plain(product(tuple(map(wide, extents))))
    if name == "aten.sym_storage_offset":
        return 0
    if name == "aten.sym_stride":
        strides = [plain(product(tuple(map(wide, extents[k + 1 :])))) for k in range(len(extents))]
        return strides[args[1]] if len(args) > 1 else strides
    return extents[args[1]] if len(args) > 1 else list(extents)


QUESTIONS = frozenset({"aten.sym_size", "aten.sym_numel", "aten.sym_stride", "aten.sym_storage_offset"})
