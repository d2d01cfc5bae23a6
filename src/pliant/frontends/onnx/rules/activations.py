"""Activation functions: Relu, Gelu, Softmax and others."""

from __future__ import annotations

from typing import Any

from ..emit import ops
from ..node_context import NodeContext
from ..registry import rule

_PLAIN = {"Sigmoid": ops.sigmoid, "Softplus": ops.softplus, "Softsign": ops.softsign, "HardSwish": ops.hard_swish, "Mish": ops.mish}


@rule(*_PLAIN)
def plain(site: NodeContext) -> Any:
    """Imports the activations without parameters: Sigmoid, Softplus, Softsign, HardSwish and Mish."""
    return _PLAIN[site.op](site.x(0))


@rule("Relu")
def relu(site: NodeContext) -> Any:
    """Imports Relu: max(x, 0), also for integers."""
    return ops.relu(site.x(0)) if site.dtype(0).is_float else ops.maximum(site.x(0), 0)


@rule("LeakyRelu")
def leaky_relu(site: NodeContext) -> Any:
    """Imports LeakyRelu: x, or alpha * x for negative x."""
    return ops.leaky_relu(site.x(0), alpha=site.real("alpha", 0.01))


@rule("PRelu")
def prelu(site: NodeContext) -> Any:
    """Imports PRelu: x, or slope * x for negative x, with a tensor of slopes."""
    x, slope = site.x(0), site.x(1)
    if site.version < 7 and site.rank(1) == 1 and site.shape(1) != (1,):  # before opset 7, one slope per channel, not broadcast
        slope = ops.reshape(slope, (-1, *[1] * (site.rank(0) - 2)))
    return ops.where(ops.less(x, 0), ops.mul(x, slope), x)


@rule("Elu", "Celu", "ThresholdedRelu")
def alpha_units(site: NodeContext) -> Any:
    """Imports the activations with one parameter, alpha: Elu, Celu, ThresholdedRelu."""
    make = {"Elu": ops.elu, "Celu": ops.celu, "ThresholdedRelu": ops.thresholded_relu}[site.op]
    return make(site.x(0), alpha=site.real("alpha", 1.0))


@rule("Selu")
def selu(site: NodeContext) -> Any:
    """Imports Selu, the scaled exponential linear unit."""
    return ops.selu(site.x(0), alpha=site.real("alpha", 1.6732632423543772), gamma=site.real("gamma", 1.0507009873554805))


@rule("HardSigmoid")
def hard_sigmoid(site: NodeContext) -> Any:
    """Imports HardSigmoid: clip(alpha * x + beta, 0, 1)."""
    return ops.hard_sigmoid(site.x(0), alpha=site.real("alpha", 0.2), beta=site.real("beta", 0.5))


@rule("Shrink")
def shrink(site: NodeContext) -> Any:
    """Imports Shrink: x + bias below -lambd, x - bias above lambd, 0 between."""
    x, limit, bias = site.x(0), site.real("lambd", 0.5), site.real("bias", 0.0)
    of = site.dtype(0)
    if of.is_float:
        return ops.shrink(x, lambd=limit, bias=bias)
    wide: Any = ops.cast(x, "f64")
    return ops.cast(ops.shrink(wide, lambd=limit, bias=bias), of)


@rule("Gelu")
def gelu(site: NodeContext) -> Any:
    """Imports Gelu, the Gaussian error linear unit."""
    return ops.gelu(site.x(0), approximate=site.text("approximate", "none", "none", "tanh"))


@rule("Softmax", "LogSoftmax", "Hardmax")
def softmax(site: NodeContext) -> Any:
    """Imports Softmax, LogSoftmax and Hardmax along an axis; up to opset 12 over all axes from `axis` on, flattened."""
    make = {"Softmax": ops.softmax, "LogSoftmax": ops.log_softmax, "Hardmax": ops.hardmax}[site.op]
    x, rank = site.x(0), site.rank(0)
    if site.version >= 13:
        return make(x, axis=site.axis("axis", rank, -1))
    axis = site.axis("axis", rank, 1) if site.integer("axis", 1) != rank else rank
    if axis == rank - 1:
        return make(x, axis=-1)
    shape = site.shape(0)
    rows = 1
    for n in shape[:axis]:
        rows = rows * n
    flat: Any = ops.reshape(x, (rows, -1))
    return ops.reshape(make(flat, axis=-1), shape)
