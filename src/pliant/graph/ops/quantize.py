"""Quantization as in ONNX: quantize_linear, dequantize_linear, dynamic_quantize_linear.

    y = saturate(round(x / scale) + zero_point)        x = (y - zero_point) * scale

A scale (and a zero point) is one number, one for each index along `axis`, or one for each block of `block_size` elements along it. Codes
are i8, u8, i16, u16, i4, u4, i2, u2, or an 8-bit or 4-bit float. Floats have no zero point and are rounded to nearest even; with
`saturate=False`, values out of range become infinity or NaN, as in a store. Zero points of sub-byte codes may be i8 and u8. The quotient
is computed in f32 (f64 if `x` is f64).

    q = ops.quantize_linear(x, scale, zero, axis=1, dtype=i8)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import DType, f32, f64, i32, u8
from ...dtype import dtype as to_dtype
from ...support.record import dataclass
from ...sym.expr import Call, Cast, Const, Div, Eq, Expr, Le, Lt, Mul, Neg, Select, Sub
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operand, operator
from ..stage import Indices, Read, Stage
from .reduce import normal_axis

T = TypeVar("T")
_WIDE = {"i4": "i8", "i2": "i8", "u4": "u8", "u2": "u8"}
_LARGEST = {
    "f8e4m3fn": 448.0, "f8e5m2": 57344.0, "f8e4m3": 240.0, "f4e2m1": 6.0, "f8e4m3fnuz": 240.0, "f8e5m2fnuz": 57344.0, "f8e8m0": 2.0**127,
}  # fmt: skip
_CODES = ("i8", "u8", "i16", "u16", "i4", "u4", "i2", "u2", *_LARGEST)


@dataclass(frozen=True, slots=True)
class QuantizeAttrs:
    """The attributes of `quantize_linear`: axis and block size of the scales (0: no blocks), dtype of the codes, whether floats saturate.

    Integer codes always saturate.
    """

    axis: int
    block_size: int
    dtype: DType
    saturate: bool = True


@dataclass(frozen=True, slots=True)
class DequantizeAttrs:
    """The attributes of `dequantize_linear`: the axis and block size of the scales (0: no blocks)."""

    axis: int
    block_size: int


def _loaded(stored: DType) -> DType:
    """Returns the dtype of loaded elements: integers of 2 and 4 bits are i8 or u8, small floats f32, others as they are."""
    return to_dtype(_WIDE.get(stored.name, "f32")) if stored.storage else stored


def _check_scales(d: Deduction, attrs: Any, codes: DType) -> None:
    """Raises unless the codes' dtype is supported, and scale and zero point have fitting dtypes and the shapes for axis and block size."""
    x, scale = d.tensor(0), d.tensor(1)
    if codes.name not in _CODES and not (codes is i32 and d.what == "dequantize_linear"):
        raise d.error(f"{d.what}: codes are not {codes}", help=f"one of {', '.join(_CODES)}")
    if not scale.dtype.is_float or scale.dtype.storage:
        raise d.error(f"{d.what}: the scale `{d.args[1].name}` is {scale.dtype}, not a float", arg=1)
    if len(d.args) > 2:
        zero = d.tensor(2).dtype
        if codes.is_float or zero not in (codes, _loaded(codes)):
            raise d.error(f"{d.what}: the zero point `{d.args[2].name}` is {zero}, and the codes are {codes}", arg=2)
    for k in range(1, len(d.args)):
        scales = d.rank(k, len(x.shape)) if attrs.block_size else d.rank(k, 0, 1)
        expected = x.shape if attrs.block_size else (x.shape[attrs.axis],) if scales.shape else ()
        for i, (n, m) in enumerate(zip(expected, scales.shape, strict=True)):
            if attrs.block_size and i == attrs.axis:
                _check_blocks(d, k, n, m, attrs.block_size)
            else:
                d.equal(m, n, f"dim {i} of `{d.args[k].name}` is {{0}}, {{1}} is expected", arg=k)


def _check_blocks(d: Deduction, k: int, n: Expr, blocks: Expr, size: int) -> None:
    """Requires as many blocks as `n` elements need, as inequalities: the bounds proof of reading a scale relies on them."""
    message = f"{d.what}: `{d.args[k].name}` is for {{0}} blocks of {size}, and there are {{1}} elements"
    d.require(Le(n, blocks * size), message, (blocks, n), arg=k)
    d.require(Lt(blocks * size, n + size), message, (blocks, n), arg=k)


