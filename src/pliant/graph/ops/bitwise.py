"""Bitwise operators on integers. A shift by the width or more, or by a negative amount, shifts all bits out.

ops.bitwise_and(x, 15), ops.shift_right(x, 4)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...sym import expr as E
from ..operators import Array, OpCall
from .elementwise import INTS, elementwise

T = TypeVar("T")


def _np_shift(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a shift function for numpy arrays that shifts all bits out for amounts outside of 0..width-1, which numpy leaves undefined.

    The result is then 0, or -1 for a right shift of a negative number.
    """

    def shift(x: Array, by: Array) -> Any:
        inside = (by >= 0) & (by < x.dtype.itemsize * 8)
        gone = np.where(x < 0, -1, 0) if fn is np.right_shift else 0
        return np.where(inside, fn(x, np.where(inside, by, 0)), gone)

    return shift


@elementwise(E.BitAnd, np.bitwise_and, INTS)
def bitwise_and(op: OpCall, x: T, y: T | int) -> T:
    """`x & y`."""
    return op.emit(x, y)


@elementwise(E.BitOr, np.bitwise_or, INTS)
def bitwise_or(op: OpCall, x: T, y: T | int) -> T:
    """`x | y`."""
    return op.emit(x, y)


@elementwise(E.BitXor, np.bitwise_xor, INTS)
def bitwise_xor(op: OpCall, x: T, y: T | int) -> T:
    """`x ^ y`."""
    return op.emit(x, y)


@elementwise(E.BitNot, np.bitwise_not, INTS)
def bitwise_not(op: OpCall, x: T) -> T:
    """`~x`."""
    return op.emit(x)


@elementwise(E.Shl, _np_shift(np.left_shift), INTS)
def shift_left(op: OpCall, x: T, y: T | int) -> T:
    """`x << y`; 0 if `y` is negative or at least the number of bits."""
    return op.emit(x, y)


@elementwise(E.Shr, _np_shift(np.right_shift), INTS)
def shift_right(op: OpCall, x: T, y: T | int) -> T:
    """`x >> y`; arithmetic (keeps the sign) for signed integers.

    If `y` is negative or at least the number of bits, all bits are shifted out.
    """
    return op.emit(x, y)
