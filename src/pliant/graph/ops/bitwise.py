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
from ..operators import Array, emit
from .elementwise import INTS, elementwise

T = TypeVar("T")


def _np_shift(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A shift of numpy, which leaves shifts by too much undefined."""

    def shift(x: Array, by: Array) -> Any:
        inside = (by >= 0) & (by < x.dtype.itemsize * 8)
        gone = np.where(x < 0, -1, 0) if fn is np.right_shift else 0
        return np.where(inside, fn(x, np.where(inside, by, 0)), gone)

    return shift


elementwise("bitwise_and", E.BitAnd, np.bitwise_and, 2, INTS)
elementwise("bitwise_or", E.BitOr, np.bitwise_or, 2, INTS)
elementwise("bitwise_xor", E.BitXor, np.bitwise_xor, 2, INTS)
elementwise("bitwise_not", E.BitNot, np.bitwise_not, 1, INTS)
elementwise("shift_left", E.Shl, _np_shift(np.left_shift), 2, INTS)
elementwise("shift_right", E.Shr, _np_shift(np.right_shift), 2, INTS)


def bitwise_and(x: T, y: T | int) -> T:
    """The bits that both have."""
    return emit("bitwise_and", (x, y))


def bitwise_or(x: T, y: T | int) -> T:
    """The bits that either has."""
    return emit("bitwise_or", (x, y))


def bitwise_xor(x: T, y: T | int) -> T:
    """The bits that one of them has."""
    return emit("bitwise_xor", (x, y))


def bitwise_not(x: T) -> T:
    """All bits turned."""
    return emit("bitwise_not", (x,))


def shift_left(x: T, y: T | int) -> T:
    """`x << y`."""
    return emit("shift_left", (x, y))


def shift_right(x: T, y: T | int) -> T:
    """`x >> y`; of signed integers the sign stays."""
    return emit("shift_right", (x, y))
