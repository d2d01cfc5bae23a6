"""Elementwise operators, with broadcasting: arithmetic, comparisons, choice, casts and activations.

All operands have one dtype; a Python number takes it. Of host scalars alone the result is a host scalar, whose value is known
if theirs are. Floats of 16 bits compute in f32 and round once at the end of an operator.

    ops.add(x, 1.0), ops.silu(x), ops.where(x > 0.0, x, 0.0), ops.cast(x, f16)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...dtype import DType, bf16, bool_, f16, f32, f64
from ...dtype import dtype as to_dtype
from ...support.errors import Error
from ...sym import expr as E
from ...sym.expr import Call, Cast, Const, Expr, Select, const
from ...sym.semantics import cast as cast_array
from ..annotation import decide
from ..deduce import Deduction
from ..node import Annotation, Scalar, Tensor
from .stage import Indices, Stage
from .table import Array, OpDef, emit, operand, operands, register

if TYPE_CHECKING:
    from ...sym.typing_stubs import bool_ as Bool

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


def _widened(formula: Formula) -> Formula:
    """The formula computed in f32 for the 16-bit floats, rounded once."""

    def wide(*xs: Expr) -> Expr:
        d = xs[0].dtype
        return Cast(d, formula(*(Cast(f32, x) for x in xs))) if d in (f16, bf16) else formula(*xs)

    return wide


@dataclass(frozen=True, slots=True)
class _Kind:
    """What operands an elementwise operator takes and what it gives."""

    floats: bool = False
    ints: bool = False
    bools: bool = False  # only bools
    compares: bool = False  # the result is bool
    narrow: bool = False  # floats up to f32: the formula is no better than that


def _elementwise(name: str, formula: Formula, reference: Callable[..., Any], arity: int, kind: _Kind) -> None:
    def deduce(d: Deduction, attrs: Any) -> tuple[Annotation, ...]:
        d.same_dtype()
        _check_kind(d, kind)
        return (_result(d, bool_ if kind.compares else d.tensor(0).dtype, formula),)

    def numpy_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
        with np.errstate(all="ignore"):
            result = reference(*(a.astype(np.float32) if a.dtype.itemsize == 2 and a.dtype.kind not in "iu" else a for a in args))
        return [np.asarray(result).astype(np.bool_ if kind.compares else args[0].dtype)]

    def stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: Any) -> tuple[Stage, ...]:
        return (_stage(name, formula, args, outs[0]),)

    register(OpDef(name, deduce, numpy_reference, stages, (arity, arity)))


def _check_kind(d: Deduction, kind: _Kind) -> None:
    found = d.tensor(0).dtype
    if kind.narrow:
        check_narrow(d)
    elif kind.floats:
        d.floats()
    elif kind.ints and not found.is_int:
        raise d.error(f"{d.what} is for integers, and `{d.args[0].name}` is {found}", arg=0)
    elif kind.bools and found is not bool_:
        raise d.error(f"{d.what} is for bools, and `{d.args[0].name}` is {found}", arg=0, help="compare first, for example `x != 0`")
    elif not kind.bools and not kind.compares and found is bool_:
        raise d.error(f"{d.what} is for numbers, and `{d.args[0].name}` is bool", arg=0, help="cast it first: ops.cast(x, i32)")


def check_narrow(d: Deduction) -> None:
    """The operand is a float of at most 32 bits."""
    d.floats()
    if d.tensor(0).dtype is f64:
        raise d.error(f"{d.what} of f64 is not supported", arg=0, help=f"write ops.cast({d.args[0].name}, f32)")


def _result(d: Deduction, dtype: DType, formula: Formula) -> Annotation:
    """The broadcast tensor, or of host scalars a host scalar."""
    scalars = [a.annotation for a in d.args if isinstance(a.annotation, Scalar)]
    if len(scalars) == len(d.args):
        known = [s.value for s in scalars if s.value is not None]
        return Scalar(dtype, formula(*known) if len(known) == len(scalars) else None)
    return Tensor(dtype, d.broadcast(*(d.tensor(k).shape for k in range(len(d.args)))))


def _stage(name: str, formula: Formula, args: tuple[Tensor, ...], out: Tensor) -> Stage:
    return Stage(
        name, out.dtype, out.shape, lambda i, r, read: formula(*(read(k, *project(a.shape, out.shape, i)) for k, a in enumerate(args)))
    )


def _rsqrt(x: Expr) -> Expr:
    return E.Div(Const(1.0, x.dtype), Call("sqrt", x))


def sigmoid_formula(x: Expr) -> Expr:
    """1 / (1 + exp(-x))."""
    if x.dtype is not f64:
        return Call("sigmoid", x)
    one = Const(1.0, x.dtype)
    return E.Div(one, E.Add(one, Call("exp", E.Neg(x))))


def _silu(x: Expr) -> Expr:
    return E.Mul(x, sigmoid_formula(x))


def _relu(x: Expr) -> Expr:
    return E.Max(x, Const(0, x.dtype))


def _np_sigmoid(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


_NUMBERS, _FLOATS, _INTS, _BOOLS, _COMPARES = _Kind(), _Kind(floats=True), _Kind(ints=True), _Kind(bools=True), _Kind(compares=True)
_NARROW = _Kind(floats=True, narrow=True)

_BINARY: tuple[tuple[str, Formula, Callable[..., Any], _Kind], ...] = (
    ("add", E.Add, np.add, _NUMBERS),
    ("sub", E.Sub, np.subtract, _NUMBERS),
    ("mul", E.Mul, np.multiply, _NUMBERS),
    ("div", E.Div, np.divide, _FLOATS),
    ("floor_divide", E.FloorDiv, lambda a, b: np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b))), _INTS),
    ("remainder", E.FloorMod, lambda a, b: np.where(b == 0, 0, np.remainder(a, np.where(b == 0, 1, b))), _INTS),
    ("minimum", E.Min, np.minimum, _NUMBERS),
    ("maximum", E.Max, np.maximum, _NUMBERS),
    ("equal", E.Eq, np.equal, _COMPARES),
    ("not_equal", E.Ne, np.not_equal, _COMPARES),
    ("less", E.Lt, np.less, _COMPARES),
    ("less_equal", E.Le, np.less_equal, _COMPARES),
    ("greater", lambda a, b: E.Lt(b, a), np.greater, _COMPARES),
    ("greater_equal", lambda a, b: E.Le(b, a), np.greater_equal, _COMPARES),
    ("logical_and", E.And, np.logical_and, _BOOLS),
    ("logical_or", E.Or, np.logical_or, _BOOLS),
)

_UNARY: tuple[tuple[str, Formula, Callable[..., Any], _Kind], ...] = (
    ("neg", E.Neg, np.negative, _NUMBERS),
    ("abs", lambda x: Call("abs", x), np.abs, _NUMBERS),
    ("logical_not", E.Not, np.logical_not, _BOOLS),
    ("exp", lambda x: Call("exp", x), np.exp, _FLOATS),
    ("sqrt", lambda x: Call("sqrt", x), np.sqrt, _FLOATS),
    ("rsqrt", _widened(_rsqrt), lambda x: 1 / np.sqrt(x), _FLOATS),
    ("sigmoid", sigmoid_formula, _np_sigmoid, _FLOATS),
    ("silu", _widened(_silu), lambda x: x * _np_sigmoid(x), _FLOATS),
    ("relu", _relu, lambda x: np.maximum(x, 0), _NUMBERS),
    ("log", lambda x: Call("log", x), np.log, _NARROW),
    ("sin", lambda x: Call("sin", x), np.sin, _NARROW),
    ("cos", lambda x: Call("cos", x), np.cos, _NARROW),
    ("tanh", lambda x: Call("tanh", x), np.tanh, _NARROW),
    ("erf", lambda x: Call("erf", x), lambda x: np.vectorize(math.erf, otypes=[np.float64])(x), _NARROW),
)

for _name, _formula, _reference, _kind in _BINARY:
    _elementwise(_name, _formula, _reference, 2, _kind)
for _name, _formula, _reference, _kind in _UNARY:
    _elementwise(_name, _formula, _reference, 1, _kind)


# gelu: two forms, so it has an attribute.
@dataclass(frozen=True, slots=True)
class GeluAttrs:
    """`approximate`: "none" is x/2 (1 + erf(x / sqrt 2)), "tanh" the usual tanh form."""

    approximate: str = "none"


_TANH_SCALE = math.sqrt(2 / math.pi)


def _gelu_formula(attrs: GeluAttrs) -> Formula:
    def half_of(x: Expr, inner: Expr) -> Expr:
        return E.Mul(E.Mul(Const(0.5, x.dtype), x), E.Add(Const(1.0, x.dtype), inner))

    def erf_form(x: Expr) -> Expr:
        return half_of(x, Call("erf", E.Mul(x, Const(math.sqrt(0.5), x.dtype))))

    def tanh_form(x: Expr) -> Expr:
        cubed = E.Mul(Const(0.044715, x.dtype), E.Mul(x, E.Mul(x, x)))
        return half_of(x, Call("tanh", E.Mul(Const(_TANH_SCALE, x.dtype), E.Add(x, cubed))))

    return _widened(erf_form if attrs.approximate == "none" else tanh_form)


def _deduce_gelu(d: Deduction, attrs: GeluAttrs) -> tuple[Annotation, ...]:
    check_narrow(d)
    if attrs.approximate not in ("none", "tanh"):
        raise d.error(f'gelu has no form "{attrs.approximate}"', help='approximate is "none" or "tanh"')
    return (_result(d, d.tensor(0).dtype, _gelu_formula(attrs)),)


def _gelu_reference(args: Sequence[Array], attrs: GeluAttrs) -> list[Array]:
    x = args[0].astype(np.float64)
    inner = np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)) if attrs.approximate == "none" else None
    if inner is None:
        inner = np.tanh(_TANH_SCALE * (x + 0.044715 * x**3))
    return [(0.5 * x * (1 + inner)).astype(args[0].dtype)]


register(
    OpDef(
        "gelu",
        _deduce_gelu,
        _gelu_reference,
        lambda args, outs, attrs: (_stage("gelu", _gelu_formula(attrs), args, outs[0]),),
        (1, 1),
        GeluAttrs,
    )
)


# where: a choice has a condition of another dtype.
def _deduce_where(d: Deduction, attrs: Any) -> tuple[Annotation, ...]:
    if d.tensor(0).dtype is not bool_:
        raise d.error(f"where: the condition `{d.args[0].name}` is {d.tensor(0).dtype}, not bool", arg=0, help="compare first: `x != 0`")
    if d.tensor(1).dtype is not d.tensor(2).dtype:
        raise d.error(f"where of {d.tensor(1).dtype} and {d.tensor(2).dtype}: nothing is cast implicitly", arg=2)
    return (_result(d, d.tensor(1).dtype, Select),)


register(
    OpDef(
        "where",
        _deduce_where,
        lambda args, attrs: [np.where(*args)],
        lambda args, outs, attrs: (_stage("where", Select, args, outs[0]),),
        (3, 3),
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
    return (_result(d, attrs.dtype, lambda x: Cast(attrs.dtype, x)),)


register(
    OpDef(
        "cast",
        _deduce_cast,
        lambda args, attrs: [np.asarray(cast_array(args[0], attrs.dtype))],
        lambda args, outs, attrs: (_stage("cast", lambda x: Cast(attrs.dtype, x), args, outs[0]),),
        (1, 1),
        CastAttrs,
    )
)


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


def sigmoid(x: T) -> T:
    """1 / (1 + exp(-x))."""
    return emit("sigmoid", (x,))


def silu(x: T) -> T:
    """`x * sigmoid(x)`."""
    return emit("silu", (x,))


def relu(x: T) -> T:
    """`max(x, 0)`."""
    return emit("relu", (x,))


def log(x: T) -> T:
    """The natural logarithm."""
    return emit("log", (x,))


def sin(x: T) -> T:
    """The sine."""
    return emit("sin", (x,))


def cos(x: T) -> T:
    """The cosine."""
    return emit("cos", (x,))


def tanh(x: T) -> T:
    """The hyperbolic tangent."""
    return emit("tanh", (x,))


def erf(x: T) -> T:
    """The error function."""
    return emit("erf", (x,))


def gelu(x: T, approximate: str = "none") -> T:
    """The Gaussian error linear unit, with erf, or with `approximate="tanh"` in its tanh form."""
    return emit("gelu", (x,), GeluAttrs(approximate))


def where(condition: Any, x: T, y: T | float) -> T:
    """`x` where the condition holds, else `y`."""
    chosen = operands("where", (x, y))
    return emit("where", (operand("where", condition, bool_), *chosen))


def cast(x: Any, dtype: type[T]) -> T:
    """`x` in another data type."""
    if isinstance(x, bool | int | float):
        raise Error(f"cast of the Python number {x}", help="a number takes the dtype of the tensor beside it")
    return emit("cast", (x,), CastAttrs(to_dtype(dtype)))
