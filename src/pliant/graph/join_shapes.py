"""Results of two branches that differ in shape: they become one tensor whose differing dims are new ones, at most the larger of the two.

    if c:                                   if c:
        y = x[:1]                               y_all, rows = ops.pad(x[:1], …), 1       # Tensor[f32, max(n, 1), 4]
    else:                           ->      else:
        y = x                                   y_all, rows = ops.pad(x, …), n
                                            y = ops.prefix(y_all, ops.bind_dim(rows, u, most=max(n, 1)))

A branch has to write its result into memory that both share anyhow, so padding costs no other pass over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..sym.expr import Eq, Expr, Max, free_vars
from ..sym.simplify import simplify
from . import opset as ops
from .annotation import decide
from .builder import Builder
from .node import Tensor, Value


def joined_shape(builder: Builder, a: Value, b: Value) -> tuple[Expr, ...] | None:
    """Returns the shape that holds both results, along each axis the larger extent.

    None if they are not both tensors of one dtype and number of dims, one is state, or an extent has a dim that is not known outside the
    branches.
    """
    x, y = a.annotation, b.annotation
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or x.dtype is not y.dtype or x.state or y.state:
        return None
    if len(x.shape) != len(y.shape) or any(not free_vars(e) <= builder.dims for e in (*x.shape, *y.shape)):
        return None
    return tuple(n if _same(n, m) else simplify(Max(n, m)) for n, m in zip(x.shape, y.shape, strict=True))


def padded(builder: Builder, value: Value, other: Value, shape: Sequence[Expr]) -> tuple[Value, list[Value]]:
    """Emits one branch's result, padded with zeros to the joined shape.

    Returns it, and as scalars the extents that it really has along the axes in which `other` differs.
    """
    own = value.tensor.shape
    amounts = [(0, simplify(n - e)) for e, n in zip(own, shape, strict=True)]
    extents = [builder.scalar(own[axis]) for axis in differing_axes(value, other)]
    whole: Any = ops.pad(value, amounts)
    return whole, extents


def cut(whole: Value, extents: Sequence[Value], axes: Sequence[int]) -> Value:
    """Emits the part of the joined tensor that the branch which ran has computed: along each of `axes` the first `extent` elements.

    These extents are new dims.
    """
    value: Any = whole
    for axis, extent in zip(axes, extents, strict=True):
        size: Any = ops.bind_dim(extent, most=whole.tensor.shape[axis])
        value = ops.prefix(value, size) if axis == 0 else ops.slice(value, axis, 0, size)
    return value  # type: ignore[no-any-return]


def differing_axes(a: Value, b: Value) -> list[int]:
    """Returns the axes along which two tensors have extents that are not known to be equal."""
    return [k for k, (n, m) in enumerate(zip(a.tensor.shape, b.tensor.shape, strict=True)) if not _same(n, m)]


def _same(n: Expr, m: Expr) -> bool:
    return n is m or bool(decide(Eq(n, m)))
