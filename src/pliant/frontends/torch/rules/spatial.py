"""Convolutions and pooling over spatial dims; operands without a batch get one of 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..emit import ops
from ..registry import rule
from ..site import Site, rank, shape


def each(value: Any, dims: int) -> list[int]:
    """Returns a parameter with one number for each spatial dim; one number, or a list of one, stands for all."""
    numbers = list(value) if isinstance(value, list | tuple) else [value]
    return numbers * dims if len(numbers) == 1 else numbers


def batched(x: Any, dims: int, make: Callable[[Any], Any]) -> Any:
    """Returns `make` of an operand with a batch dim, which is added and removed if the operand has none."""
    if rank(x) == dims + 2:
        return make(x)
    result = make(ops.unsqueeze(x, 0))
    squeezed = [ops.squeeze(r, 0) for r in (result if isinstance(result, list | tuple) else [result])]
    return squeezed if isinstance(result, list | tuple) else squeezed[0]


def conv_padding(padding: Any, kernel: Any, dilation: list[int]) -> Any:
    """Returns the padding of a convolution: amounts for each dim, or pairs for "same", of which the odd element comes after.

    "valid" is no padding.
    """
    if padding == "valid":
        return [0] * len(dilation)
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return [(t // 2, t - t // 2) for t in totals]
    return each(padding, len(dilation))


@rule("aten.conv1d", "aten.conv2d", "aten.conv3d")
def conv(
    site: Site, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """Imports the convolutions of one to three dims; the padding is given by amounts, "same" or "valid".

    An operand without a batch dim gives a result without one.
    """
    dims = rank(weight) - 2
    steps = each(dilation, dims)
    pads = conv_padding(padding, shape(weight)[2:], steps)
    named = {"stride": each(stride, dims), "padding": pads, "dilation": steps, "groups": groups}
    return batched(input, dims, lambda x: ops.conv(x, weight, bias, **named))


@rule("aten.convolution")
def convolution(
    site: Site, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int,
) -> Any:  # fmt: skip
    """Imports `aten.convolution`, to which torch decomposes the others, as `conv` or, if transposed, as `conv_transpose`."""
    if transposed:
        return conv_transpose(site, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv(site, input, weight, bias, stride, padding, dilation, groups)


@rule("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d")
def conv_transpose(
    site: Site, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Any:  # fmt: skip
    """Imports the transposed convolutions of one to three dims.

    An operand without a batch dim gives a result without one.
    """
    dims = rank(weight) - 2
    named = {
        "stride": each(stride, dims), "padding": each(padding, dims), "output_padding": each(output_padding, dims),
        "dilation": each(dilation, dims), "groups": groups,
    }  # fmt: skip
    return batched(input, dims, lambda x: ops.conv_transpose(x, weight, bias, **named))


def _dims(site: Site) -> int:
    """Returns the number of spatial dims, which is in the operator's name."""
    return int(site.op.removesuffix("_with_indices")[-2])


@rule("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d")
def max_pool(
    site: Site, self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """Imports max pooling of one to three dims, without indices; the default stride is the kernel's size."""
    dims = _dims(site)
    kernel = each(kernel_size, dims)
    named = {"stride": each(stride, dims) if stride else kernel, "padding": each(padding, dims), "dilation": each(dilation, dims)}
    return batched(self, dims, lambda x: ops.max_pool(x, kernel, ceil_mode=ceil_mode, **named))


@rule("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def avg_pool(
    site: Site, self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:  # fmt: skip
    """Imports average pooling of one to three dims; the default stride is the kernel's size.

    An overridden divisor divides the sums instead of the number of taps. Raises UnsupportedError for one with `ceil_mode`.
    """
    dims = _dims(site)
    kernel = each(kernel_size, dims)
    named = {"stride": each(stride, dims) if stride else kernel, "padding": each(padding, dims), "ceil_mode": ceil_mode}
    if divisor_override is None:
        return batched(self, dims, lambda x: ops.avg_pool(x, kernel, count_include_pad=count_include_pad, **named))
    if ceil_mode:
        raise site.unsupported("divisor_override with ceil_mode is not supported")
    count = 1
    for k in kernel:
        count *= k
    mean = batched(self, dims, lambda x: ops.avg_pool(x, kernel, count_include_pad=True, **named))
    return ops.mul(mean, count / divisor_override)


@rule("aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d", "aten.adaptive_avg_pool3d", "aten._adaptive_avg_pool2d",
      "aten._adaptive_avg_pool3d")  # fmt: skip
def adaptive_avg_pool(site: Site, self: Any, output_size: Any) -> Any:
    """Imports adaptive average pooling of one to three dims to a size, which one number gives for all dims."""
    dims = _dims(site)
    sizes = tuple(each(output_size, dims))
    if sizes == (1,) * dims:
        return batched(self, dims, ops.global_avg_pool)
    return batched(self, dims, lambda x: ops.adaptive_avg_pool(x, sizes))