def _at(tensor: Tensor, attrs: Any, i: Indices) -> Indices:
    """Returns the indices of the scale or zero point that belongs to the element at indices `i`."""
    if attrs.block_size:
        return (*i[: attrs.axis], i[attrs.axis] // attrs.block_size, *i[attrs.axis + 1 :])
    return (i[attrs.axis],) if tensor.shape else ()


def _cast(dtype: DType, e: Expr) -> Expr:
    return e if e.dtype is dtype else Cast(dtype, e)


def _clamped(e: Expr, low: float, high: float) -> Expr:
    """`e` limited to low..high; NaN stays NaN."""
    least, most = Const(low, e.dtype), Const(high, e.dtype)
    return Select(Lt(most, e), most, Select(Lt(e, least), least, e))


def _code(value: Expr, zero: Expr | None, codes: DType, saturate: bool) -> Expr:
    """Returns the quantized code of a quotient x / scale, as an expression.

    Integers: rounded to even, plus the zero point, clamped to the range of the codes. Floats: clamped to their largest number if
    `saturate`, else as they are.
    """
    if codes.is_float:
        most = _LARGEST[codes.name]
        return _cast(f32, _clamped(value, -most, most) if saturate else value)
    whole: Expr = Call("round", value)
    if zero is not None:
        whole = whole + _cast(value.dtype, zero)
    return Cast(_loaded(codes), _clamped(whole, codes.min, codes.max))


def _deduce_quantize(d: Deduction, attrs: QuantizeAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    if x.dtype.storage or not (x.dtype.is_float or x.dtype is i32):
        raise d.error(f"quantize_linear of {x.dtype}", arg=0, help="one of f16, bf16, f32, f64, i32")
    _check_scales(d, attrs, attrs.dtype)
    return (Tensor(attrs.dtype, x.shape),)


def _quantize_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: QuantizeAttrs) -> tuple[Stage, ...]:
    wide = f64 if args[0].dtype is f64 else f32

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        quotient = Div(_cast(wide, read(0, *i)), _cast(wide, read(1, *_at(args[1], attrs, i))))
        zero = read(2, *_at(args[2], attrs, i)) if len(args) > 2 else None
        return _code(quotient, zero, attrs.dtype, attrs.saturate)

    return (Stage("quantize_linear", outs[0].dtype, outs[0].shape, value),)


def _spread(scale: Array, x: Array, attrs: Any) -> Array:
    """Returns the scale of every element of `x`, in numpy, in a shape that broadcasts with it."""
    if attrs.block_size:
        rows = np.repeat(scale, attrs.block_size, axis=attrs.axis)
        return np.take(rows, np.arange(x.shape[attrs.axis]), axis=attrs.axis)
    return scale.reshape([-1 if k == attrs.axis else 1 for k in range(x.ndim)]) if scale.ndim else scale


def _quantize_reference(args: Sequence[Array], attrs: QuantizeAttrs) -> list[Array]:
    x, scale = args[0], _spread(args[1], args[0], attrs)
    wide = np.float64 if x.dtype == np.float64 else np.float32
    with np.errstate(all="ignore"):
        quotient = x.astype(wide) / scale.astype(wide)
        zero = _spread(args[2], x, attrs).astype(wide) if len(args) > 2 else wide(0)
        if attrs.dtype.is_float:
            most = wide(_LARGEST[attrs.dtype.name])
            bounded = np.where(np.isnan(quotient), quotient, np.clip(quotient, -most, most)) if attrs.saturate else quotient
            return [bounded.astype(np.float32).astype(attrs.dtype.numpy())]
        codes = np.clip(np.rint(quotient) + zero, attrs.dtype.min, attrs.dtype.max)
    return [codes.astype(_loaded(attrs.dtype).numpy()).astype(attrs.dtype.numpy())]


@operator(deduce=_deduce_quantize, reference=_quantize_reference, stages=_quantize_stages, attrs=QuantizeAttrs, arity=(2, 3))
def quantize_linear(
    op: OpCall, x: T, scale: Any, zero_point: Any = None, axis: int = 1, block_size: int = 0, dtype: Any = u8, saturate: bool = True
) -> Any:
    """The codes of `x`: saturate(round(x / scale) + zero_point).

    A scale is one number, one for each index of `axis`, or one for each `block_size` elements along it. Float codes are not rounded to
    integers.
    """
    values = _operands(op.name, x, scale, zero_point, _loaded(to_dtype(dtype)))
    return op.emit(*values, attrs=QuantizeAttrs(_axis(op.name, values[0], axis), block_size, to_dtype(dtype), saturate))


def _deduce_dequantize(d: Deduction, attrs: DequantizeAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    _check_scales(d, attrs, x.dtype)
    return (Tensor(d.tensor(1).dtype, x.shape),)


def _dequantize_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: DequantizeAttrs) -> tuple[Stage, ...]:
    wide = f64 if outs[0].dtype is f64 else f32

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        code = read(0, *i)
        if len(args) > 2:
            code = Sub(_cast(i32, code), _cast(i32, read(2, *_at(args[2], attrs, i))))
        return _cast(outs[0].dtype, Mul(_cast(wide, code), _cast(wide, read(1, *_at(args[1], attrs, i)))))

    return (Stage("dequantize_linear", outs[0].dtype, outs[0].shape, value),)


def _dequantize_reference(args: Sequence[Array], attrs: DequantizeAttrs) -> list[Array]:
    wide = np.float64 if args[1].dtype == np.float64 else np.float32
    code = args[0].astype(wide) if len(args) < 3 else args[0].astype(np.int32) - _spread(args[2], args[0], attrs).astype(np.int32)
    return [(code.astype(wide) * _spread(args[1], args[0], attrs).astype(wide)).astype(args[1].dtype)]


@operator(deduce=_deduce_dequantize, reference=_dequantize_reference, stages=_dequantize_stages, attrs=DequantizeAttrs, arity=(2, 3))
def dequantize_linear(op: OpCall, x: T, scale: Any, zero_point: Any = None, axis: int = 1, block_size: int = 0) -> Any:
    """The values of codes: (x - zero_point) * scale.

    A scale is one number, one for each index of `axis`, or one for each `block_size` elements along it.
    """
    values = _operands(op.name, x, scale, zero_point, None)
    return op.emit(*values, attrs=DequantizeAttrs(_axis(op.name, values[0], axis), block_size))


def _deduce_dynamic(d: Deduction, attrs: None) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    if x.dtype is not f32:
        raise d.error(f"dynamic_quantize_linear of {x.dtype}, f32 is expected", arg=0)
    return Tensor(u8, x.shape), Tensor(f32, ()), Tensor(u8, ())


def _dynamic_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: None) -> tuple[Stage, ...]:
    zero, steps = Const(0.0, f32), Const(255.0, f32)

    def limit(name: str, combiner: Any) -> Stage:
        return Stage(name, f32, (), lambda i, r, read: read(0, *r), reduce=args[0].shape, combiner=combiner, init=zero)

    def scale(i: Indices, r: Indices, read: Read) -> Expr:
        low, high = read("low"), read("high")
        return Select(Eq(low, high), Const(1.0, f32), Div(Sub(high, low), steps))

    def point(i: Indices, r: Indices, read: Read) -> Expr:
        return Cast(u8, Call("round", _clamped(Div(Neg(read("low")), read("step")), 0, 255)))

    def code(i: Indices, r: Indices, read: Read) -> Expr:
        return _code(Div(read(0, *i), read("step")), read("zero"), u8, True)

    def same(name: str) -> Callable[[Indices, Indices, Read], Expr]:
        return lambda i, r, read: read(name)

    results = (Stage("codes", u8, outs[0].shape, code), Stage("scale", f32, (), same("step")), Stage("zero_point", u8, (), same("zero")))
    return (limit("low", "min"), limit("high", "max"), Stage("step", f32, (), scale), Stage("zero", u8, (), point), *results)


