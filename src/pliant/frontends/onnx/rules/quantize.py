"""Quantization operators: QuantizeLinear, DequantizeLinear, QLinearMatMul, QLinearConv and others."""

from __future__ import annotations

from typing import Any

from ....dtype import ALL, f32, i8, i32, u8
from ....sym.expr import Const, const
from ..emit import ops
from ..items import WIDE, Known, Narrow, fills_bytes
from ..node_context import NodeContext
from ..registry import rule
from .elementwise import in_bytes
from .products import centered, integer_product
from .spatial import _weights, windows


@rule("QuantizeLinear")
def quantize(site: NodeContext) -> Any:
    """Imports QuantizeLinear: quantizes floats to codes.

    Raises UnsupportedError for blocks of sub-byte float codes whose rows end within a byte.
    """
    to = site.dtype(2) if site.has(2) else _said(site, u8)
    zero = site.get(2) if to.is_int else None
    x: Any = site.x(0) if site.dtype(0).is_float else ops.cast(site.x(0), f32)
    scale, zero, axis, block = _scales(site, x, zero)
    if fills_bytes(to, site.shape(0)):
        return ops.quantize_linear(x, scale, zero, axis, block, to, bool(site.integer("saturate", 1)))
    if to.is_int:
        codes = ops.quantize_linear(x, scale, zero, axis, block, ALL[WIDE[to.name]])
        return Narrow(ops.clip(codes, to.min, to.max), to)
    pad = -site.shape(0)[-1] % to.per_byte if site.rank(0) and isinstance(site.shape(0)[-1], int) else None
    if pad is None and not block:
        raise site.needed_dim(f"the last dim of codes of {to}, whose rows may end within a byte, must be known")
    if block:
        raise site.unsupported(f"blocks of codes of {to} whose rows end within a byte are not supported")
    if site.rank(1) and axis == site.rank(0) - 1:
        scale = ops.pad(scale, [(0, pad)], value=1)
    codes = ops.quantize_linear(ops.pad(x, [*[(0, 0)] * (site.rank(0) - 1), (0, pad)]), scale, None, axis, block, to)
    return Narrow(in_bytes(ops.slice(ops.cast(codes, f32), site.rank(0) - 1, 0, site.shape(0)[-1]), to), to)


@rule("DequantizeLinear")
def dequantize(site: NodeContext) -> Any:
    """Imports DequantizeLinear: dequantizes codes to floats, of the dtype of the scale unless an attribute says another."""
    zero = site.get(2) if site.dtype(0).is_int else None
    x = site.x(0)
    scale, zero, axis, block = _scales(site, x, zero)
    to = _said(site, site.dtype(1))
    scale = ops.cast(scale, to) if to.bits > site.dtype(1).bits else scale
    numbers = ops.dequantize_linear(x, scale, zero, axis, block)
    return numbers if scale.tensor.dtype is to else ops.cast(numbers, to)


def _said(site: NodeContext, default: Any) -> Any:
    """Returns the attribute `output_dtype`, or the default if it is 0 or missing."""
    return site.dtype_attribute("output_dtype", default) if site.integer("output_dtype", 0) else default


def _scales(site: NodeContext, x: Any, zero: Any) -> tuple[Any, Any, int, int]:
    """Returns the scale, zero point, axis and block size of (De)QuantizeLinear, in the forms that `ops` takes."""
    rank, block = site.rank(0), site.integer("block_size", 0)
    scale = site.x(1)
    if site.rank(1) == 1 and site.shape(1) == (1,) and not block and (rank != 1 or site.shape(0) != (1,)):
        scale, zero = _one(site, 1, scale), None if zero is None else _one(site, 2, zero)
    if zero is not None and len(zero.tensor.shape) != len(scale.tensor.shape):
        one = len(zero.tensor.shape) == 1 and (zero.tensor.shape[0] is const(1) or not isinstance(zero.tensor.shape[0], Const))
        site.require(one, f"the zero point is {zero.tensor}, and the scale {scale.tensor}")
        zero = ops.reshape(zero, scale.tensor.shape)
    if zero is not None and zero.tensor.dtype.storage and not x.tensor.dtype.storage:
        zero = ops.cast(zero, WIDE[zero.tensor.dtype.name])
    attribute = site.integer("axis", 1)
    axis = 0 if rank == 0 or (site.rank(1) == 0) or (rank == 1 and attribute == 1) else site.normal(attribute, rank)
    return scale, zero, axis, block


