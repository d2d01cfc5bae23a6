"""Elementwise operators, with broadcasting: what they have in common, and arithmetic.

All operands have one dtype; a Python number takes it. Of host scalars alone the result is a host scalar, whose value is known
if theirs are. Floats of 16 bits compute in f32 and round once at the end of an operator.

    ops.add(x, 1.0), ops.exp(x)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...dtype import DType, bf16, bool_, f16, f32
from ...sym import expr as E
from ...sym.expr import Call, Cast, Const, Expr, Select, const
from ..annotation import decide
from ..deduce import Deduction
from ..node import Annotation, Scalar, Tensor
from ..operators import Array, OpDef, emit, register
from ..stage import Indices, Stage

T = TypeVar("T")
Formula = Callable[..., Expr]
ZERO = const(0)


def project(shape: tuple[Expr, ...], out: tuple[Expr, ...], indices: Indices) -> Indices:
    """The indices into a broadcast operand of `shape` for the element `indices` of the result: 0 where its dim is 1."""
    skip = len(out) - len(shape)
    return tuple(_project(n, m, i) for n, m, i in zip(shape, out[skip:], indices[skip:], strict=True))


def _project(n: Expr, m: Expr, i: Expr) -> Expr:
    one = E.Eq(n, const(1))
    answer = False if n is m else decide(one)
    return ZERO if answer else i if answer is False else Select(one, ZERO, i)


def widened(formula: Formula) -> Formula:
    """The formula computed in f32 for the 16-bit floats, rounded once."""

    def wide(*xs: Expr) -> Expr:
        d = xs[0].dtype
        return Cast(d, formula(*(Cast(f32, x) for x in xs))) if d in (f16, bf16) else formula(*xs)

    return wide


@dataclass(frozen=True, slots=True)
class Kind:
    """What operands an elementwise operator takes and what it gives."""

    floats: bool = False
    ints: bool = False
    bools: bool = False  # only bools
    compares: bool = False  # the result is bool
    ordered: bool = False  # no bools


def elementwise(name: str, formula: Formula, reference: Callable[..., Any], arity: int, kind: Kind) -> None:
    """Registers an operator that computes each element from those of its operands by a formula."""

    def deduce(d: Deduction, attrs: Any) -> tuple[Annotation, ...]:
        d.same_dtype()
        _check_kind(d, kind)
        return (result_of(d, bool_ if kind.compares else d.tensor(0).dtype, formula),)

    def numpy_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
        with np.errstate(all="ignore"):
            result = reference(*(a.astype(np.float32) if a.dtype.itemsize == 2 and a.dtype.kind not in "iu" else a for a in args))
        return [np.asarray(result).astype(np.bool_ if kind.compares else args[0].dtype)]

    def stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: Any) -> tuple[Stage, ...]:
        return (stage_of(name, formula, args, outs[0]),)

    register(OpDef(name, deduce, numpy_reference, stages, (arity, arity), broadcasts=True))


def _check_kind(d: Deduction, kind: Kind) -> None:
    found = d.tensor(0).dtype
    if kind.floats:
        d.floats()
    elif kind.ints and not found.is_int:
        raise d.error(f"{d.what} is for integers, and `{d.args[0].name}` is {found}", arg=0)
    elif kind.bools and found is not bool_:
        raise d.error(f"{d.what} is for bools, and `{d.args[0].name}` is {found}", arg=0, help="compare first, for example `x != 0`")
    elif not kind.bools and (kind.ordered or not kind.compares) and found is bool_:
        raise d.error(f"{d.what} is for numbers, and `{d.args[0].name}` is bool", arg=0, help="cast it first: ops.cast(x, i32)")


def result_of(d: Deduction, dtype: DType, formula: Formula) -> Annotation:
    """The broadcast tensor, or of host scalars a host scalar."""
    scalars = [a.annotation for a in d.args if isinstance(a.annotation, Scalar)]
    if len(scalars) == len(d.args):
        known = [s.value for s in scalars if s.value is not None]
        return Scalar(dtype, formula(*known) if len(known) == len(scalars) else None)
    return Tensor(dtype, d.broadcast(*(d.tensor(k).shape for k in range(len(d.args)))))


def stage_of(name: str, formula: Formula, args: tuple[Tensor, ...], out: Tensor) -> Stage:
    """The one stage of an elementwise operator."""
    return Stage(
        name, out.dtype, out.shape, lambda i, r, read: formula(*(read(k, *project(a.shape, out.shape, i)) for k, a in enumerate(args)))
    )


def _rsqrt(x: Expr) -> Expr:
    return E.Div(Const(1.0, x.dtype), Call("sqrt", x))


def _call(fn: str) -> Formula:
    return lambda *xs: Call(fn, *xs)


NUMBERS, FLOATS, INTS, BOOLS, COMPARES = Kind(), Kind(floats=True), Kind(ints=True), Kind(bools=True), Kind(compares=True)
ORDERS = Kind(compares=True, ordered=True)

_BINARY: tuple[tuple[str, Formula, Callable[..., Any], Kind], ...] = (
    ("add", E.Add, np.add, NUMBERS),
    ("sub", E.Sub, np.subtract, NUMBERS),
    ("mul", E.Mul, np.multiply, NUMBERS),
    ("div", E.Div, np.divide, FLOATS),
    ("floor_divide", E.FloorDiv, lambda a, b: np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b))), INTS),
    ("remainder", E.FloorMod, lambda a, b: np.where(b == 0, 0, np.remainder(a, np.where(b == 0, 1, b))), INTS),
    ("minimum", E.Min, np.minimum, NUMBERS),
    ("maximum", E.Max, np.maximum, NUMBERS),
    ("pow", _call("pow"), np.power, FLOATS),
    ("fmod", _call("fmod"), np.fmod, FLOATS),
)

_UNARY: tuple[tuple[str, Formula, Callable[..., Any], Kind], ...] = (
    ("neg", E.Neg, np.negative, NUMBERS),
    ("abs", _call("abs"), np.abs, NUMBERS),
    ("exp", _call("exp"), np.exp, FLOATS),
    ("sqrt", _call("sqrt"), np.sqrt, FLOATS),
    ("rsqrt", widened(_rsqrt), lambda x: 1 / np.sqrt(x), FLOATS),
    ("erf", _call("erf"), lambda x: np.vectorize(math.erf, otypes=[np.float64])(x), FLOATS),
    *((name, _call(name), getattr(np, name), FLOATS) for name in ("exp2", "expm1", "log", "log1p", "sin", "cos", "tan")),
    *((name, _call(name), getattr(np, name), FLOATS) for name in ("floor", "ceil", "trunc")),
    ("round", _call("round"), np.rint, FLOATS),
)

for _name, _formula, _reference, _kind in _BINARY:
    elementwise(_name, _formula, _reference, 2, _kind)
for _name, _formula, _reference, _kind in _UNARY:
    elementwise(_name, _formula, _reference, 1, _kind)


# The functions of `pliant.ops`. To a type checker a tensor is of the class of its dtype.


def add(x: T, y: T | float) -> T:
    """`x + y`."""
    return emit("add", (x, y))


def sub(x: T, y: T | float) -> T:
    """`x - y`."""
    return emit("sub", (x, y))


def mul(x: T, y: T | float) -> T:
    """`x * y`."""
    return emit("mul", (x, y))


def div(x: T, y: T | float) -> T:
    """`x / y` of floats."""
    return emit("div", (x, y))


def floor_divide(x: T, y: T | float) -> T:
    """`x // y` of integers, rounded towards minus infinity; by zero it is 0."""
    return emit("floor_divide", (x, y))


def remainder(x: T, y: T | float) -> T:
    """`x % y` of integers, with the sign of `y`; by zero it is 0."""
    return emit("remainder", (x, y))


def minimum(x: T, y: T | float) -> T:
    """The smaller of two elements; NaN if either is NaN."""
    return emit("minimum", (x, y))


def maximum(x: T, y: T | float) -> T:
    """The larger of two elements; NaN if either is NaN."""
    return emit("maximum", (x, y))


def pow(x: T, y: T | float) -> T:
    """`x` to the power `y`."""
    return emit("pow", (x, y))


def fmod(x: T, y: T | float) -> T:
    """The exact remainder of floats, with the sign of `x`."""
    return emit("fmod", (x, y))


def neg(x: T) -> T:
    """`-x`."""
    return emit("neg", (x,))


def abs(x: T) -> T:
    """The absolute value."""
    return emit("abs", (x,))


def exp(x: T) -> T:
    """e to the power `x`."""
    return emit("exp", (x,))


def sqrt(x: T) -> T:
    """The square root."""
    return emit("sqrt", (x,))


def rsqrt(x: T) -> T:
    """1 over the square root."""
    return emit("rsqrt", (x,))


def log(x: T) -> T:
    """The natural logarithm."""
    return emit("log", (x,))


def sin(x: T) -> T:
    """The sine."""
    return emit("sin", (x,))


def cos(x: T) -> T:
    """The cosine."""
    return emit("cos", (x,))


def erf(x: T) -> T:
    """The error function."""
    return emit("erf", (x,))


def exp2(x: T) -> T:
    """2 to the power `x`."""
    return emit("exp2", (x,))


def expm1(x: T) -> T:
    """e to the power `x`, minus 1; precise near 0."""
    return emit("expm1", (x,))


def log1p(x: T) -> T:
    """The natural logarithm of 1 + x; precise near 0."""
    return emit("log1p", (x,))


def tan(x: T) -> T:
    """The tangent."""
    return emit("tan", (x,))


def floor(x: T) -> T:
    """The nearest whole number that is not larger."""
    return emit("floor", (x,))


def ceil(x: T) -> T:
    """The nearest whole number that is not smaller."""
    return emit("ceil", (x,))


def round(x: T) -> T:
    """The nearest whole number, halves to even."""
    return emit("round", (x,))


def trunc(x: T) -> T:
    """The whole part."""
    return emit("trunc", (x,))
