"""Normalizations: layer, RMS, group, instance and batch norm."""

from __future__ import annotations

from typing import Any

from ....dtype import f32
from ..emit import ops
from ..registry import rule
from ..site import Site, dtype_in, rank, shape


def _axis(x: Any, normalized_shape: Any) -> int:
    """Returns the first of the last dims over which a tensor is normalized."""
    return rank(x) - len(normalized_shape)


@rule("aten.layer_norm")
def layer_norm(site: Site, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Imports layer_norm over the last dims, as many as `normalized_shape` has."""
    return ops.layer_norm(input, weight, bias, axis=_axis(input, normalized_shape), eps=eps)


@rule("aten.native_layer_norm")
def native_layer_norm(site: Site, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Imports native_layer_norm: a list of the result, the mean, and the reciprocal of the deviation (with eps), both with dims of 1."""
    axis = list(range(_axis(input, normalized_shape), rank(input)))
    mean = ops.mean(input, axis=axis, keepdims=True)
    spread = ops.rsqrt(ops.add(ops.var(input, axis=axis, keepdims=True, correction=0), eps))
    return [layer_norm(site, input, normalized_shape, weight, bias, eps), mean, spread]


@rule("aten.rms_norm")
def rms_norm(site: Site, input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """Imports rms_norm over the last dims, in f32 for 16-bit floats as torch computes it.

    The default eps is that of the dtype that it computes in; a missing weight is 1.
    """
    import numpy as np

    of = dtype_in(input)
    wide = f32 if of.bits < 32 else of
    small = float(np.finfo(wide.numpy()).eps) if eps is None else eps
    if len(normalized_shape) == 1 and weight is not None and of is f32:
        return ops.rms_norm(input, weight, eps=small)
    axis = list(range(_axis(input, normalized_shape), rank(input)))
    x = site.cast(input, wide)
    result = ops.mul(x, ops.rsqrt(ops.add(ops.mean(ops.square(x), axis=axis, keepdims=True), small)))
    return site.cast(result if weight is None else ops.mul(result, site.cast(weight, wide)), site.dtype())


@rule("aten.group_norm")
def group_norm(site: Site, input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Imports group_norm; a missing weight is 1, a missing bias 0."""
    return ops.group_norm(input, weight, bias, groups=num_groups, eps=eps)


@rule("aten.native_group_norm")
def native_group_norm(
    site: Site, input: Any, weight: Any, bias: Any, N: Any, C: Any, HxW: Any, group: int, eps: float
) -> Any:  # the schema's names
    """Imports native_group_norm: a list of the result and two Nones; its statistics, for gradients, are not computed."""
    return [ops.group_norm(input, weight, bias, groups=group, eps=eps), None, None]


@rule("aten.instance_norm")
def instance_norm(
    site: Site, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, momentum: float, eps: float
) -> Any:
    """Imports instance_norm, with the operand's own statistics (`use_input_stats`) or with the running ones."""
    if use_input_stats:
        return ops.instance_norm(input, weight, bias, eps=eps)
    return _batch_norm(site, input, weight, bias, running_mean, running_var, eps)


def _batch_norm(site: Site, x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    """Returns batch_norm with given statistics; a missing weight is 1, a missing bias 0."""
    channels, of = shape(x)[1], dtype_in(x)
    weight = ops.full((channels,), 1.0, of) if weight is None else weight
    bias = ops.full((channels,), 0.0, of) if bias is None else bias
    parts = [site.cast(p, of) for p in (weight, bias, mean, var)]
    return ops.batch_norm(x, *parts, eps=eps)


@rule("aten._native_batch_norm_legit_no_training", "aten.native_batch_norm", "aten._native_batch_norm_legit")
def batch_norm(
    site: Site, input: Any, weight: Any = None, bias: Any = None, running_mean: Any = None, running_var: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Imports batch norm with given statistics, or with those of the batch; returns a list of the result and two statistics.

    With given statistics these two are None, else the mean and the reciprocal of the deviation. Raises UnsupportedError for training with
    running statistics, which it would have to update.
    """
    if not training and running_mean is not None:
        return [_batch_norm(site, input, weight, bias, running_mean, running_var, eps), None, None]
    if running_mean is not None:
        raise site.unsupported("batch norm in training updates its statistics, which is not supported", help="call model.eval() first")
    axis = [k for k in range(rank(input)) if k != 1]
    mean, var = ops.mean(input, axis=axis), ops.var(input, axis=axis, correction=0)
    return [_batch_norm(site, input, weight, bias, mean, var, eps), mean, ops.rsqrt(ops.add(var, eps))]