def _one(site: NodeContext, k: int, value: Any) -> Any:
    """Returns a one-element input as a rank-0 tensor; a literal stays a literal."""
    item = site.item(k)
    if isinstance(item, Known) and item.dtype.bits >= 8:
        return site.value_of(Known(item.array.reshape(()), item.dtype, item.name))
    return ops.reshape(value, ())


@rule("DynamicQuantizeLinear")
def dynamic(site: NodeContext) -> Any:
    """Imports DynamicQuantizeLinear: quantizes with a scale and zero point computed from the data; returns all three."""
    return ops.dynamic_quantize_linear(site.x(0))


@rule("QLinearMatMul")
def qlinear_matmul(site: NodeContext) -> Any:
    """Imports QLinearMatMul: integer arithmetic, then one rounding to the result's scale."""
    total = integer_product(site, (0, 2), (3, 5))
    a_scale = _row(site, 1, row=True)
    factor = ops.mul(ops.cast(a_scale, f32), ops.cast(site.x(4), f32))
    return _requantized(site, total, factor, 6, 7)


def _row(site: NodeContext, k: int, row: bool) -> Any:
    """Returns input `k`; with `row`, one number per row becomes a column."""
    x = site.x(k)
    return ops.unsqueeze(x, 1) if row and site.rank(k) == 1 and site.shape(k) != (1,) else x


def _requantized(site: NodeContext, total: Any, factor: Any, scale: int, zero: int) -> Any:
    """Scales integer sums by `factor` and quantizes them; `scale` and `zero` are input numbers.

    Raises NeededError unless their shapes are known.
    """
    if any(not isinstance(n, int) for k in (scale, zero) for n in site.shape(k)):
        raise site.needed_dim("whether there is one scale of the result, or one for each row, must be known")
    real: Any = ops.mul(ops.cast(total, f32), factor)
    y_scale, y_zero = (ops.reshape(site.x(k), ()) if site.shape(k) in ((), (1,)) else site.x(k) for k in (scale, zero))
    y_scale = y_scale if site.dtype(scale) is f32 else ops.cast(y_scale, f32)
    return ops.quantize_linear(real, y_scale, y_zero, dtype=site.dtype(zero))


@rule("ConvInteger")
def conv_integer(site: NodeContext) -> Any:
    """Imports ConvInteger: an integer convolution in i32, with zero points subtracted from both operands."""
    return _integer_conv(site, (0, 2), (1, 3))


def _centered_kernel(site: NodeContext, k: int, zero: int) -> Any:
    """Returns the weight minus its zero point, as i32; zero points are one, or one per output channel."""
    w: Any = ops.cast(site.x(k), i32)
    if not site.has(zero):
        return w
    z: Any = ops.cast(site.x(zero), i32)
    if site.rank(zero) == 1:
        z = ops.reshape(z, (-1, *[1] * (site.rank(k) - 1)))
    return ops.sub(w, z)


def _integer_conv(site: NodeContext, left: tuple[int, int], right: tuple[int, int]) -> Any:
    """Emits an integer convolution in i32; `left` and `right` are the input numbers of an operand and its zero point."""
    kernel, rank = _weights(site, right[0])
    strides, dilations, pads = windows(site, kernel, rank, site.shape(0)[2:])
    named: dict[str, Any] = {"stride": strides, "padding": pads, "dilation": dilations}
    groups = site.integer("group", 1)
    if all(isinstance(k, int) for k in kernel) and site.dtype(left[0]) in (i8, u8) and site.dtype(right[0]) in (i8, u8):
        zeros = [site.get(k) for k in (left[1], right[1])]
        return ops.conv_integer(site.x(left[0]), site.x(right[0]), *zeros, **named, groups=groups)
    return ops.conv(centered(site, *left, row=False), _centered_kernel(site, *right), groups=groups, **named)


@rule("QLinearConv")
def qlinear_conv(site: NodeContext) -> Any:
    """Imports QLinearConv: integer arithmetic, then one rounding to the result's scale."""
    total: Any = _integer_conv(site, (0, 2), (3, 5))
    tall = (-1, *[1] * (site.rank(0) - 2))
    total = ops.add(total, ops.reshape(site.x(8), tall)) if site.has(8) else total
    w_scale: Any = ops.reshape(site.x(4), tall) if site.rank(4) == 1 else site.x(4)
    return _requantized(site, total, ops.mul(ops.reshape(site.x(1), ()), w_scale), 6, 7)
