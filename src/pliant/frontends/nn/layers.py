"""Layers with the parameters, names and semantics of torch's: linear, embedding, norms, convolutions.

    nn.Linear(384, 1536)               # weight (1536, 384), bias (1536,)
    nn.LayerNorm(384, eps=1e-12)
    nn.Conv2d(3, 16, 3, stride=2, padding=1)

Parameters are f32 unless `dtype` is given, and have no data until `load_state_dict` sets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph import opset as ops
from .module import Buffer, Module, Parameter


def _optional(wanted: bool, shape: Sequence[int], dtype: Any) -> Parameter | None:
    """Returns a new parameter without data, or None if it is not wanted."""
    return Parameter(shape=shape, dtype=dtype) if wanted else None


class Linear(Module):
    """A layer that computes x @ weight.T + bias, over the last dim."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = None) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.weight: Any = Parameter(shape=(out_features, in_features), dtype=dtype)
        self.bias: Any = _optional(bias, (out_features,), dtype)

    def forward(self, x: Any) -> Any:
        """Applies the layer to the last dim of `x`."""
        return ops.linear(x, self.weight, self.bias)

    def details(self) -> str:
        return f"{self.in_features}, {self.out_features}"


class Embedding(Module):
    """A layer that looks up rows of a table by integer ids."""

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: Any = None) -> None:
        self.weight: Any = Parameter(shape=(num_embeddings, embedding_dim), dtype=dtype)

    def forward(self, ids: Any) -> Any:
        """Returns the rows of the table at `ids`."""
        return ops.take(self.weight, ids, axis=0)


class LayerNorm(Module):
    """A layer that computes (x - mean) / sqrt(variance + eps) * weight + bias, over the last dims."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5, bias: bool = True, dtype: Any = None) -> None:
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.weight: Any = Parameter(shape=shape, dtype=dtype)
        self.bias: Any = _optional(bias, shape, dtype)

    def forward(self, x: Any) -> Any:
        """Returns x, normalized over the last dims."""
        return ops.layer_norm(x, self.weight, self.bias, axis=-len(self.normalized_shape), eps=self.eps)

    def details(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(Module):
    """A layer that computes x / sqrt(mean of squares + eps) * weight, over the last dim."""

    def __init__(self, normalized_shape: int, eps: float = 1e-6, dtype: Any = None) -> None:
        self.eps = eps
        self.weight: Any = Parameter(shape=(normalized_shape,), dtype=dtype)

    def forward(self, x: Any) -> Any:
        """Returns x, divided by its root mean square over the last dim, times the weight."""
        return ops.rms_norm(x, self.weight, eps=self.eps)


class GroupNorm(Module):
    """A layer of group normalization: over groups of channels (dim 1) and the spatial dims."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, dtype: Any = None) -> None:
        self.num_groups, self.eps = num_groups, eps
        self.weight: Any = Parameter(shape=(num_channels,), dtype=dtype)
        self.bias: Any = Parameter(shape=(num_channels,), dtype=dtype)

    def forward(self, x: Any) -> Any:
        """Returns x, normalized over groups of channels."""
        return ops.group_norm(x, self.weight, self.bias, groups=self.num_groups, eps=self.eps)


class BatchNorm(Module):
    """A layer that computes (x - running mean) / sqrt(running variance + eps) * weight + bias, per channel (dim 1)."""

    def __init__(self, num_features: int, eps: float = 1e-5, dtype: Any = None) -> None:
        self.eps = eps
        self.weight: Any = Parameter(shape=(num_features,), dtype=dtype)
        self.bias: Any = Parameter(shape=(num_features,), dtype=dtype)
        self.running_mean: Any = Buffer(shape=(num_features,), dtype=dtype)
        self.running_var: Any = Buffer(shape=(num_features,), dtype=dtype)

    def forward(self, x: Any) -> Any:
        """Returns x, normalized per channel by the running statistics."""
        return ops.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, eps=self.eps)


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm


class _Conv(Module):
    """The base of the convolution layers over `spatial` dims; x is (batch, in_channels, …)."""

    spatial = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | str | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        size = (kernel_size,) * self.spatial if isinstance(kernel_size, int) else tuple(kernel_size)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.weight: Any = Parameter(shape=(out_channels, in_channels // groups, *size), dtype=dtype)
        self.bias: Any = _optional(bias, (out_channels,), dtype)

    def forward(self, x: Any) -> Any:
        """Returns the convolution of x with the layer's weight, plus its bias."""
        return ops.conv(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def details(self) -> str:
        shape = self._children()["weight"].shape
        return f"{shape[1] * self.groups}, {shape[0]}, {shape[2:]}, stride={self.stride}, padding={self.padding!r}"


class Conv1d(_Conv):
    """A layer: a convolution over one spatial dim."""

    spatial = 1


class Conv2d(_Conv):
    """A layer: a convolution over two spatial dims."""

    spatial = 2


class Conv3d(_Conv):
    """A layer: a convolution over three spatial dims."""

    spatial = 3
