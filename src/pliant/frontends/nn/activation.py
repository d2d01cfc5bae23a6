"""Activations as modules, for `Sequential`: `nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))`."""

from __future__ import annotations

from typing import Any

from ...graph import opset as ops
from .module import Module


class ReLU(Module):
    """A layer that computes max(x, 0)."""

    def forward(self, x: Any) -> Any:
        """Returns max(x, 0)."""
        return ops.relu(x)


class GELU(Module):
    """A layer that computes x * Phi(x), with Phi the normal CDF: exact (`approximate="none"`) or by the tanh approximation."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Any) -> Any:
        """Returns the GELU of x."""
        return ops.gelu(x, approximate=self.approximate)


class SiLU(Module):
    """A layer that computes x * sigmoid(x)."""

    def forward(self, x: Any) -> Any:
        """Returns x * sigmoid(x)."""
        return ops.silu(x)


class Sigmoid(Module):
    """A layer that computes 1 / (1 + exp(-x))."""

    def forward(self, x: Any) -> Any:
        """Returns the sigmoid of x."""
        return ops.sigmoid(x)


class Tanh(Module):
    """A layer that computes the hyperbolic tangent."""

    def forward(self, x: Any) -> Any:
        """Returns the hyperbolic tangent of x."""
        return ops.tanh(x)


class Softmax(Module):
    """A layer that computes exp(x) / sum(exp(x)) along `dim`."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Any) -> Any:
        """Returns the softmax of x along `dim`."""
        return ops.softmax(x, axis=self.dim)


class Identity(Module):
    """A layer that returns its input; also used for Dropout, which does nothing at inference."""

    def __init__(self, *args: Any, **named: Any) -> None:
        """Ignores all arguments, so that it may replace any other layer."""

    def forward(self, x: Any) -> Any:
        """Returns `x`."""
        return x


Dropout = Identity
