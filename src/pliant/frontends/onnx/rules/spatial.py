"""Convolutions and pooling over spatial dims, with the padding attributes of ONNX."""

from __future__ import annotations

from typing import Any

from ..emit import ops
from ..node_context import NodeContext
from ..registry import rule


def windows(
    site: NodeContext, kernel: list[Any], rank: int, spatial: tuple[Any, ...]
) -> tuple[list[int], list[int], list[tuple[Any, Any]]]:
    """Returns the strides, dilations and paddings (before, after) of a window, one per spatial dim, also for `auto_pad`."""
    strides = _each(site, "strides", rank)
    dilations = _each(site, "dilations", rank)
    auto = site.text("auto_pad", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", "")
    pads = site.ints("pads", None)
    if auto in ("NOTSET", ""):
        amounts = [0] * (2 * rank) if pads is None else pads
        site.require(len(amounts) == 2 * rank, f'attribute "pads" has {len(amounts)} numbers, {2 * rank} are expected')
        return strides, dilations, [(amounts[i], amounts[i + rank]) for i in range(rank)]
    if auto == "VALID":
        return strides, dilations, [(0, 0)] * rank
    return strides, dilations, [_same(n, k, s, d, auto) for n, k, s, d in zip(spatial, kernel, strides, dilations, strict=True)]


def _each(site: NodeContext, name: str, rank: int) -> list[int]:
    """Returns an attribute with one positive integer per spatial dim; all 1 by default."""
    numbers = site.ints(name, None) or [1] * rank
    site.require(len(numbers) == rank and min(numbers) > 0, f'attribute "{name}" is {numbers}, {rank} positive numbers are expected')
    return numbers


def _same(n: Any, kernel: Any, stride: int, dilation: int, auto: str) -> tuple[Any, Any]:
    """Returns the SAME padding (before, after) of a dim: the result has ceil(n / stride) elements."""
    from ....sym.expr import Const, Expr, Max
    from ....sym.simplify import simplify

    total = (-(-n // stride) if isinstance(n, int) else (n + (stride - 1)) // stride) - 1
    total = total * stride + (kernel - 1) * dilation + 1 - n
    if isinstance(total, Expr):
        total = simplify(Max(total, Const(0, total.dtype)))
        total = total.value if isinstance(total, Const) else total
    else:
        total = max(total, 0)
    half = total // 2
    return (half, total - half) if auto == "SAME_UPPER" else (total - half, half)


def _weights(site: NodeContext, k: int) -> tuple[list[int], int]:
    """Returns the spatial extents of a convolution kernel, and the number of spatial dims; raises ModelFileError if they do not fit."""
    rank = site.rank(0) - 2
    site.require(rank >= 1 and site.rank(k) == rank + 2, f"the kernel has {site.rank(k)} dims, the operand {site.rank(0)}")
    declared = site.ints("kernel_shape", None)
    if declared is not None and len(declared) == rank:
        site.settle(k, *declared)
    shape = list(site.shape(k)[2:])
    site.require(declared is None or declared == shape, f'attribute "kernel_shape" is {declared}, the kernel is {shape}')
    return shape, rank


@rule("Conv")
def conv(site: NodeContext) -> Any:
    """Imports Conv, the convolution."""
    kernel, rank = _weights(site, 1)
    strides, dilations, pads = windows(site, kernel, rank, site.shape(0)[2:])
    groups, x, w = site.integer("group", 1), site.x(0), site.x(1)
    column = rank > 1 and site.shape(0)[-1] == 1 and site.shape(0)[-2] != 1 and kernel[-1] == 1 and pads[-1] == (0, 0)
    if column:  # exporters write 1-d signals as images of width 1; dropping that dim lets tiles vectorize along the signal
        x, w = (ops.reshape(v, v.tensor.shape[:-1]) for v in (x, w))
        strides, dilations, pads = strides[:-1], dilations[:-1], pads[:-1]
    y = ops.conv(x, w, site.get(2), stride=strides, padding=pads, dilation=dilations, groups=groups)
    return ops.reshape(y, (*y.tensor.shape, 1)) if column else y


@rule("ConvTranspose")
def conv_transpose(site: NodeContext) -> Any:
    """Imports ConvTranspose, the transposed convolution; `output_shape` determines the paddings if it is given.

    Raises NeededError if a padding then depends on a symbolic dim.
    """
    kernel, rank = _weights(site, 1)
    spatial = site.shape(0)[2:]
    strides, dilations = _each(site, "strides", rank), _each(site, "dilations", rank)
    more = site.ints("output_padding", None) or [0] * rank
    site.require(len(more) == rank, f'attribute "output_padding" has {len(more)} numbers, {rank} are expected')
    auto = site.text("auto_pad", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", "")
    wanted = site.ints("output_shape", None)
    if wanted is not None or auto.startswith("SAME"):
        sizes = wanted[-rank:] if wanted else [n * s for n, s in zip(spatial, strides, strict=True)]
        site.require(len(sizes) == rank, f'attribute "output_shape" has {len(sizes)} numbers')
        pads = []
        for n, k, s, d, o, size in zip(spatial, kernel, strides, dilations, more, sizes, strict=True):
            total = s * (n - 1) + o + (k - 1) * d + 1 - size
            if not isinstance(total, int):
                raise site.needed_dim("a padding depends on a dim, which must be known")
            half = total // 2
            pads.append((half, total - half) if auto == "SAME_UPPER" else (total - half, half))
    else:
        pads = windows(site, kernel, rank, spatial)[2]
    low = [min(p, 0) for pair in pads for p in pair]
    pads = [(max(a, 0), max(b, 0)) for a, b in pads]
    result = ops.conv_transpose(
        site.x(0), site.x(1), site.get(2), stride=strides, padding=pads, output_padding=more, dilation=dilations,
        groups=site.integer("group", 1),
    )  # fmt: skip
    if not any(low):
        return result
    return ops.pad(result, [(0, 0), (0, 0), *[(-low[2 * i], -low[2 * i + 1]) for i in range(rank)]])


@rule("MaxPool", "AveragePool", "LpPool")
def pool(site: NodeContext) -> Any:
    """Imports MaxPool, AveragePool and LpPool over windows."""
    kernel, named = pool_of(site)
    if site.op == "MaxPool":
        if len(site.node.output) > 1 and site.node.output[1]:
            from .pooling import pool_with_places

            return pool_with_places(site, kernel, named)
        return ops.max_pool(site.x(0), kernel, **named)
    if site.op == "AveragePool":
        return ops.avg_pool(site.x(0), kernel, count_include_pad=bool(site.integer("count_include_pad", 0)), **named)
    return ops.lp_pool(site.x(0), kernel, p=site.integer("p", 2), **named)


def pool_of(site: NodeContext) -> tuple[list[int], dict[str, Any]]:
    """Returns the kernel extents of a pool, and its stride, padding, dilation and ceil_mode.

    Raises ModelFileError for a wrong `kernel_shape`.
    """
    kernel = site.ints("kernel_shape", None)
    rank = site.rank(0) - 2
    site.require(kernel is not None and len(kernel) == rank and min(kernel) > 0, f'attribute "kernel_shape" is {kernel}')
    strides, dilations, pads = windows(site, kernel or [], rank, site.shape(0)[2:])
    ceil = bool(site.integer("ceil_mode", 0))
    return kernel or [], {"stride": strides, "padding": pads, "dilation": dilations, "ceil_mode": ceil}


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(site: NodeContext) -> Any:
    """Imports average, max or Lp pooling over all spatial dims."""
    if site.op == "GlobalLpPool":
        return ops.global_lp_pool(site.x(0), p=site.integer("p", 2))
    return (ops.global_avg_pool if site.op == "GlobalAveragePool" else ops.global_max_pool)(site.x(0))
