"""Operators about truth: comparisons, logic, the choice `where`; and `cast`.

ops.where(ops.less(x, 0.0), 0.0, x), ops.cast(x, f16)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...dtype import DType, bool_
from ...dtype import dtype as to_dtype
from ...support.errors import Error
from ...support.record import dataclass
from ...sym import expr as E
from ...sym.expr import Call, Cast, Const, Select
from ...sym.semantics import cast as cast_array
from ..deduce import Deduction
from ..node import Annotation
from ..operators import OpDef, emit, operand, operands, register
from .elementwise import BOOLS, COMPARES, ORDERS, Formula, Kind, elementwise, result_of, stage_of

if TYPE_CHECKING:
    from ...sym.typing_stubs import bool_ as Bool

T = TypeVar("T")

_BINARY: tuple[tuple[str, Formula, Callable[..., Any], Kind], ...] = (
    ("equal", E.Eq, np.equal, COMPARES),
    ("not_equal", E.Ne, np.not_equal, COMPARES),
    ("less", E.Lt, np.less, ORDERS),
    ("less_equal", E.Le, np.less_equal, ORDERS),
    ("greater", lambda a, b: E.Lt(b, a), np.greater, ORDERS),
    ("greater_equal", lambda a, b: E.Le(b, a), np.greater_equal, ORDERS),
    ("logical_and", E.And, np.logical_and, BOOLS),
    ("logical_or", E.Or, np.logical_or, BOOLS),
    ("logical_xor", E.Ne, np.logical_xor, BOOLS),
)

for _name, _formula, _reference, _kind in _BINARY:
    elementwise(_name, _formula, _reference, 2, _kind)
elementwise("logical_not", E.Not, np.logical_not, 1, BOOLS)
_TESTS = Kind(floats=True, compares=True)
elementwise("is_nan", lambda x: E.Ne(x, x), np.isnan, 1, _TESTS)
elementwise("is_inf", lambda x: E.Eq(Call("abs", x), Const(math.inf, x.dtype)), np.isinf, 1, _TESTS)
elementwise("is_finite", lambda x: E.Lt(Call("abs", x), Const(math.inf, x.dtype)), np.isfinite, 1, _TESTS)


# where: a choice has a condition of another dtype.
def _deduce_where(d: Deduction, attrs: Any) -> tuple[Annotation, ...]:
    if d.tensor(0).dtype is not bool_:
        raise d.error(f"where: the condition `{d.args[0].name}` is {d.tensor(0).dtype}, not bool", arg=0, help="compare first: `x != 0`")
    if d.tensor(1).dtype is not d.tensor(2).dtype:
        raise d.error(f"where of {d.tensor(1).dtype} and {d.tensor(2).dtype}: nothing is cast implicitly", arg=2)
    return (result_of(d, d.tensor(1).dtype, Select),)


register(
    OpDef(
        "where",
        _deduce_where,
        lambda args, attrs: [np.where(*args)],
        lambda args, outs, attrs: (stage_of("where", Select, args, outs[0]),),
        (3, 3),
        broadcasts=True,
    )
)


@dataclass(frozen=True, slots=True)
class CastAttrs:
    """The dtype to cast to."""

    dtype: DType


def _deduce_cast(d: Deduction, attrs: CastAttrs) -> tuple[Annotation, ...]:
    d.tensor(0)
    if attrs.dtype.storage:
        raise d.error(f"cast to {attrs.dtype}: it is a storage type, in which nothing is computed")
    return (result_of(d, attrs.dtype, lambda x: Cast(attrs.dtype, x)),)


register(
    OpDef(
        "cast",
        _deduce_cast,
        lambda args, attrs: [np.asarray(cast_array(args[0], attrs.dtype))],
        lambda args, outs, attrs: (stage_of("cast", lambda x: Cast(attrs.dtype, x), args, outs[0]),),
        (1, 1),
        CastAttrs,
    )
)


def equal(x: T, y: T | float) -> Bool:
    """Where `x == y`."""
    return emit("equal", (x, y))


def not_equal(x: T, y: T | float) -> Bool:
    """Where `x != y`."""
    return emit("not_equal", (x, y))


def less(x: T, y: T | float) -> Bool:
    """Where `x < y`."""
    return emit("less", (x, y))


def less_equal(x: T, y: T | float) -> Bool:
    """Where `x <= y`."""
    return emit("less_equal", (x, y))


def greater(x: T, y: T | float) -> Bool:
    """Where `x > y`."""
    return emit("greater", (x, y))


def greater_equal(x: T, y: T | float) -> Bool:
    """Where `x >= y`."""
    return emit("greater_equal", (x, y))


def logical_and(x: T, y: T) -> T:
    """Where both bools hold."""
    return emit("logical_and", (x, y))


def logical_or(x: T, y: T) -> T:
    """Where either bool holds."""
    return emit("logical_or", (x, y))


def logical_not(x: T) -> T:
    """Where a bool does not hold."""
    return emit("logical_not", (x,))


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """`x` where the condition holds, else `y`; with a condition alone, the indices at which it holds, a tensor for each dim."""
    if x is None and y is None:
        from .select import places_where

        return places_where(condition)
    chosen = operands("where", (x, y))
    return emit("where", (operand("where", condition, bool_), *chosen))


def cast(x: Any, dtype: type[T]) -> T:
    """`x` in another data type."""
    if isinstance(x, bool | int | float):
        raise Error(f"cast of the Python number {x}", help="a number takes the dtype of the tensor beside it")
    return emit("cast", (x,), CastAttrs(to_dtype(dtype)))


def logical_xor(x: T, y: T) -> T:
    """Where one of the bools is true and the other is not."""
    return emit("logical_xor", (x, y))


def is_nan(x: Any) -> Bool:
    """Where `x` is not a number."""
    return emit("is_nan", (x,))


def is_inf(x: Any) -> Bool:
    """Where `x` is infinite, of either sign."""
    return emit("is_inf", (x,))


def is_finite(x: Any) -> Bool:
    """Where `x` is neither infinite nor NaN."""
    return emit("is_finite", (x,))
