"""Normalizations: batch, instance, layer, local response, Lp and RMS."""

from __future__ import annotations

from typing import Any

from ..emit import ops
from ..node_context import NodeContext
from ..registry import rule


@rule("BatchNormalization")
def batch_norm(site: NodeContext) -> Any:
    """Imports BatchNormalization with the given statistics, or in training mode with those of the batch.

    Raises UnsupportedError for spatial = 0, and for training mode before opset 14.
    """
    if not site.integer("spatial", 1) and site.rank(0) > 2:
        raise site.unsupported("statistics of each element (spatial = 0) are not supported")
    x, eps, of = site.x(0), site.real("epsilon", 1e-5), site.dtype(0)
    rest = [v if site.dtype(k) is of else ops.cast(v, of) for k, v in enumerate([x, *(site.x(k) for k in range(1, 5))]) if k]
    if site.integer("training_mode", 0):
        return _of_the_batch(site, x, rest, eps)
    if site.version < 14 and len([o for o in site.node.output if o]) > 1:
        raise site.unsupported("training mode of opsets before 14 is not supported")
    return ops.batch_norm(x, *rest, eps=eps)


def _of_the_batch(site: NodeContext, x: Any, rest: list[Any], eps: float) -> Any:
    """Returns the batch normalized by its own statistics (training mode), and the updated running statistics."""
    momentum, of = site.real("momentum", 0.9), site.dtype(0)
    axes = [k for k in range(site.rank(0)) if k != 1]
    wide: Any = ops.cast(x, "f32") if of.bits == 16 else x
    mean, var = ops.mean(wide, axis=axes), ops.var(wide, axis=axes, correction=0)
    y = ops.batch_norm(wide, *(ops.cast(v, wide.tensor.dtype) if of.bits == 16 else v for v in rest[:2]), mean, var, eps=eps)
    moved: list[Any] = []
    for k, new in ((3, mean), (4, var)):
        old: Any = site.x(k) if site.dtype(k) is wide.tensor.dtype else ops.cast(site.x(k), wide.tensor.dtype)
        both: Any = ops.add(ops.mul(old, momentum), ops.mul(new, 1.0 - momentum))
        moved.append(both if site.dtype(k) is wide.tensor.dtype else ops.cast(both, site.dtype(k)))
    return (ops.cast(y, of) if of.bits == 16 else y, *moved)


@rule("InstanceNormalization")
def instance_norm(site: NodeContext) -> Any:
    """Imports InstanceNormalization: normalizes each channel of each image separately."""
    return ops.instance_norm(site.x(0), site.x(1), site.x(2), eps=site.real("epsilon", 1e-5))


@rule("LayerNormalization")
def layer_norm(site: NodeContext) -> Any:
    """Imports LayerNormalization over the last axes; also returns mean and inverse deviation if they are used."""
    x, rank, eps = site.x(0), site.rank(0), site.real("epsilon", 1e-5)
    axis = site.axis("axis", rank, -1)
    weight, bias = site.x(1), site.get(2)
    shape = site.shape(0)[axis:]
    fits = site.shape(1) == shape and (bias is None or site.shape(2) == shape)
    y = ops.layer_norm(x, weight, bias, axis=axis, eps=eps) if fits else None
    if y is None:
        y = ops.mul(ops.layer_norm(x, axis=axis, eps=eps), weight)
        y = y if bias is None else ops.add(y, bias)
    if len(site.node.output) == 1:
        return y
    axes = list(range(axis, rank))
    wide: Any = ops.cast(x, "f32") if site.dtype(0).bits == 16 else x
    mean = ops.mean(wide, axis=axes, keepdims=True)
    var = ops.var(wide, axis=axes, keepdims=True, correction=0)
    return y, mean, ops.rsqrt(ops.add(var, eps))


@rule("LRN")
def lrn(site: NodeContext) -> Any:
    """Imports LRN (local response normalization): divides by a power of the sum of squares of neighboring channels."""
    size = site.integer("size", None)
    site.require(size is not None and size > 0, f'attribute "size" is {size}')
    return ops.local_response_norm(
        site.x(0), size or 1, alpha=site.real("alpha", 1e-4), beta=site.real("beta", 0.75), bias=site.real("bias", 1.0)
    )


@rule("LpNormalization")
def lp_normalization(site: NodeContext) -> Any:
    """Imports LpNormalization: divides by the p-norm along an axis; 0 if the norm is 0."""
    x, p = site.x(0), site.integer("p", 2)
    norm: Any = ops.norm(x, axis=site.axis("axis", site.rank(0), -1), keepdims=True, p=p)
    return ops.where(ops.equal(norm, 0), 0.0, ops.div(x, norm))


@rule("RMSNormalization")
def rms_norm(site: NodeContext) -> Any:
    """Imports RMSNormalization: divides by the root mean square over the last axes, times a weight."""
    x, rank, of = site.x(0), site.rank(0), site.dtype(0)
    axis = site.axis("axis", rank, -1)
    wide: Any = ops.cast(x, "f32") if of.bits == 16 else x
    mean = ops.mean(ops.mul(wide, wide), axis=list(range(axis, rank)), keepdims=True)
    y: Any = ops.mul(wide, ops.rsqrt(ops.add(mean, site.real("epsilon", 1e-5))))
    to = site.dtype(1)
    return ops.mul(ops.cast(y, to) if y.annotation.dtype is not to else y, site.x(1))
