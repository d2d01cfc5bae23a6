"""Elementwise operators with broadcasting: the decorators that declare them, and arithmetic.

All operands have one dtype, and a Python number takes it. If all operands are host scalars, the result is a host scalar, with a known
value if theirs are known. 16-bit floats are computed in f32 and rounded once at the end of an operator.

    ops.add(x, 1.0), ops.exp(x)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import DType, bf16, bool_, f16, f32
from ...support.record import dataclass
from ...sym import expr as E
from ...sym.expr import Call, Cast, Const, Expr, Select, const
from ..annotation import decide
from ..deduce import Deduction
from ..node import Annotation, Scalar, Tensor
from ..operators import Array, Body, Deduce, OpCall, P, R, Reference, composite, operator
from ..stage import Indices, Stage

T = TypeVar("T")
Formula = Callable[..., Expr]
ZERO = const(0)


def project(shape: tuple[Expr, ...], out: tuple[Expr, ...], indices: Indices) -> Indices:
    """Returns the indices into a broadcast operand of `shape` for the element `indices` of the result: 0 along a dim of 1."""
    skip = len(out) - len(shape)
    return tuple(_project(n, m, i) for n, m, i in zip(shape, out[skip:], indices[skip:], strict=True))


def _project(n: Expr, m: Expr, i: Expr) -> Expr:
    one = E.Eq(n, const(1))
    answer = False if n is m else decide(one)
    return ZERO if answer else i if answer is False else Select(one, ZERO, i)


def widened(formula: Formula) -> Formula:
    """Returns the formula computed in f32 and rounded once for 16-bit floats; for other dtypes as it is."""

    def wide(*xs: Expr) -> Expr:
        d = xs[0].dtype
        return Cast(d, formula(*(Cast(f32, x) for x in xs))) if d in (f16, bf16) else formula(*xs)

    return wide


@dataclass(frozen=True, slots=True)
class Kind:
    """A record of which operand dtypes an elementwise operator accepts, and whether its result is bool."""

    floats: bool = False
    ints: bool = False
    bools: bool = False  # only bools
    compares: bool = False  # the result is bool
    ordered: bool = False  # no bools


def elementwise(formula: Formula, reference: Callable[..., Any], kind: Kind) -> Callable[[Body[P, R]], Callable[P, R]]:
    """Returns a decorator that declares an operator without attributes, all of whose parameters are operands, which broadcast.

    `formula` computes an element from theirs; `reference` does so on numpy arrays, 16-bit floats as f32. `kind` limits the dtypes.
    """

    def deduce(d: Deduction, attrs: Any) -> tuple[Annotation, ...]:
        d.same_dtype()
        _check_kind(d, kind)
        return (result_of(d, bool_ if kind.compares else d.tensor(0).dtype, formula),)

    def numpy_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
        with np.errstate(all="ignore"):
            result = reference(*(a.astype(np.float32) if a.dtype.itemsize == 2 and a.dtype.kind not in "iu" else a for a in args))
        return [np.asarray(result).astype(np.bool_ if kind.compares else args[0].dtype)]

    def declare(function: Body[P, R]) -> Callable[P, R]:
        arity = function.__code__.co_argcount - 1  # without `op`
        declared_by = pointwise(deduce=deduce, reference=numpy_reference, formula=lambda attrs: formula, arity=arity, broadcasts=True)
        return declared_by(function)

    return declare


def pointwise(
    *,
    deduce: Deduce,
    reference: Reference,
    formula: Callable[[Any], Formula],
    attrs: type | None = None,
    arity: int = 1,
    broadcasts: bool = False,
) -> Callable[[Body[P, R]], Callable[P, R]]:
    """Returns a decorator that declares an operator of one stage, named like it, that applies `formula(attrs)` to each element."""

    def declare(function: Body[P, R]) -> Callable[P, R]:
        name = function.__name__

        def stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], values: Any) -> tuple[Stage, ...]:
            return (_stage_of(name, formula(values), args, outs[0]),)

        return operator(deduce=deduce, reference=reference, stages=stages, attrs=attrs, arity=arity, broadcasts=broadcasts)(function)

    return declare


def _check_kind(d: Deduction, kind: Kind) -> None:
    dtype = d.tensor(0).dtype
    if kind.floats:
        d.floats()
    elif kind.ints and not dtype.is_int:
        raise d.error(f"{d.what} is for integers, and `{d.args[0].name}` is {dtype}", arg=0)
    elif kind.bools and dtype is not bool_:
        raise d.error(f"{d.what} is for bools, and `{d.args[0].name}` is {dtype}", arg=0, help="compare first, for example `x != 0`")
    elif not kind.bools and (kind.ordered or not kind.compares) and dtype is bool_:
        raise d.error(f"{d.what} is for numbers, and `{d.args[0].name}` is bool", arg=0, help="cast it first: ops.cast(x, i32)")


def result_of(d: Deduction, dtype: DType, formula: Formula) -> Annotation:
    """Returns the annotation of an elementwise result: a broadcast tensor, or a host scalar if all operands are host scalars.

    The scalar has a value if the values of all operands are known.
    """
    scalars = [a.annotation for a in d.args if isinstance(a.annotation, Scalar)]
    if len(scalars) == len(d.args):
        known = [s.value for s in scalars if s.value is not None]
        return Scalar(dtype, formula(*known) if len(known) == len(scalars) else None)
    return Tensor(dtype, d.broadcast(*(d.tensor(k).shape for k in range(len(d.args)))))


def _stage_of(name: str, formula: Formula, args: tuple[Tensor, ...], out: Tensor) -> Stage:
    """Returns the stage that computes an elementwise operator by its formula, with operands broadcast."""
    return Stage(
        name, out.dtype, out.shape, lambda i, r, read: formula(*(read(k, *project(a.shape, out.shape, i)) for k, a in enumerate(args)))
    )


def _rsqrt(x: Expr) -> Expr:
    return E.Div(Const(1.0, x.dtype), Call("sqrt", x))


def _reciprocal(x: Expr) -> Expr:
    return E.Div(Const(1.0, x.dtype), x)


def _sign(x: Expr) -> Expr:
    zero, one = Const(0, x.dtype), Const(1, x.dtype)
    above = Select(E.Lt(zero, x), one, x)  # zeros and NaN stay
    return above if not (x.dtype.is_float or x.dtype.min < 0) else Select(E.Lt(x, zero), Const(-1, x.dtype), above)


def called(fn: str) -> Formula:
    """Returns the formula that calls the math function `fn`."""
    return lambda *xs: Call(fn, *xs)


def _uneven(a: Expr, b: Expr, rest: Expr) -> Expr:
    """Returns the condition that a division has a remainder and the signs of a and b differ: floor and truncation then differ by 1."""
    zero = Const(0, a.dtype)
    return E.And(E.Ne(rest, zero), E.Ne(E.Lt(a, zero), E.Lt(b, zero)))


def _trunc_divide(a: Expr, b: Expr) -> Expr:
    quotient = E.FloorDiv(a, b)
    return Select(_uneven(a, b, E.FloorMod(a, b)), E.Add(quotient, Const(1, a.dtype)), quotient)


def _fmod(a: Expr, b: Expr) -> Expr:
    if a.dtype.is_float:
        return Call("fmod", a, b)
    rest = E.FloorMod(a, b)
    return Select(_uneven(a, b, rest), E.Sub(rest, b), rest)


def _remainder(a: Expr, b: Expr) -> Expr:
    return E.FloorMod(a, b) if a.dtype.is_int else widened(_float_remainder)(a, b)


def _float_remainder(a: Expr, b: Expr) -> Expr:
    rest = Call("fmod", a, b)
    return Select(_uneven(rest, b, rest), E.Add(rest, b), rest)


def _by_nonzero(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the quotient or remainder `fn` of numpy arrays with 0 where integers are divided by zero."""

    def divide(a: Array, b: Array) -> Any:
        if a.dtype.kind == "f":
            return fn(a, b)
        return np.where(b == 0, 0, fn(a, np.where(b == 0, 1, b)))

    return divide


