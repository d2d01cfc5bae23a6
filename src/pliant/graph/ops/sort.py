"""Sorting and searching: sort, argsort, topk, searchsorted, bucketize.

Sorting is stable, also if descending: equal elements keep their order. NaN is larger than every number. topk returns the k largest (or
smallest) elements in order; of equal ones those that come first.

    values, indices = ops.sort(x, axis=-1, descending=True); values, indices = ops.topk(x, k=5)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import i64
from ...support.record import dataclass
from ...sym.expr import And, Expr, Le, const
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, composite, operator
from .reduce import normal_axis
from .shape import as_dim

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SortAttrs:
    """The attributes of `sort` and `argsort`: the axis, and whether the order is descending."""

    axis: int
    descending: bool = False


def ordered(d: Deduction, k: int = 0) -> Tensor:
    """Returns the annotation of argument `k`; raises an error for storage types, which have no order."""
    x = d.tensor(k)
    if x.dtype.storage:
        raise d.error(f"{d.what} of {x.dtype}", arg=k, help=f"write ops.cast({d.args[k].name}, f32)")
    return x


def stable_order(x: Array, axis: int, descending: bool) -> Array:
    """Returns the indices that sort along an axis, in numpy; equal elements keep their order, also if it is descending."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    last = x.shape[axis] - 1
    return np.flip(last - np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)


def _deduce_sort(d: Deduction, attrs: SortAttrs) -> tuple[Annotation, ...]:
    x = ordered(d)
    return Tensor(x.dtype, x.shape), Tensor(i64, x.shape)


def _sort_reference(args: Sequence[Array], attrs: SortAttrs) -> list[Array]:
    order = stable_order(args[0], attrs.axis, attrs.descending)
    return [np.take_along_axis(args[0], order, attrs.axis), order]


@operator(deduce=_deduce_sort, reference=_sort_reference, attrs=SortAttrs, template="sort.sort")
def sort(op: OpCall, x: T, axis: int = -1, descending: bool = False) -> Any:
    """The elements sorted along `axis`, and their indices (i64) in `x`; equal elements keep their order."""
    value = op.operand(x)
    return op.emit(value, attrs=SortAttrs(normal_axis(op.name, value, axis), descending))


def _deduce_argsort(d: Deduction, attrs: SortAttrs) -> tuple[Annotation, ...]:
    return (Tensor(i64, ordered(d).shape),)


def _argsort_reference(args: Sequence[Array], attrs: SortAttrs) -> list[Array]:
    return [stable_order(args[0], attrs.axis, attrs.descending)]


@operator(deduce=_deduce_argsort, reference=_argsort_reference, attrs=SortAttrs, template="sort.argsort")
def argsort(op: OpCall, x: T, axis: int = -1, descending: bool = False) -> Any:
    """The indices (i64) that sort the elements along `axis`; equal elements keep their order."""
    value = op.operand(x)
    return op.emit(value, attrs=SortAttrs(normal_axis(op.name, value, axis), descending))


@dataclass(frozen=True, slots=True)
class TopkAttrs:
    """The attributes of `topk`: the number of elements, the axis, and whether the largest are taken."""

    k: Expr
    axis: int
    largest: bool = True


def _deduce_topk(d: Deduction, attrs: TopkAttrs) -> tuple[Annotation, ...]:
    x = ordered(d)
    n = x.shape[attrs.axis]
    inside = And(Le(const(0), attrs.k), Le(attrs.k, n))
    d.require(inside, f"topk: {{0}} of the {{1}} elements along axis {attrs.axis} of `{d.args[0].name}`", (attrs.k, n))
    shape = (*x.shape[: attrs.axis], attrs.k, *x.shape[attrs.axis + 1 :])
    return Tensor(x.dtype, shape), Tensor(i64, shape)


def _topk_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    order = np.take(stable_order(args[0], attrs.axis, attrs.largest), np.arange(attrs.k), attrs.axis)
    return [np.take_along_axis(args[0], order, attrs.axis), order]


@operator(deduce=_deduce_topk, reference=_topk_reference, attrs=TopkAttrs, template="sort.topk")
def topk(op: OpCall, x: T, k: Any, axis: int = -1, largest: bool = True) -> Any:
    """The `k` largest (or smallest) elements along `axis` in order, and their indices (i64); of equal elements the first come first."""
    value = op.operand(x)
    return op.emit(value, attrs=TopkAttrs(as_dim(op.name, k), normal_axis(op.name, value, axis), largest))


@dataclass(frozen=True, slots=True)
class SearchAttrs:
    """The attributes of `searchsorted`: whether the insertion point is after equal elements."""

    right: bool = False


def _deduce_searchsorted(d: Deduction, attrs: SearchAttrs) -> tuple[Annotation, ...]:
    d.same_dtype()
    order, values = ordered(d), d.tensor(1)
    if not order.shape:
        raise d.error(f"searchsorted: `{d.args[0].name}` has no dims", arg=0)
    if len(order.shape) > 1:
        d.rank(1, len(order.shape))
        for i, (n, m) in enumerate(zip(order.shape[:-1], values.shape, strict=False)):
            d.equal(m, n, f"dim {i} of `{d.args[1].name}` is {{0}}, that of `{d.args[0].name}` {{1}}", arg=1)
    return (Tensor(i64, values.shape),)


def _searchsorted_reference(args: Sequence[Array], attrs: SearchAttrs) -> list[Array]:
    order, values = args
    side: Any = "right" if attrs.right else "left"
    if order.ndim == 1:
        return [np.asarray(np.searchsorted(order, values, side), np.int64)]
    count = math.prod(values.shape[:-1])
    rows = zip(order.reshape(count, order.shape[-1]), values.reshape(count, values.shape[-1]), strict=True)
    places = [np.searchsorted(a, b, side) for a, b in rows]
    return [np.array(places, np.int64).reshape(values.shape)]


@operator(deduce=_deduce_searchsorted, reference=_searchsorted_reference, attrs=SearchAttrs, arity=2, template="sort.search")
def searchsorted(op: OpCall, order: T, values: Any, right: bool = False) -> Any:
    """The insertion point of each value in `order`, which is sorted along its last dim and has one dim, or those of the values.

    It is before equal elements, or after them with `right`.
    """
    return op.emit(*op.operands((order, values)), attrs=SearchAttrs(right))


@composite
def bucketize(op: OpCall, values: T, boundaries: Any, right: bool = False) -> Any:
    """The index of the bucket between `boundaries` that contains each value: the number of boundaries below it.

    With `right`, a boundary that equals the value counts too.
    """
    return searchsorted(boundaries, values, right)
