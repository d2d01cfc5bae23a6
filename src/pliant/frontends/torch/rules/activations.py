"""Activation functions and softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dtype import f32
from ..emit import ops
from ..registry import rule
from ..site import Site, dtype_in, normal, rank, shape

_PLAIN: dict[str, Callable[[Any], Any]] = {
    "aten.silu": ops.silu,
    "aten.mish": ops.mish,
    "aten.hardswish": ops.hard_swish,
    "aten.hardsigmoid": ops.hard_sigmoid,
    "aten.relu6": ops.relu6,
    "aten.selu": ops.selu,
    "aten.log_sigmoid": ops.log_sigmoid,
}


@rule(*_PLAIN)
def plain(site: Site, self: Any) -> Any:
    """Imports the activations without parameters: silu, mish, hardswish, hardsigmoid, relu6, selu and log_sigmoid."""
    return _PLAIN[site.op](self)


@rule("aten.gelu")
def gelu(site: Site, self: Any, approximate: str = "none") -> Any:
    """Imports gelu, exact (the default) or approximated by tanh."""
    return ops.gelu(self, approximate=approximate)


@rule("aten.elu")
def elu(site: Site, self: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """Imports elu: `scale * x` for x above 0, else `alpha * scale * (exp(input_scale * x) - 1)`."""
    low = ops.mul(ops.expm1(ops.mul(self, float(input_scale))), float(alpha * scale))
    high = self if scale == 1 else ops.mul(self, float(scale))
    return ops.where(ops.less_equal(self, 0), low, high)


@rule("aten.celu")
def celu(site: Site, self: Any, alpha: Any = 1.0) -> Any:
    """Imports celu with `alpha`, by default 1."""
    return ops.celu(self, alpha=float(alpha))


@rule("aten.leaky_relu")
def leaky_relu(site: Site, self: Any, negative_slope: Any = 0.01) -> Any:
    """Imports leaky_relu: x, times `negative_slope` (by default 0.01) where it is below 0."""
    return ops.leaky_relu(self, alpha=float(negative_slope))


@rule("aten.hardtanh")
def hardtanh(site: Site, self: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    """Imports hardtanh: x limited to `min_val`..`max_val`, by default -1..1."""
    of = dtype_in(self)
    return ops.minimum(ops.maximum(self, site.cast(min_val, of)), site.cast(max_val, of))


@rule("aten.softplus")
def softplus(site: Site, self: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    """Imports softplus, log(1 + exp(beta * x)) / beta; it is x where beta * x is above the threshold."""
    smooth = ops.softplus(self, beta=float(beta))
    return ops.where(ops.greater(ops.mul(self, float(beta)), float(threshold)), self, smooth)


@rule("aten.threshold")
def threshold(site: Site, self: Any, threshold: Any, value: Any) -> Any:
    """Imports threshold: `value` where the operand is not above it."""
    of = dtype_in(self)
    return ops.where(ops.less_equal(self, site.cast(threshold, of)), site.cast(value, of), self)


@rule("aten.prelu", "aten._prelu_kernel")
def prelu(site: Site, self: Any, weight: Any) -> Any:
    """Imports prelu: x, times a slope where it is not above 0; there is one slope, or one for each channel (dim 1)."""
    if rank(weight) == 1 and rank(self) > 1:
        weight = ops.reshape(weight, (1, shape(weight)[0], *[1] * (rank(self) - 2)))
    return ops.where(ops.greater(self, 0), self, ops.mul(weight, self))


@rule("aten.hardshrink", "aten.softshrink")
def shrink(site: Site, self: Any, lambd: Any = 0.5) -> Any:
    """Imports hardshrink (0 within -lambd..lambd, else x) and softshrink (which moves x toward 0 by lambd, too); NaN stays."""
    limit = float(lambd)
    shrunk = ops.shrink(self, lambd=limit, bias=limit if site.op == "aten.softshrink" else 0.0)
    return ops.where(ops.is_nan(self), self, shrunk)


@rule("aten.glu")
def glu(site: Site, self: Any, dim: int = -1) -> Any:
    """Imports glu: along an axis, the first half times the sigmoid of the second."""
    a, b = ops.split(self, 2, axis=normal(dim, rank(self)))
    return ops.mul(a, ops.sigmoid(b))


@rule("aten.softmax", "aten.log_softmax", "aten._softmax", "aten._log_softmax", "aten._safe_softmax")
def softmax(site: Site, self: Any, dim: int, dtype: Any = None, half_to_float: bool = False) -> Any:
    """Imports softmax and log_softmax along an axis, in f32 for 16-bit floats, as torch computes them.

    A tensor without dims gives 1, or 0 for log_softmax. `_safe_softmax` gives 0 where others give NaN.
    """
    of = site.dtype()
    x = site.cast(self, of)
    if not rank(x):  # of one element, which may be NaN
        zero = ops.sub(x, x)
        return zero if "log" in site.op else ops.add(zero, 1.0)
    wide = site.cast(x, f32) if of.bits < 32 else x
    result = (ops.log_softmax if "log" in site.op else ops.softmax)(wide, axis=normal(dim, rank(x)))
    if site.op == "aten._safe_softmax":
        result = ops.where(ops.is_nan(result), 0.0, result)
    return site.cast(result, of)
