"""im2col: the windows of a tensor as rows, channels last.

ops.unfold(x, fill, (3, 3), padding=1)         # (n, h, w, c) -> (n, h, w, 3, 3, c): the operands of each element of a convolution
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ...support.record import dataclass
from ...sym.expr import Expr, const
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operator, tensor_of
from ..stage import Indices, Read, Stage
from .window import Window, WindowAttrs, padded_windows, read_inside, whole_numbers, window_of, window_sizes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UnfoldAttrs(WindowAttrs):
    """The attributes of `unfold` (im2col): kernel, stride, padding and dilation of the windows."""

    def window(self) -> Window:
        """Returns the geometry of the windows."""
        return window_of("unfold", len(self.kernel), _exprs(self.kernel), self.stride, self.padding, self.dilation)


def _exprs(numbers: Sequence[int]) -> tuple[Expr, ...]:
    return tuple(map(const, numbers))


def _deduce(d: Deduction, attrs: UnfoldAttrs) -> tuple[Annotation, ...]:
    x, rank = d.rank(0, len(attrs.kernel) + 2), len(attrs.kernel)
    d.rank(1, 0)
    if d.tensor(1).dtype is not x.dtype:
        raise d.error(f"unfold: outside lies {d.tensor(1).dtype}, and `{d.args[0].name}` is {x.dtype}", arg=1)
    outs = attrs.window().sizes(d, x.shape[1 : rank + 1])
    return (Tensor(x.dtype, (x.shape[0], *outs, *_exprs(attrs.kernel), x.shape[-1])),)


def _stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: UnfoldAttrs) -> tuple[Stage, ...]:
    x, window, rank = args[0], attrs.window(), len(attrs.kernel)

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        places = window.places(i[1 : rank + 1], i[rank + 1 : 2 * rank + 1])
        inside = window.inside(places, x.shape[1 : rank + 1])
        return read_inside(read, 0, (i[0], *places, i[-1]), inside, read(1))

    return (Stage("unfold", x.dtype, outs[0].shape, value),)


def _reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    rank = len(attrs.kernel)
    first = np.moveaxis(args[0], -1, 1)
    views = padded_windows(first, attrs.kernel, attrs, window_sizes(first, attrs.kernel, attrs), args[1])
    return [np.ascontiguousarray(np.moveaxis(views, 1, 2 * rank + 1))]


@operator(deduce=_deduce, reference=_reference, stages=_stages, attrs=UnfoldAttrs, arity=2)
def unfold(op: OpCall, x: T, fill: Any, kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> T:
    """im2col: the windows over the spatial dims of `x` (n, …, c), as (n, windows…, kernel…, c); `fill` is the value of the padding."""
    value = op.operand(x)
    t = tensor_of(value.annotation)
    rank = len(t.shape) - 2
    sizes = whole_numbers(op.name, "kernel", kernel, rank)
    window = window_of(op.name, rank, _exprs(sizes), stride, padding, dilation)
    return op.emit(value, op.operand(fill, t.dtype), attrs=UnfoldAttrs(sizes, window.stride, window.padding, window.dilation))
