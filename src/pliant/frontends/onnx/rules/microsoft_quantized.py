"""8-bit quantized operators of the domain com.microsoft: QLinearAdd and similar ones, QGemm, DynamicQuantizeMatMul.

Matmuls run on integers. Elementwise operators dequantize, compute and requantize in one fused kernel.
"""

from __future__ import annotations

from typing import Any

from ....dtype import f32
from ..emit import ops
from ..node_context import NodeContext
from ..registry import rule
from .microsoft import MS
from .products import integer_product
from .quantize import dequantize, quantize
from .spatial import pool_of

rule("QuantizeLinear", domain=MS)(quantize)
rule("DequantizeLinear", domain=MS)(dequantize)


def number(site: NodeContext, k: int) -> Any:
    """Returns input `k` dequantized; its scale and zero point are the next two inputs."""
    zero = ops.reshape(site.x(k + 2), ()) if site.has(k + 2) else None
    return ops.dequantize_linear(site.x(k), ops.reshape(site.x(k + 1), ()), zero)


def code(site: NodeContext, x: Any, scale: int, like: Any) -> Any:
    """Quantizes a result; input `scale` is its scale and the next input its zero point."""
    zero = ops.reshape(site.x(scale + 1), ()) if site.has(scale + 1) else None
    return ops.quantize_linear(x, ops.reshape(site.x(scale), ()), zero, dtype=site.dtype(scale + 1) if site.has(scale + 1) else like)


@rule("QLinearAdd", "QLinearMul", domain=MS)
def two(site: NodeContext) -> Any:
    """Imports QLinearAdd and QLinearMul: the sum or product of two quantized tensors."""
    make = ops.add if site.op == "QLinearAdd" else ops.mul
    return code(site, make(number(site, 0), number(site, 3)), 6, site.dtype(0))


@rule("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", domain=MS)
def one(site: NodeContext) -> Any:
    """Imports the activations of a quantized tensor: QLinearSigmoid, QLinearLeakyRelu and QLinearSoftmax.

    Raises UnsupportedError for the softmax of opsets before 13.
    """
    x = number(site, 0)
    if site.op == "QLinearSigmoid":
        return code(site, ops.sigmoid(x), 3, site.dtype(0))
    if site.op == "QLinearLeakyRelu":
        return code(site, ops.leaky_relu(x, alpha=site.real("alpha", 0.01)), 3, site.dtype(0))
    if site.integer("opset", 13) < 13:
        raise site.unsupported("the softmax of opsets before 13 is not supported")
    return code(site, ops.softmax(x, site.axis("axis", site.rank(0), -1)), 3, site.dtype(0))


@rule("QLinearAveragePool", "QLinearGlobalAveragePool", domain=MS)
def average(site: NodeContext) -> Any:
    """Imports average pooling of a quantized tensor, over windows or whole channels; raises UnsupportedError for channels last."""
    if site.integer("channels_last", 0):
        raise site.unsupported("channels last are not supported")
    x = number(site, 0)
    if site.op == "QLinearGlobalAveragePool":
        return code(site, ops.global_avg_pool(x), 3, site.dtype(0))
    kernel, named = pool_of(site)
    return code(site, ops.avg_pool(x, kernel, count_include_pad=bool(site.integer("count_include_pad", 0)), **named), 3, site.dtype(0))


@rule("QLinearConcat", domain=MS)
def concat(site: NodeContext) -> Any:
    """Imports QLinearConcat: concatenates quantized tensors and requantizes them to one scale.

    Inputs 0 and 1 are the result's scale and zero point.
    """
    site.require(len(site.items) % 3 == 2 and len(site.items) >= 5, f"it has {len(site.items)} inputs")
    parts = [number(site, k) for k in range(2, len(site.items), 3)]
    return code(site, ops.concat(parts, site.axis("axis", site.rank(2))), 0, site.dtype(2))


@rule("QGemm", domain=MS)
def qgemm(site: NodeContext) -> Any:
    """Imports QGemm: alpha * (A' @ B' + C) of quantized A and B and an integer C; quantized if a result scale is given, else f32.

    Raises UnsupportedError for a transposed A.
    """
    if site.integer("transA", 0):
        raise site.unsupported("a transposed left operand is not supported")
    right: Any = ops.permute(site.x(3), (1, 0)) if site.integer("transB", 0) else site.x(3)
    zeros = [ops.reshape(site.x(2), ()), ops.reshape(site.x(5), ()) if site.shape(5) in ((), (1,)) else site.x(5)]
    total: Any = ops.matmul_integer(site.x(0), right, *zeros)
    total = ops.add(total, site.x(6)) if site.has(6) else total
    factor: Any = ops.mul(ops.reshape(site.x(1), ()), site.x(4))
    alpha = site.real("alpha", 1.0)
    y = ops.mul(ops.cast(total, f32), factor if alpha == 1.0 else ops.mul(factor, alpha))
    return code(site, y, 7, site.dtype(0)) if site.has(7) else y


@rule("MatMulIntegerToFloat", domain=MS)
def matmul_integer_to_float(site: NodeContext) -> Any:
    """Imports MatMulIntegerToFloat: an integer matmul, scaled to floats, plus an optional bias."""
    y: Any = ops.mul(ops.cast(integer_product(site, (0, 4), (1, 5)), f32), ops.mul(site.x(2), site.x(3)))
    return ops.add(y, site.x(6)) if site.has(6) else y


@rule("DynamicQuantizeMatMul", domain=MS)
def dynamic_quantize_matmul(site: NodeContext) -> Any:
    """Imports DynamicQuantizeMatMul: a matmul of floats, which are quantized at run time, with a quantized weight."""
    codes, scale, zero = ops.dynamic_quantize_linear(site.x(0))
    total: Any = ops.matmul_integer(codes, site.x(1), zero, site.get(3))
    y: Any = ops.mul(ops.cast(total, f32), ops.mul(scale, site.x(2)))
    return ops.add(y, site.x(4)) if site.has(4) else y
