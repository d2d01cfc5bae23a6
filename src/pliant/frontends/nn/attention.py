"""Scaled dot-product attention as a function, and torch's MultiheadAttention as a module.

nn.attention(q, k, v, mask)                 # (batch, heads, n, d); mask is added to the scores, or is bool: true = visible
nn.MultiheadAttention(384, 12)(x, x, x)     # in_proj_weight, in_proj_bias, out_proj.weight, out_proj.bias
"""

from __future__ import annotations

from typing import Any

from ...graph import opset as ops
from ...support.errors import Error
from ...support.source import caller_span
from .layers import Linear
from .module import Module, Parameter


def split_heads(x: Any, heads: int) -> Any:
    """Reshapes (batch, n, heads * head_dim) to (batch, heads, n, head_dim)."""
    batch, n, width = x.shape
    return ops.permute(ops.reshape(x, (batch, n, heads, width // heads)), (0, 2, 1, 3))


def join_heads(x: Any) -> Any:
    """Reshapes (batch, heads, n, head_dim) to (batch, n, heads * head_dim)."""
    batch, heads, n, d = x.shape
    return ops.reshape(ops.permute(x, (0, 2, 1, 3)), (batch, n, heads * d))


def attention(q: Any, k: Any, v: Any, mask: Any = None, scale: float | None = None) -> Any:
    """Returns softmax(q @ k.T * scale + mask) @ v; `scale` defaults to 1 / sqrt(head_dim). Queries that see no key give zeros."""
    return ops.scaled_dot_product_attention(q, k, v, mask, scale=scale)


class MultiheadAttention(Module):
    """Multi-head attention of `query` over `key` and `value`, all (batch, n, embed_dim), like torch's with batch_first=True."""

    def __init__(self, embed_dim: int, num_heads: int, bias: bool = True, dtype: Any = None) -> None:
        if embed_dim % num_heads:
            raise Error(f"{embed_dim} is no multiple of {num_heads} heads", where=caller_span())
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.in_proj_weight: Any = Parameter(shape=(3 * embed_dim, embed_dim), dtype=dtype)
        self.in_proj_bias: Any = Parameter(shape=(3 * embed_dim,), dtype=dtype) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype)

    def forward(self, query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        """Projects, attends and projects back; `mask` is broadcast to (batch, heads, n, n_key)."""
        q, k, v = (split_heads(self._project(x, i), self.num_heads) for i, x in enumerate((query, key, value)))
        return self.out_proj(join_heads(attention(q, k, v, mask)))

    def _project(self, x: Any, part: int) -> Any:
        """Applies the query (0), key (1) or value (2) part of the packed input projection."""
        rows = slice(part * self.embed_dim, (part + 1) * self.embed_dim)
        return ops.linear(x, self.in_proj_weight[rows], None if self.in_proj_bias is None else self.in_proj_bias[rows])

    def details(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}"
