"""Operations on the bits of integers; a shift by all bits or more, or by a negative number, shifts everything out.

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
    """A shift of numpy, which leaves shifts by too much undefined."""

    def shift(x: Array, by: Array) -> Any:
        inside = (by >= 0) & (by < x.dtype.itemsize * 8)
        gone = np.where(x < 0, -1, 0) if fn is np.right_shift else 0
        return np.where(inside, fn(x, np.where(inside, by, 0)), gone)

    return shift


@elementwise(E.BitAnd, np.bitwise_and, INTS)
def bitwise_and(op: OpCall, x: T, y: T | int) -> T:
    """The bits that both have."""
    return op.emit(x, y)


@elementwise(E.BitOr, np.bitwise_or, INTS)
def bitwise_or(op: OpCall, x: T, y: T | int) -> T:
    """The bits that either has."""
    return op.emit(x, y)


@elementwise(E.BitXor, np.bitwise_xor, INTS)
def bitwise_xor(op: OpCall, x: T, y: T | int) -> T:
    """The bits that one of them has."""
    return op.emit(x, y)


@elementwise(E.BitNot, np.bitwise_not, INTS)
def bitwise_not(op: OpCall, x: T) -> T:
    """All bits turned."""
    return op.emit(x)


@elementwise(E.Shl, _np_shift(np.left_shift), INTS)
def shift_left(op: OpCall, x: T, y: T | int) -> T:
    """`x << y`."""
    return op.emit(x, y)


@elementwise(E.Shr, _np_shift(np.right_shift), INTS)
def shift_right(op: OpCall, x: T, y: T | int) -> T:
    """`x >> y`; of signed integers the sign stays."""
    return op.emit(x, y)
