"""The scalar functions of both languages as Python names: `cast`, `select`, `fma`, `min`, `max`, `exp`, …

Inside a kernel or a function they are parsed from the syntax tree and never called. Outside, `select`, `min` and `max` build expressions
of dims (for shapes); the others raise an error that explains this. The types are for checkers: see `typing_stubs`. Functions that are
defined with FMA take `fused=False` for their form without it, which machines without the instruction compute.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from ..support.errors import Error
from ..support.source import caller_span
from .expr import Expr, Max, Min, Select, binary, wrap

if TYPE_CHECKING:
    from .typing_stubs import Scalar, bool_

    T = TypeVar("T", bound=Scalar)

inf = math.inf
nan = math.nan


def outside(name: str) -> NoReturn:
    """Raises the error for a word of the languages that was called as a Python function."""
    raise Error(
        f"`{name}` means something only inside a kernel",
        where=caller_span(),
        help="put the call into a function decorated with @kernel; its body is compiled, not executed",
    )


@overload
def select(condition: bool | bool_, a: T, b: T | float) -> T: ...
@overload
def select(condition: bool | bool_, a: float, b: T) -> T: ...
@overload
def select(condition: bool | bool_, a: int, b: int) -> int: ...
@overload
def select(condition: bool | bool_, a: float, b: float) -> float: ...
def select(condition: Any, a: Any, b: Any) -> Any:
    """`a` if the condition holds, else `b`, as an expression; only the taken arm is evaluated.

    Raises an error unless the condition is an expression.
    """
    if not isinstance(condition, Expr):
        outside("select")
    like = next((v.dtype for v in (a, b) if isinstance(v, Expr)), None)
    return Select(condition, wrap(a, like), wrap(b, like))


@overload
def min(a: T, b: T | float) -> T: ...
@overload
def min(a: float, b: T) -> T: ...
@overload
def min(a: int, b: int) -> int: ...
@overload
def min(a: float, b: float) -> float: ...
def min(a: Any, b: Any) -> Any:
    """The minimum, as an expression: NaN if one is NaN, and -0.0 < +0.0. Raises an error if neither operand is an expression."""
    return binary(Min, a, b) if isinstance(a, Expr) or isinstance(b, Expr) else outside("min")


@overload
def max(a: T, b: T | float) -> T: ...
@overload
def max(a: float, b: T) -> T: ...
@overload
def max(a: int, b: int) -> int: ...
@overload
def max(a: float, b: float) -> float: ...
def max(a: Any, b: Any) -> Any:
    """The maximum, as an expression: NaN if one is NaN, and -0.0 < +0.0. Raises an error if neither operand is an expression."""
    return binary(Max, a, b) if isinstance(a, Expr) or isinstance(b, Expr) else outside("max")


def cast(dtype: type[T], value: Scalar | float) -> T:
    """In a kernel, the value in another dtype: floats truncate and saturate to integers, integers wrap, NaN becomes 0.

    Calling it from Python raises an error.
    """
    outside("cast")


def bitcast(dtype: type[T], value: Scalar | float) -> T:
    """In a kernel: the same bits as another dtype of the same width. Calling it from Python raises an error."""
    outside("bitcast")


def fma(a: T, b: T | float, c: T | float) -> T:
    """In a kernel: `a * b + c` with one rounding, on every machine. Calling it from Python raises an error."""
    outside("fma")


def muladd(a: T, b: T | float, c: T | float) -> T:
    """In a kernel, `a * b + c`: with one rounding if the machine has FMA, else with two. Calling it from Python raises an error."""
    outside("muladd")


def abs(x: T) -> T:
    """In a kernel: the absolute value. Calling it from Python raises an error."""
    outside("abs")


def floor(x: T) -> T:
    """In a kernel: the greatest integer that is not larger. Calling it from Python raises an error."""
    outside("floor")


def ceil(x: T) -> T:
    """In a kernel: the least integer that is not smaller. Calling it from Python raises an error."""
    outside("ceil")


def round(x: T) -> T:
    """In a kernel: the nearest integer, halves to even. Calling it from Python raises an error."""
    outside("round")


def trunc(x: T) -> T:
    """In a kernel: the integer part. Calling it from Python raises an error."""
    outside("trunc")


def sqrt(x: T) -> T:
    """In a kernel: the square root, correctly rounded. Calling it from Python raises an error."""
    outside("sqrt")


def exp(x: T, *, fused: bool = True) -> T:
    """In a kernel: e to the power of x. Calling it from Python raises an error."""
    outside("exp")


def exp2(x: T, *, fused: bool = True) -> T:
    """In a kernel: 2 to the power of x. Calling it from Python raises an error."""
    outside("exp2")


def expm1(x: T, *, fused: bool = True) -> T:
    """In a kernel: e to the power of x, minus 1; accurate near 0. Calling it from Python raises an error."""
    outside("expm1")


def decay(x: T, *, fused: bool = True) -> T:
    """In a kernel, e to the power of x for x <= 0, with denormal results flushed to 0: cheaper than `exp`.

    Calling it from Python raises an error.
    """
    outside("decay")


def log(x: T, *, fused: bool = True) -> T:
    """In a kernel: the natural logarithm. Calling it from Python raises an error."""
    outside("log")


def log1p(x: T, *, fused: bool = True) -> T:
    """In a kernel: the natural logarithm of 1 + x; accurate near 0. Calling it from Python raises an error."""
    outside("log1p")


def pow(x: T, y: T | float, *, fused: bool = True) -> T:
    """In a kernel: x to the power of y. Calling it from Python raises an error."""
    outside("pow")


def fmod(x: T, y: T | float, *, fused: bool = True) -> T:
    """In a kernel: x - trunc(x / y) * y, exactly; it has the sign of x. Calling it from Python raises an error."""
    outside("fmod")


def sigmoid(x: T, *, fused: bool = True) -> T:
    """In a kernel: 1 / (1 + exp(-x)). Calling it from Python raises an error."""
    outside("sigmoid")


def tanh(x: T, *, fused: bool = True) -> T:
    """In a kernel: the hyperbolic tangent. Calling it from Python raises an error."""
    outside("tanh")


def erf(x: T, *, fused: bool = True) -> T:
    """In a kernel: the error function. Calling it from Python raises an error."""
    outside("erf")


def rsqrt(x: T) -> T:
    """In a kernel: 1 / sqrt(x). Calling it from Python raises an error."""
    outside("rsqrt")


def sin(x: T, *, fused: bool = True) -> T:
    """In a kernel: the sine. Calling it from Python raises an error."""
    outside("sin")


def cos(x: T, *, fused: bool = True) -> T:
    """In a kernel: the cosine. Calling it from Python raises an error."""
    outside("cos")


def tan(x: T, *, fused: bool = True) -> T:
    """In a kernel: the tangent. Calling it from Python raises an error."""
    outside("tan")


def log2(x: T, *, fused: bool = True) -> T:
    """In a kernel: the logarithm to base 2. Calling it from Python raises an error."""
    outside("log2")


def log10(x: T, *, fused: bool = True) -> T:
    """In a kernel: the logarithm to base 10. Calling it from Python raises an error."""
    outside("log10")


def asin(x: T, *, fused: bool = True) -> T:
    """In a kernel: the inverse sine. Calling it from Python raises an error."""
    outside("asin")


def acos(x: T, *, fused: bool = True) -> T:
    """In a kernel: the inverse cosine. Calling it from Python raises an error."""
    outside("acos")


def atan(x: T, *, fused: bool = True) -> T:
    """In a kernel: the inverse tangent. Calling it from Python raises an error."""
    outside("atan")


def sinh(x: T, *, fused: bool = True) -> T:
    """In a kernel: the hyperbolic sine. Calling it from Python raises an error."""
    outside("sinh")


def cosh(x: T, *, fused: bool = True) -> T:
    """In a kernel: the hyperbolic cosine. Calling it from Python raises an error."""
    outside("cosh")


def asinh(x: T, *, fused: bool = True) -> T:
    """In a kernel: the inverse hyperbolic sine. Calling it from Python raises an error."""
    outside("asinh")


def acosh(x: T, *, fused: bool = True) -> T:
    """In a kernel: the inverse hyperbolic cosine. Calling it from Python raises an error."""
    outside("acosh")


def atanh(x: T, *, fused: bool = True) -> T:
    """In a kernel: the inverse hyperbolic tangent. Calling it from Python raises an error."""
    outside("atanh")


def atan2(y: T, x: T | float, *, fused: bool = True) -> T:
    """In a kernel: the angle of the point (x, y). Calling it from Python raises an error."""
    outside("atan2")


# The scalar functions that users import from pliant, and those that have the names of Python's builtins, which kernels use without import.
__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "bitcast", "cast", "ceil", "cos", "cosh", "decay", "erf", "exp", "exp2",
    "expm1", "floor", "fma", "fmod", "inf", "log", "log1p", "log2", "log10", "muladd", "nan", "rsqrt", "select", "sigmoid", "sin", "sinh",
    "sqrt", "tan", "tanh", "trunc",
]  # fmt: skip
LIKE_BUILTINS = ("abs", "max", "min", "pow", "round")
