"""Layers with the parameters, names and meaning of torch's: products, embeddings, norms, convolutions.

    nn.Linear(384, 1536)               # weight (1536, 384), bias (1536,)
    nn.LayerNorm(384, eps=1e-12)
    nn.Conv2d(3, 16, 3, stride=2, padding=1)

Parameters are f32 unless `dtype` says otherwise, and have no data until `load_state_dict` gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph import ops
from .module import Buffer, Module, Parameter


def _optional(wanted: bool, shape: Sequence[int], dtype: Any) -> Parameter | None:
    return Parameter(shape=shape, dtype=dtype) if wanted else None


class Linear(Module):
    """x @ weight.T + bias, over the last dim."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = None) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.weight: Any = Parameter(shape=(out_features, in_features), dtype=dtype)
        self.bias: Any = _optional(bias, (out_features,), dtype)

    def forward(self, x: Any) -> Any:
        """The product."""
        return ops.linear(x, self.weight, self.bias)

    def details(self) -> str:
        return f"{self.in_features}, {self.out_features}"


class Embedding(Module):
    """Rows of a table by number."""

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: Any = None) -> None:
        self.weight: Any = Parameter(shape=(num_embeddings, embedding_dim), dtype=dtype)

    def forward(self, ids: Any) -> Any:
        """The rows with these numbers."""
        return ops.take(self.weight, ids, axis=0)


def _normal(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    """`x` with mean 0 and variance 1 over some axes."""
    centred = x - ops.mean(x, axes, keepdims=True)
    return centred / ops.sqrt(ops.mean(centred * centred, axes, keepdims=True) + eps)


def _by_channel(weight: Any, ndim: int) -> Any:
    """A weight for each channel, to be broadcast over (batch, channels, …)."""
    return ops.reshape(weight, (-1, *[1] * (ndim - 2)))


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias, over the last dims."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5, bias: bool = True, dtype: Any = None) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.weight: Any = Parameter(shape=shape, dtype=dtype)
        self.bias: Any = _optional(bias, shape, dtype)

    def forward(self, x: Any) -> Any:
        """The norm."""
        axes = tuple(range(-len(self.normalized_shape), 0))
        y = _normal(x, axes, self.eps) * self.weight
        return y if self.bias is None else y + self.bias

    def details(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(Module):
    """x / sqrt(mean of squares + eps) * weight, over the last dim."""

    def __init__(self, normalized_shape: int, eps: float = 1e-6, dtype: Any = None) -> None:
        self.eps = eps
        self.weight: Any = Parameter(shape=(normalized_shape,), dtype=dtype)

    def forward(self, x: Any) -> Any:
        """The norm."""
        return ops.rms_norm(x, self.weight, eps=self.eps)


class GroupNorm(Module):
    """The norm over groups of channels, which are dim 1."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, dtype: Any = None) -> None:
        self.num_groups, self.eps = num_groups, eps
        self.weight: Any = Parameter(shape=(num_channels,), dtype=dtype)
        self.bias: Any = Parameter(shape=(num_channels,), dtype=dtype)

    def forward(self, x: Any) -> Any:
        """The norm."""
        groups = ops.reshape(x, (x.shape[0], self.num_groups, -1))
        y = ops.reshape(_normal(groups, (-1,), self.eps), x.shape)
        return y * _by_channel(self.weight, x.ndim) + _by_channel(self.bias, x.ndim)


class BatchNorm(Module):
    """(x - running mean) / sqrt(running variance + eps) * weight + bias, by channel, which is dim 1."""

    def __init__(self, num_features: int, eps: float = 1e-5, dtype: Any = None) -> None:
        self.eps = eps
        self.weight: Any = Parameter(shape=(num_features,), dtype=dtype)
        self.bias: Any = Parameter(shape=(num_features,), dtype=dtype)
        self.running_mean: Any = Buffer(shape=(num_features,), dtype=dtype)
        self.running_var: Any = Buffer(shape=(num_features,), dtype=dtype)

    def forward(self, x: Any) -> Any:
        """The norm."""
        scale = self.weight / ops.sqrt(self.running_var + self.eps)
        shift = self.bias - self.running_mean * scale
        return x * _by_channel(scale, x.ndim) + _by_channel(shift, x.ndim)


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm
