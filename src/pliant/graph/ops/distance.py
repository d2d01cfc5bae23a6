"""Distances between the rows of two matrices: cdist.

ops.cdist(a, b)                # (…, m, k) and (…, n, k) -> (…, m, n): Euclidean distances
ops.cdist(a, b, p=1)           # sums of absolute differences; p=inf: the largest one

Differences are summed as they are, not as |a|^2 + |b|^2 - 2ab, which cancels for points that are close. 16-bit floats are summed in f32.
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from ...support.errors import ShapeError
from ...support.record import dataclass
from ...sym.expr import Call, Cast, Const, Expr, Mul, Sub
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operator
from ..stage import Indices, Read, Stage
from .elementwise import project
from .linalg import MatmulAttrs, product_shape
from .reduce import accumulator

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DistanceAttrs:
    """The attributes of `cdist`: the power of the norm; 2 is the Euclidean distance, infinity the largest absolute difference."""

    p: float


def _deduce(d: Deduction, attrs: DistanceAttrs) -> tuple[Annotation, ...]:
    d.same_floats()
    return (Tensor(d.tensor(0).dtype, product_shape(d, MatmulAttrs(transpose_b=True))),)


def _stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: DistanceAttrs) -> tuple[Stage, ...]:
    (a, b), out, p = args, outs[0], attrs.p
    wide, batch = accumulator(out.dtype), out.shape[:-2]

    def term(i: Indices, r: Indices, read: Read) -> Expr:
        left = read(0, *project(a.shape[:-2], batch, i[:-2]), i[-2], r[0])
        right = read(1, *project(b.shape[:-2], batch, i[:-2]), i[-1], r[0])
        difference = Sub(*(e if e.dtype is wide else Cast(wide, e) for e in (left, right)))
        if p == 2:
            return Mul(difference, difference)
        size = Call("abs", difference)
        return size if p in (1, math.inf) else Call("pow", size, Const(p, wide))

    total = Stage("total", wide, out.shape, term, (a.shape[-1],), "max" if p == math.inf else "add", Const(0, wide))
    if p in (1, math.inf) and wide is out.dtype:
        return (total,)

    def root(i: Indices, r: Indices, read: Read) -> Expr:
        distance = read("total", *i)
        if p == 2:
            distance = Call("sqrt", distance)
        elif p not in (1, math.inf):
            distance = Call("pow", distance, Const(1 / p, wide))
        return distance if wide is out.dtype else Cast(out.dtype, distance)

    return (total, Stage("out", out.dtype, out.shape, root))


def _reference(args: Sequence[Array], attrs: DistanceAttrs) -> list[Array]:
    a, b = (x.astype(np.float64) for x in args)
    sizes = np.abs(a[..., :, None, :] - b[..., None, :, :])
    if attrs.p == math.inf:
        return [np.max(sizes, axis=-1, initial=0).astype(args[0].dtype)]
    return [(np.sum(sizes**attrs.p, axis=-1) ** (1 / attrs.p)).astype(args[0].dtype)]


@operator(deduce=_deduce, reference=_reference, stages=_stages, attrs=DistanceAttrs, arity=2)
def cdist(op: OpCall, x: T, y: T, p: float = 2.0) -> T:
    """The p-norm distance between each row of `x` (…, m, k) and each row of `y` (…, n, k): (…, m, n). Leading dims broadcast.

    Raises a ShapeError unless p is a number from 1 on; it may be infinite.
    """
    if isinstance(p, bool) or not isinstance(p, int | float) or not p >= 1:
        raise ShapeError(f"{op.name}: p is a number from 1 on, not {p!r}", help="the largest absolute difference is p=inf")
    return op.emit(*op.operands((x, y)), attrs=DistanceAttrs(float(p)))
