"""Elementwise arithmetic, comparisons and logic, with torch's promotion of dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ....dtype import bool_, f32, i8
from ..emit import ops
from ..registry import rule
from ..site import Site, dtype_in

# Of one operand, in the dtype of the result.
_UNARY: dict[str, Callable[[Any], Any]] = {
    **{
        name: getattr(ops, name)
        for name in (
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "cos",
            "cosh",
            "exp",
            "exp2",
            "expm1",
            "log",
            "log10",
            "log1p",
            "log2",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
            "rsqrt",
            "reciprocal",
            "sigmoid",
            "erf",
            "relu",
            "sign",
            "square",
        )
    },
    "special_expit": ops.sigmoid,
    "sgn": ops.sign,
    "frac": lambda x: ops.sub(x, ops.trunc(x)),
    "deg2rad": lambda x: ops.mul(x, math.pi / 180),
    "rad2deg": lambda x: ops.mul(x, 180 / math.pi),
}
# Of one operand of any numbers; identities for integers.
_ROUNDING = {"ceil": ops.ceil, "floor": ops.floor, "trunc": ops.trunc, "fix": ops.trunc}
_COMPARE = {"eq": ops.equal, "ne": ops.not_equal, "lt": ops.less, "le": ops.less_equal, "gt": ops.greater, "ge": ops.greater_equal}
_BITWISE = {"and": (ops.logical_and, ops.bitwise_and), "or": (ops.logical_or, ops.bitwise_or), "xor": (ops.logical_xor, ops.bitwise_xor)}


def _named(table: Any, prefix: str = "aten.") -> list[str]:
    """Returns the keys of a table as names of operators, with the prefix before each."""
    return [prefix + name for name in table]


@rule(*_named(_UNARY))
def unary(site: Site, self: Any) -> Any:
    """Imports the functions of one operand, computed in the dtype of the result: floats for most.

    Sign and relu of bools are the operand itself. The sign of NaN is 0.
    """
    of = site.dtype()
    if of is bool_:  # sign and relu of bools
        return self
    x = site.cast(self, of)
    if site.op == "aten.relu" and not of.is_float:
        return ops.maximum(x, 0)
    if site.op in ("aten.sign", "aten.sgn") and of.is_float:  # torch gives 0 for NaN
        return ops.where(ops.is_nan(x), 0.0, ops.sign(x))
    return _UNARY[site.op.removeprefix("aten.")](x)


@rule(*_named(_ROUNDING))
def rounding(site: Site, self: Any) -> Any:
    """Imports ceil, floor, trunc and fix (which is trunc); integers stay as they are."""
    return _ROUNDING[site.op.removeprefix("aten.")](self) if dtype_in(self).is_float else self


@rule("aten.round")
def round_(site: Site, self: Any, decimals: int = 0) -> Any:
    """Imports round: halves to even; with decimals, of the number scaled by a power of ten. Integers stay as they are."""
    if not dtype_in(self).is_float:
        return self
    if not decimals:
        return ops.round(self)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return ops.div(ops.round(ops.mul(self, scale)), scale)
    return ops.mul(ops.round(ops.div(self, scale)), scale)


@rule("aten.abs", "aten.neg")
def abs_neg(site: Site, self: Any) -> Any:
    """Imports abs and neg; bools stay as they are."""
    if dtype_in(self) is bool_:
        return self
    return (ops.abs if site.op == "aten.abs" else ops.neg)(self)


@rule("aten.add", "aten.sub", "aten.rsub")
def add_sub(site: Site, self: Any, other: Any, alpha: Any = 1) -> Any:
    """Imports add and sub (`self + alpha * other`, or minus), and rsub, with the operands swapped; an `or` for bools."""
    of = site.dtype()
    a, b = site.cast(self, of), site.cast(other, of)
    if of is bool_:
        if alpha in (False, 0):
            return a
        return ops.logical_or(a, b)
    if site.op == "aten.rsub":
        a, b = b, a
    if alpha != 1:
        b = ops.mul(b, site.cast(alpha, of))
    return (ops.add if site.op == "aten.add" else ops.sub)(a, b)


@rule("aten.mul", "aten.maximum", "aten.minimum")
def mul_max_min(site: Site, self: Any, other: Any) -> Any:
    """Imports mul, maximum and minimum; `and` and `or` for bools."""
    of = site.dtype()
    a, b = site.cast(self, of), site.cast(other, of)
    if of is bool_:
        return (ops.logical_or if site.op == "aten.maximum" else ops.logical_and)(a, b)
    return {"aten.mul": ops.mul, "aten.maximum": ops.maximum, "aten.minimum": ops.minimum}[site.op](a, b)


@rule("aten.fmax", "aten.fmin")
def fmax_fmin(site: Site, self: Any, other: Any) -> Any:
    """Imports fmax and fmin: of a NaN and a number they are the number."""
    of = site.dtype()
    a, b = site.cast(self, of), site.cast(other, of)
    if of is bool_:
        return (ops.logical_or if site.op == "aten.fmax" else ops.logical_and)(a, b)
    best = (ops.maximum if site.op == "aten.fmax" else ops.minimum)(a, b)
    if not of.is_float:
        return best
    return ops.where(ops.is_nan(a), b, ops.where(ops.is_nan(b), a, best))


@rule("aten.div")
def div(site: Site, self: Any, other: Any, rounding_mode: str | None = None) -> Any:
    """Imports div: true division of floats, or a quotient rounded toward zero ("trunc") or minus infinity ("floor")."""
    of = site.dtype()
    a, b = site.cast(self, of), site.cast(other, of)
    if of.is_float:
        if rounding_mode == "floor":
            return _floor_divided(a, b)
        quotient = ops.div(a, b)
        return quotient if rounding_mode is None else ops.trunc(quotient)
    return (ops.trunc_divide if rounding_mode == "trunc" else ops.floor_divide)(a, b)


@rule("aten.floor_divide")
def floor_divide(site: Site, self: Any, other: Any) -> Any:
    """Imports floor_divide, of floats or integers: the quotient rounded toward minus infinity."""
    of = site.dtype()
    a, b = site.cast(self, of), site.cast(other, of)
    return _floor_divided(a, b) if of.is_float else ops.floor_divide(a, b)


def _floor_divided(a: Any, b: Any) -> Any:
    """Returns `a // b` of floats as torch computes it: from the exact remainder, so that no rounding crosses a whole number.

    Where b is 0 it is `a / b`, infinite or NaN.
    """
    rest = ops.fmod(a, b)
    quotient = ops.div(ops.sub(a, rest), b)
    crossing = ops.logical_and(ops.not_equal(rest, 0.0), ops.not_equal(ops.less(b, 0.0), ops.less(rest, 0.0)))
    quotient = ops.where(crossing, ops.sub(quotient, 1.0), quotient)
    down = ops.floor(quotient)
    down = ops.where(ops.greater(ops.sub(quotient, down), 0.5), ops.add(down, 1.0), down)
    whole = ops.where(ops.equal(quotient, 0.0), ops.mul(ops.div(a, b), 0.0), down)
    return ops.where(ops.equal(b, 0.0), ops.div(a, b), whole)


@rule("aten.remainder", "aten.fmod", "aten.atan2")
def by_name(site: Site, self: Any, other: Any) -> Any:
    """Imports remainder, fmod and atan2 by our operators of these names, with the operands cast to the dtype of the result."""
    of = site.dtype()
    return getattr(ops, site.op.removeprefix("aten."))(site.cast(self, of), site.cast(other, of))


@rule("aten.pow")
def pow_(site: Site, self: Any, exponent: Any) -> Any:
    """Imports pow; an exponent of 2, and for floats of 1, 3, 0.5, -0.5, -1 or -2, becomes products and roots, as torch computes them."""
    of = site.dtype()
    x = site.cast(self, of)
    if isinstance(exponent, bool | int | float) and of.is_float:
        simple: dict[float, Callable[[Any], Any]] = {
            1: lambda v: v, 2: ops.square, 3: lambda v: ops.mul(ops.square(v), v), 0.5: ops.sqrt, -0.5: ops.rsqrt,
            -1: ops.reciprocal, -2: lambda v: ops.reciprocal(ops.square(v)),
        }  # fmt: skip
        if exponent in simple:
            return simple[exponent](x)
    if isinstance(exponent, int) and exponent == 2:
        return ops.mul(x, x)
    return ops.pow(x, site.cast(exponent, of))


@rule(*_named(_COMPARE))
def compare(site: Site, self: Any, other: Any) -> Any:
    """Imports the comparisons eq, ne, lt, le, gt and ge, in the dtype that torch promotes the operands to; false is less than true."""
    a, b = site.promoted("self", "other")
    if dtype_in(a) is bool_ and site.op not in ("aten.eq", "aten.ne"):
        a, b = ops.cast(a, i8), ops.cast(b, i8)
    return _COMPARE[site.op.removeprefix("aten.")](a, b)


@rule("aten.logical_and", "aten.logical_or", "aten.logical_xor")
def logical(site: Site, self: Any, other: Any) -> Any:
    """Imports the logical operators: numbers are true if they are not 0."""
    return getattr(ops, site.op.removeprefix("aten."))(site.cast(self, bool_), site.cast(other, bool_))


@rule("aten.logical_not")
def logical_not(site: Site, self: Any) -> Any:
    """Imports logical_not: true for false, and for numbers that are 0."""
    return ops.logical_not(site.cast(self, bool_))


@rule("aten.bitwise_and", "aten.bitwise_or", "aten.bitwise_xor")
def bitwise(site: Site, self: Any, other: Any) -> Any:
    """Imports the bitwise operators; those of bools are logical."""
    of = site.dtype()
    make = _BITWISE[site.op.removeprefix("aten.bitwise_")][0 if of is bool_ else 1]
    return make(site.cast(self, of), site.cast(other, of))


@rule("aten.bitwise_not")
def bitwise_not(site: Site, self: Any) -> Any:
    """Imports bitwise_not; that of bools is logical."""
    return ops.logical_not(self) if dtype_in(self) is bool_ else ops.bitwise_not(self)


@rule("aten.bitwise_left_shift", "aten.bitwise_right_shift")
def shift(site: Site, self: Any, other: Any) -> Any:
    """Imports bitwise_left_shift and bitwise_right_shift of integers, cast to the dtype of the result."""
    of = site.dtype()
    make = ops.shift_left if "left" in site.op else ops.shift_right
    return make(site.cast(self, of), site.cast(other, of))


@rule("aten.isnan", "aten.isinf", "aten.isfinite")
def classified(site: Site, self: Any) -> Any:
    """Imports isnan, isinf and isfinite, which give bools; integers are finite."""
    x = site.cast(self, f32) if not dtype_in(self).is_float else self
    return {"aten.isnan": ops.is_nan, "aten.isinf": ops.is_inf, "aten.isfinite": ops.is_finite}[site.op](x)


@rule("aten.clamp", "aten.clamp_min", "aten.clamp_max")
def clamp(site: Site, self: Any, min: Any = None, max: Any = None) -> Any:
    """Imports clamp: first the lower bound, then the upper one; a bound that is None does not limit."""
    of = site.dtype()
    x = site.cast(self, of)
    larger, smaller = (ops.logical_or, ops.logical_and) if of is bool_ else (ops.maximum, ops.minimum)
    if min is not None:
        x = larger(x, site.cast(min, of))
    return x if max is None else smaller(x, site.cast(max, of))


@rule("aten.signbit")
def signbit(site: Site, self: Any) -> Any:
    """Imports signbit: true for negative numbers, -0.0 and NaN with a sign; false for bools."""
    of = dtype_in(self)
    if of is bool_:
        return ops.logical_xor(self, self)
    return ops.less(ops.bit_cast(self, f"i{of.bits}") if of.is_float else self, 0)


@rule("aten.copysign")
def copysign(site: Site, self: Any, other: Any) -> Any:
    """Imports copysign: the magnitude of one operand with the sign of the other."""
    of = site.dtype()
    size, sign = ops.abs(site.cast(self, of)), site.cast(other, of)
    return ops.where(ops.less(ops.bit_cast(sign, f"i{of.bits}"), 0), ops.neg(size), size)


@rule("aten.where")
def where(site: Site, condition: Any, self: Any, other: Any) -> Any:
    """Imports where with three operands: the first value where the condition is true, else the second, both in the promoted dtype."""
    of = site.dtype()
    return ops.where(site.cast(condition, bool_), site.cast(self, of), site.cast(other, of))


@rule("aten.addcmul", "aten.addcdiv")
def addc(site: Site, self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
    """Imports addcmul and addcdiv: self + value * tensor1 * tensor2 (or / tensor2)."""
    of = site.dtype()
    x, a, b = (site.cast(v, of) for v in (self, tensor1, tensor2))
    a = a if value == 1 else ops.mul(a, site.cast(value, of))
    return ops.add(x, (ops.mul if site.op == "aten.addcmul" else ops.div)(a, b))


@rule("aten.lerp")
def lerp(site: Site, self: Any, end: Any, weight: Any) -> Any:
    """Imports lerp: linear interpolation from self to end, computed from the nearer end."""
    of = site.dtype()
    a, b, w = (site.cast(v, of) for v in (self, end, weight))
    width = ops.sub(b, a)
    far = ops.sub(b, ops.mul(width, ops.sub(1.0, w)))
    return ops.where(ops.less(ops.abs(w), 0.5), ops.add(a, ops.mul(w, width)), far)


@rule("aten._to_copy", "prims.convert_element_type")
def to_copy(site: Site, self: Any, dtype: Any = None) -> Any:
    """Imports casts to the dtype that torch deduced, that of the operand if none is given."""
    return site.cast(self, site.dtype())


@rule("aten.clone", "aten.alias", "aten.detach", "aten.lift_fresh_copy", "aten.contiguous", "aten.dropout", "prims.device_put")
def same(site: Site, self: Any = None, a: Any = None, input: Any = None, p: Any = None, train: Any = None) -> Any:
    """Imports operators that only change memory, and dropout, which does nothing in inference: returns the operand itself."""
    return next(v for v in (self, a, input) if v is not None)


@rule("aten.copy")
def copy(site: Site, self: Any, src: Any) -> Any:
    """Imports copy: the values of `src` in the shape and dtype of `self`."""
    from ....graph.operators import tensor_of

    return ops.expand(site.cast(src, site.dtype()), tensor_of(self.annotation).shape)
