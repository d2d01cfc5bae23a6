"""Elementwise functions of analysis: exponentials, logarithms, powers, circular and hyperbolic functions and their inverses.

Their errors are those of docs/functions.md.

    ops.exp(x), ops.pow(x, 2.0), ops.atan2(y, x)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from ..operators import emit
from .elementwise import FLOATS, called, elementwise

T = TypeVar("T")

_OF_NUMPY = ("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh")
_INVERSE = ("asin", "acos", "atan", "asinh", "acosh", "atanh")

for _name in _OF_NUMPY:
    elementwise(_name, called(_name), getattr(np, _name), 1, FLOATS)
for _name in _INVERSE:
    elementwise(_name, called(_name), getattr(np, f"arc{_name[1:]}"), 1, FLOATS)
elementwise("erf", called("erf"), lambda x: np.vectorize(math.erf, otypes=[np.float64])(x), 1, FLOATS)
elementwise("pow", called("pow"), np.power, 2, FLOATS)
elementwise("atan2", called("atan2"), np.arctan2, 2, FLOATS)


def exp(x: T) -> T:
    """e to the power `x`."""
    return emit("exp", (x,))


def exp2(x: T) -> T:
    """2 to the power `x`."""
    return emit("exp2", (x,))


def expm1(x: T) -> T:
    """e to the power `x`, minus 1; precise near 0."""
    return emit("expm1", (x,))


def log(x: T) -> T:
    """The natural logarithm."""
    return emit("log", (x,))


def log1p(x: T) -> T:
    """The natural logarithm of 1 + x; precise near 0."""
    return emit("log1p", (x,))


def log2(x: T) -> T:
    """The logarithm to base 2."""
    return emit("log2", (x,))


def log10(x: T) -> T:
    """The logarithm to base 10."""
    return emit("log10", (x,))


def sin(x: T) -> T:
    """The sine."""
    return emit("sin", (x,))


def cos(x: T) -> T:
    """The cosine."""
    return emit("cos", (x,))


def tan(x: T) -> T:
    """The tangent."""
    return emit("tan", (x,))


def erf(x: T) -> T:
    """The error function."""
    return emit("erf", (x,))


def pow(x: T, y: T | float) -> T:
    """`x` to the power `y`."""
    return emit("pow", (x, y))


def atan2(y: T, x: T | float) -> T:
    """The angle of the point (x, y), from -pi to pi."""
    return emit("atan2", (y, x))


def asin(x: T) -> T:
    """The inverse of the sine."""
    return emit("asin", (x,))


def acos(x: T) -> T:
    """The inverse of the cosine."""
    return emit("acos", (x,))


def atan(x: T) -> T:
    """The inverse of the tangent."""
    return emit("atan", (x,))


def sinh(x: T) -> T:
    """The hyperbolic sine."""
    return emit("sinh", (x,))


def cosh(x: T) -> T:
    """The hyperbolic cosine."""
    return emit("cosh", (x,))


def asinh(x: T) -> T:
    """The inverse of the hyperbolic sine."""
    return emit("asinh", (x,))


def acosh(x: T) -> T:
    """The inverse of the hyperbolic cosine."""
    return emit("acosh", (x,))


def atanh(x: T) -> T:
    """The inverse of the hyperbolic tangent."""
    return emit("atanh", (x,))