def _dynamic_reference(args: Sequence[Array], attrs: None) -> list[Array]:
    x = args[0]
    low, high = np.float32(min(x.min(initial=0), 0)), np.float32(max(x.max(initial=0), 0))
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    point = np.rint(np.clip(-low / scale, 0, 255)).astype(np.uint8)
    codes = np.clip(np.rint(x / scale) + np.float32(point), 0, 255).astype(np.uint8)
    return [codes, np.asarray(scale, np.float32), np.asarray(point)]


@operator(deduce=_deduce_dynamic, reference=_dynamic_reference, stages=_dynamic_stages)
def dynamic_quantize_linear(op: OpCall, x: T) -> Any:
    """The u8 codes of `x`, with a scale and a zero point computed from its range; returns all three."""
    return op.emit(op.operand(x))


def _operands(name: str, x: Any, scale: Any, zero_point: Any, like: DType | None) -> list[Any]:
    values = [operand(name, x), operand(name, scale, f32)]
    if zero_point is None:
        return values
    codes = values[0].annotation
    return [*values, operand(name, zero_point, like or _loaded(codes.dtype) if isinstance(codes, Tensor) else like)]


def _axis(name: str, x: Any, axis: int) -> int:
    """Returns the axis of scales, counted from the start.

    0, without a check, for a tensor without dims, or of one dim and `axis` above 0.
    """
    rank = len(x.annotation.shape) if isinstance(x.annotation, Tensor) else 0
    return normal_axis(name, x, axis) if rank > 1 or (axis < 1 and rank) else 0