def _np_trunc_divide(a: Array, b: Array) -> Any:
    return (np.abs(a) // np.abs(b)) * (np.sign(a) * np.sign(b))


NUMBERS, FLOATS, INTS, BOOLS, COMPARES = Kind(), Kind(floats=True), Kind(ints=True), Kind(bools=True), Kind(compares=True)
ORDERS = Kind(compares=True, ordered=True)


# Arithmetic.


@elementwise(E.Add, np.add, NUMBERS)
def add(op: OpCall, x: T, y: T | float) -> T:
    """`x + y`."""
    return op.emit(x, y)


@elementwise(E.Sub, np.subtract, NUMBERS)
def sub(op: OpCall, x: T, y: T | float) -> T:
    """`x - y`."""
    return op.emit(x, y)


@elementwise(E.Mul, np.multiply, NUMBERS)
def mul(op: OpCall, x: T, y: T | float) -> T:
    """`x * y`."""
    return op.emit(x, y)


@elementwise(E.Div, np.divide, FLOATS)
def div(op: OpCall, x: T, y: T | float) -> T:
    """`x / y` of floats."""
    return op.emit(x, y)


@elementwise(E.FloorDiv, _by_nonzero(np.floor_divide), INTS)
def floor_divide(op: OpCall, x: T, y: T | float) -> T:
    """`x // y` of integers, rounded toward minus infinity; 0 if `y` is 0."""
    return op.emit(x, y)


@elementwise(_trunc_divide, _by_nonzero(_np_trunc_divide), INTS)
def trunc_divide(op: OpCall, x: T, y: T | float) -> T:
    """The quotient of integers, rounded toward zero; 0 if `y` is 0."""
    return op.emit(x, y)


@elementwise(_remainder, _by_nonzero(np.remainder), NUMBERS)
def remainder(op: OpCall, x: T, y: T | float) -> T:
    """`x % y`, with the sign of `y`; for integers 0 if `y` is 0."""
    return op.emit(x, y)


@elementwise(E.Min, np.minimum, NUMBERS)
def minimum(op: OpCall, x: T, y: T | float) -> T:
    """The smaller of two elements; NaN if either is NaN."""
    return op.emit(x, y)


@elementwise(E.Max, np.maximum, NUMBERS)
def maximum(op: OpCall, x: T, y: T | float) -> T:
    """The larger of two elements; NaN if either is NaN."""
    return op.emit(x, y)


@elementwise(_fmod, _by_nonzero(np.fmod), NUMBERS)
def fmod(op: OpCall, x: T, y: T | float) -> T:
    """The remainder with the sign of `x`, exact; for integers 0 if `y` is 0."""
    return op.emit(x, y)


@elementwise(E.Neg, np.negative, NUMBERS)
def neg(op: OpCall, x: T) -> T:
    """`-x`."""
    return op.emit(x)


@elementwise(called("abs"), np.abs, NUMBERS)
def abs(op: OpCall, x: T) -> T:
    """The absolute value."""
    return op.emit(x)


@elementwise(called("sqrt"), np.sqrt, FLOATS)
def sqrt(op: OpCall, x: T) -> T:
    """The square root."""
    return op.emit(x)


@elementwise(widened(_rsqrt), lambda x: 1 / np.sqrt(x), FLOATS)
def rsqrt(op: OpCall, x: T) -> T:
    """1 / sqrt(x)."""
    return op.emit(x)


@elementwise(called("floor"), np.floor, FLOATS)
def floor(op: OpCall, x: T) -> T:
    """The largest whole number that is not larger than `x`."""
    return op.emit(x)


@elementwise(called("ceil"), np.ceil, FLOATS)
def ceil(op: OpCall, x: T) -> T:
    """The smallest whole number that is not smaller than `x`."""
    return op.emit(x)


@elementwise(called("round"), np.rint, FLOATS)
def round(op: OpCall, x: T) -> T:
    """The nearest whole number, ties to even."""
    return op.emit(x)


@elementwise(called("trunc"), np.trunc, FLOATS)
def trunc(op: OpCall, x: T) -> T:
    """`x` rounded toward zero."""
    return op.emit(x)


@elementwise(widened(_reciprocal), lambda x: 1 / x, FLOATS)
def reciprocal(op: OpCall, x: T) -> T:
    """1 / x."""
    return op.emit(x)


@elementwise(lambda x: E.Mul(x, x), np.square, NUMBERS)
def square(op: OpCall, x: T) -> T:
    """`x * x`."""
    return op.emit(x)


@elementwise(_sign, np.sign, NUMBERS)
def sign(op: OpCall, x: T) -> T:
    """-1, 0 or 1; zeros keep their sign, NaN stays NaN. Unsigned integers give 0 or 1."""
    return op.emit(x)


@composite
def clip(op: OpCall, x: T, min: T | float | None = None, max: T | float | None = None) -> T:
    """`x` limited to min..max, either of which may be omitted; NaN stays NaN."""
    clipped: Any = x
    if min is not None:
        clipped = maximum(clipped, min)
    if max is not None:
        clipped = minimum(clipped, max)
    return clipped
