"""Elementwise operators: arithmetic, comparisons, logic, casts."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from ....dtype import ALL, bool_, f32, f64, i8, i32, u8
from ..emit import ops
from ..items import Narrow, fills_bytes
from ..node_context import NodeContext
from ..registry import rule

# ONNX operators that equal a graph operator of one or two operands.
ONE = {
    "Abs": ops.abs, "Acos": ops.acos, "Acosh": ops.acosh, "Asin": ops.asin, "Asinh": ops.asinh, "Atan": ops.atan, "Atanh": ops.atanh,
    "Ceil": ops.ceil, "Cos": ops.cos, "Cosh": ops.cosh, "Erf": ops.erf, "Exp": ops.exp, "Floor": ops.floor, "Log": ops.log, "Neg": ops.neg,
    "Reciprocal": ops.reciprocal, "Round": ops.round, "Sign": ops.sign, "Sin": ops.sin, "Sinh": ops.sinh, "Sqrt": ops.sqrt, "Tan": ops.tan,
    "Tanh": ops.tanh, "IsNaN": ops.is_nan, "Not": ops.logical_not, "BitwiseNot": ops.bitwise_not,
}  # fmt: skip
TWO = {
    "Add": ops.add, "Sub": ops.sub, "Mul": ops.mul, "And": ops.logical_and, "Or": ops.logical_or, "Xor": ops.logical_xor,
    "Equal": ops.equal, "Less": ops.less, "LessOrEqual": ops.less_equal, "Greater": ops.greater, "GreaterOrEqual": ops.greater_equal,
    "BitwiseAnd": ops.bitwise_and, "BitwiseOr": ops.bitwise_or, "BitwiseXor": ops.bitwise_xor,
}  # fmt: skip


def _one(make: Callable[..., Any]) -> Callable[[NodeContext], Any]:
    """Returns the import rule of a unary operator that `make` emits."""
    return lambda site: make(site.x(0))


def _two(make: Callable[..., Any]) -> Callable[[NodeContext], Any]:
    """Returns the import rule of a binary operator that `make` emits."""
    return lambda site: make(site.x(0), _second(site))


for _name, _make in ONE.items():
    rule(_name)(_one(_make))
for _name, _make in TWO.items():
    rule(_name)(_two(_make))


def _second(site: NodeContext) -> Any:
    """Returns the second operand; up to opset 6, with `broadcast`, its dims are aligned at `axis`."""
    y = site.x(1)
    if site.version >= 7 or not site.integer("broadcast", 0) or "axis" not in site.attributes:
        return y
    axis = site.axis("axis", site.rank(0))
    after = site.rank(0) - axis - site.rank(1)
    site.require(after >= 0, f"axis {axis} leaves no room for {site.rank(1)} dims")
    return ops.reshape(y, (*site.shape(1), *[1] * after))


@rule("Div")
def div(site: NodeContext) -> Any:
    """Imports Div: division; that of integers is truncated toward zero."""
    x, y = site.x(0), _second(site)
    return ops.div(x, y) if site.dtype(0).is_float else ops.trunc_divide(x, y)


@rule("Mod")
def mod(site: NodeContext) -> Any:
    """Imports Mod: the remainder with the sign of the divisor, or of the dividend for fmod=1."""
    fmod = site.integer("fmod", 0)
    site.require(bool(fmod) or site.dtype(0).is_int or site.version >= 28, 'floats need attribute "fmod"')
    return (ops.fmod if fmod else ops.remainder)(site.x(0), site.x(1))


@rule("Pow")
def pow_(site: NodeContext) -> Any:
    """Imports Pow: the power, in the dtype of the base."""
    x, y = site.x(0), _second(site)
    of, other = site.dtype(0), site.dtype(1)
    if of is other and of.is_float:
        return ops.pow(x, y)
    wide = f64 if f64 in (of, other) or of.is_int else f32
    return ops.cast(ops.pow(ops.cast(x, wide), ops.cast(y, wide)), of)


@rule("Max", "Min", "Sum", "Mean")
def many(site: NodeContext) -> Any:
    """Imports Max, Min, Sum and Mean of several operands, elementwise."""
    xs = site.xs()
    total: Any = reduce({"Max": ops.maximum, "Min": ops.minimum}.get(site.op, ops.add), xs)
    return ops.div(total, float(len(xs))) if site.op == "Mean" else total if len(xs) > 1 else xs[0]


@rule("Clip")
def clip(site: NodeContext) -> Any:
    """Imports Clip: clamps elements to a range; if the range is empty, to its upper bound."""
    x = site.x(0)
    if site.version < 11:
        low, high = site.real("min", None), site.real("max", None)
    else:
        low, high = site.get(1), site.get(2)
    x = x if low is None else ops.maximum(x, low)
    return x if high is None else ops.minimum(x, high)


@rule("Where")
def where(site: NodeContext) -> Any:
    """Imports Where: selects elements of two tensors by a condition."""
    return ops.where(site.x(0), site.x(1), site.x(2))


@rule("IsInf")
def is_inf(site: NodeContext) -> Any:
    """Imports IsInf: true for infinite elements of the signs that the attributes select."""
    x = site.x(0)
    up, down = site.integer("detect_positive", 1), site.integer("detect_negative", 1)
    infinite = ops.is_inf(x)
    if up and down:
        return infinite
    sign = ops.greater(x, 0.0) if up else ops.less(x, 0.0)
    return ops.logical_and(infinite, sign if up or down else ops.is_nan(x))


@rule("BitShift")
def bit_shift(site: NodeContext) -> Any:
    """Imports BitShift: a bit shift to the left or right."""
    way = site.text("direction", "", "LEFT", "RIGHT")
    return (ops.shift_left if way == "LEFT" else ops.shift_right)(site.x(0), site.x(1))


@rule("Cast", "CastLike")
def cast(site: NodeContext) -> Any:
    """Imports Cast and CastLike: a conversion to another data type."""
    return cast_to(site, site.x(0), site.dtype_attribute("to") if site.op == "Cast" else site.dtype(1))


def cast_to(site: NodeContext, x: Any, to: Any) -> Any:
    """Casts `x` to another dtype; storage-only dtypes are rounded to like quantized codes with scale 1."""
    of = site.dtype(0)
    if of is to:
        return site.item(0)
    if not fills_bytes(to, site.shape(0)):
        return Narrow(in_bytes(ops.cast(x, f32) if x.tensor.dtype.storage else x, to), to)
    if to.name == "f8e8m0":
        return ops.quantize_linear(_power(site, x if of is f32 else ops.cast(x, f32)), ops.constant(1.0), dtype=to, saturate=False)
    if to.storage and to.is_float:
        wide = x if of.is_float and not of.storage else ops.cast(x, f32)
        wide = ops.cast(wide, f32) if of is f64 else wide
        return ops.quantize_linear(wide, ops.constant(1.0), dtype=to, saturate=bool(site.integer("saturate", 1)))
    if to.storage:
        return ops.quantize_linear(ops.cast(in_bytes(x, to), f32), ops.constant(1.0), dtype=to)
    return ops.not_equal(x, 0) if to is bool_ and of.is_int and not of.storage else ops.cast(x, to)


def _power(site: NodeContext, x: Any) -> Any:
    """Rounds f32 numbers to the powers of two of f8e8m0, by `round_mode`; infinity represents its NaN. Signs are dropped."""
    mode = site.text("round_mode", "up", "up", "down", "nearest")
    bits = ops.bit_cast(x, i32)
    exponent, fraction = ops.bitwise_and(ops.shift_right(bits, 23), 255), ops.bitwise_and(bits, (1 << 23) - 1)
    half = 1 << 22
    if mode != "down":
        up = ops.greater(fraction, 0) if mode == "up" else ops.greater(fraction, half)
        if mode == "nearest":  # a tie is rounded up too, except at the smallest power
            up = ops.logical_or(up, ops.logical_and(ops.equal(fraction, half), ops.greater(exponent, 0)))
        most = 254 if site.integer("saturate", 1) else 255
        exponent = ops.where(ops.logical_and(up, ops.less(exponent, most)), ops.add(exponent, 1), exponent)
    return ops.bit_cast(ops.where(ops.equal(exponent, 0), half, ops.shift_left(exponent, 23)), f32)


def in_bytes(x: Any, to: Any) -> Any:
    """Converts to a sub-byte dtype stored one per byte: integers keep their low bits, floats are rounded to nearest even."""
    of = x.tensor.dtype
    if to.is_float:
        return ops.quantize_linear(_four_bits(x if of is f32 else ops.cast(x, f32)), ops.constant(1.0), dtype=ALL["f8e4m3fn"])
    whole = ops.cast(x, i32)
    if to.kind == "u":
        return ops.cast(ops.bitwise_and(whole, (1 << to.bits) - 1), u8)
    return ops.cast(ops.shift_right(ops.shift_left(whole, 32 - to.bits), 32 - to.bits), i8)


def _four_bits(x: Any) -> Any:
    """Rounds to the nearest number of f4e2m1, whose spacing is 0.5 up to 2, 1 up to 4, and 2 up to 6."""
    size = ops.minimum(ops.abs(x), 6.0)
    small, large = ops.div(ops.round(ops.mul(size, 2.0)), 2.0), ops.mul(ops.round(ops.div(size, 2.0)), 2.0)
    rounded = ops.where(ops.less(size, 2.0), small, ops.where(ops.less(size, 4.0), ops.round(size), large))
    return ops.where(ops.less(x, 0.0), ops.neg(rounded), rounded)


@rule("Identity", "Dropout")
def identity(site: NodeContext) -> Any:
    """Imports Identity and Dropout: the operand; dropout does nothing at inference, and its mask is all true.

    Raises UnsupportedError for a dropout in training mode.
    """
    item = site.item(0)
    if site.op == "Identity":
        return item
    if site.has(2) and bool(site.known(2)) and (not site.has(1) or float(site.number(1)) != 0.0):
        raise site.unsupported("a dropout in training mode is not supported")
    return (item, ops.full(site.shape(0), True, bool_)) if len(site.node.output) > 1 else item
