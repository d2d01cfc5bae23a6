"""Elementwise math functions: exponentials, logarithms, powers, trigonometric and hyperbolic functions and their inverses.

Their error bounds are in docs/functions.md.

    ops.exp(x), ops.pow(x, 2.0), ops.atan2(y, x)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from ..operators import OpCall
from .elementwise import FLOATS, called, elementwise

T = TypeVar("T")


@elementwise(called("exp"), np.exp, FLOATS)
def exp(op: OpCall, x: T) -> T:
    """e to the power `x`."""
    return op.emit(x)


@elementwise(called("exp2"), np.exp2, FLOATS)
def exp2(op: OpCall, x: T) -> T:
    """2 to the power `x`."""
    return op.emit(x)


@elementwise(called("expm1"), np.expm1, FLOATS)
def expm1(op: OpCall, x: T) -> T:
    """e to the power `x`, minus 1; precise near 0."""
    return op.emit(x)


@elementwise(called("log"), np.log, FLOATS)
def log(op: OpCall, x: T) -> T:
    """The natural logarithm."""
    return op.emit(x)


@elementwise(called("log1p"), np.log1p, FLOATS)
def log1p(op: OpCall, x: T) -> T:
    """The natural logarithm of 1 + x; precise near 0."""
    return op.emit(x)


@elementwise(called("log2"), np.log2, FLOATS)
def log2(op: OpCall, x: T) -> T:
    """The logarithm to base 2."""
    return op.emit(x)


@elementwise(called("log10"), np.log10, FLOATS)
def log10(op: OpCall, x: T) -> T:
    """The logarithm to base 10."""
    return op.emit(x)


@elementwise(called("sin"), np.sin, FLOATS)
def sin(op: OpCall, x: T) -> T:
    """The sine."""
    return op.emit(x)


@elementwise(called("cos"), np.cos, FLOATS)
def cos(op: OpCall, x: T) -> T:
    """The cosine."""
    return op.emit(x)


@elementwise(called("tan"), np.tan, FLOATS)
def tan(op: OpCall, x: T) -> T:
    """The tangent."""
    return op.emit(x)


@elementwise(called("erf"), lambda x: np.vectorize(math.erf, otypes=[np.float64])(x), FLOATS)
def erf(op: OpCall, x: T) -> T:
    """The error function."""
    return op.emit(x)


@elementwise(called("pow"), np.power, FLOATS)
def pow(op: OpCall, x: T, y: T | float) -> T:
    """`x` to the power `y`."""
    return op.emit(x, y)


@elementwise(called("atan2"), np.arctan2, FLOATS)
def atan2(op: OpCall, y: T, x: T | float) -> T:
    """The angle of the point (x, y), from -pi to pi."""
    return op.emit(y, x)


@elementwise(called("asin"), np.arcsin, FLOATS)
def asin(op: OpCall, x: T) -> T:
    """The inverse of the sine."""
    return op.emit(x)


@elementwise(called("acos"), np.arccos, FLOATS)
def acos(op: OpCall, x: T) -> T:
    """The inverse of the cosine."""
    return op.emit(x)


@elementwise(called("atan"), np.arctan, FLOATS)
def atan(op: OpCall, x: T) -> T:
    """The inverse of the tangent."""
    return op.emit(x)


@elementwise(called("sinh"), np.sinh, FLOATS)
def sinh(op: OpCall, x: T) -> T:
    """The hyperbolic sine."""
    return op.emit(x)


@elementwise(called("cosh"), np.cosh, FLOATS)
def cosh(op: OpCall, x: T) -> T:
    """The hyperbolic cosine."""
    return op.emit(x)


@elementwise(called("asinh"), np.arcsinh, FLOATS)
def asinh(op: OpCall, x: T) -> T:
    """The inverse of the hyperbolic sine."""
    return op.emit(x)


@elementwise(called("acosh"), np.arccosh, FLOATS)
def acosh(op: OpCall, x: T) -> T:
    """The inverse of the hyperbolic cosine."""
    return op.emit(x)


@elementwise(called("atanh"), np.arctanh, FLOATS)
def atanh(op: OpCall, x: T) -> T:
    """The inverse of the hyperbolic tangent."""
    return op.emit(x)
