"""Comparisons, logic on bools, tests for NaN and infinity; and `cast`. The choice `where` is in `select.py`.

ops.less(x, 0.0), ops.logical_and(a, b), ops.cast(x, f16)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...dtype import DType
from ...dtype import dtype as to_dtype
from ...support.errors import Error
from ...support.record import dataclass
from ...sym import expr as E
from ...sym.expr import Call, Cast, Const
from ...sym.semantics import cast as cast_array
from ..deduce import Deduction
from ..node import Annotation
from ..operators import OpCall
from .elementwise import BOOLS, COMPARES, ORDERS, Formula, Kind, elementwise, pointwise, result_of

if TYPE_CHECKING:
    from ...sym.typing_stubs import bool_ as Bool

T = TypeVar("T")


_TESTS = Kind(floats=True, compares=True)


@dataclass(frozen=True, slots=True)
class CastAttrs:
    """The attributes of `cast`: the dtype of the result."""

    dtype: DType


def _deduce_cast(d: Deduction, attrs: CastAttrs) -> tuple[Annotation, ...]:
    d.tensor(0)
    if attrs.dtype.storage:
        raise d.error(f"cast to {attrs.dtype}: it is a storage type, in which nothing is computed")
    return (result_of(d, attrs.dtype, _cast_formula(attrs)),)


def _cast_formula(attrs: CastAttrs) -> Formula:
    return lambda x: Cast(attrs.dtype, x)


@elementwise(E.Eq, np.equal, COMPARES)
def equal(op: OpCall, x: T, y: T | float) -> Bool:
    """`x == y`, elementwise."""
    return op.emit(x, y)


@elementwise(E.Ne, np.not_equal, COMPARES)
def not_equal(op: OpCall, x: T, y: T | float) -> Bool:
    """`x != y`, elementwise."""
    return op.emit(x, y)


@elementwise(E.Lt, np.less, ORDERS)
def less(op: OpCall, x: T, y: T | float) -> Bool:
    """`x < y`, elementwise."""
    return op.emit(x, y)


@elementwise(E.Le, np.less_equal, ORDERS)
def less_equal(op: OpCall, x: T, y: T | float) -> Bool:
    """`x <= y`, elementwise."""
    return op.emit(x, y)


@elementwise(lambda a, b: E.Lt(b, a), np.greater, ORDERS)
def greater(op: OpCall, x: T, y: T | float) -> Bool:
    """`x > y`, elementwise."""
    return op.emit(x, y)


@elementwise(lambda a, b: E.Le(b, a), np.greater_equal, ORDERS)
def greater_equal(op: OpCall, x: T, y: T | float) -> Bool:
    """`x >= y`, elementwise."""
    return op.emit(x, y)


@elementwise(E.And, np.logical_and, BOOLS)
def logical_and(op: OpCall, x: T, y: T) -> T:
    """`x and y` of bools, elementwise."""
    return op.emit(x, y)


@elementwise(E.Or, np.logical_or, BOOLS)
def logical_or(op: OpCall, x: T, y: T) -> T:
    """`x or y` of bools, elementwise."""
    return op.emit(x, y)


@elementwise(E.Not, np.logical_not, BOOLS)
def logical_not(op: OpCall, x: T) -> T:
    """`not x` of bools, elementwise."""
    return op.emit(x)


@pointwise(
    deduce=_deduce_cast,
    reference=lambda args, attrs: [np.asarray(cast_array(args[0], attrs.dtype))],
    formula=_cast_formula,
    attrs=CastAttrs,
)
def cast(op: OpCall, x: Any, dtype: type[T]) -> T:
    """`x` converted to another data type.

    Raises an Error for a Python number, which takes the dtype of the tensor beside it.
    """
    if isinstance(x, bool | int | float):
        raise Error(f"{op.name} of the Python number {x}", help="a number takes the dtype of the tensor beside it")
    return op.emit(x, attrs=CastAttrs(to_dtype(dtype)))


@elementwise(E.Ne, np.logical_xor, BOOLS)
def logical_xor(op: OpCall, x: T, y: T) -> T:
    """True where exactly one of two bools is true."""
    return op.emit(x, y)


@elementwise(lambda x: E.Ne(x, x), np.isnan, _TESTS)
def is_nan(op: OpCall, x: Any) -> Bool:
    """True where `x` is NaN."""
    return op.emit(x)


@elementwise(lambda x: E.Eq(Call("abs", x), Const(math.inf, x.dtype)), np.isinf, _TESTS)
def is_inf(op: OpCall, x: Any) -> Bool:
    """True where `x` is infinite, of either sign."""
    return op.emit(x)


@elementwise(lambda x: E.Lt(Call("abs", x), Const(math.inf, x.dtype)), np.isfinite, _TESTS)
def is_finite(op: OpCall, x: Any) -> Bool:
    """True where `x` is neither infinite nor NaN."""
    return op.emit(x)
