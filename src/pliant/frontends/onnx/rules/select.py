"""Operators with data-dependent results: NonZero, Compress, Unique, TopK, NonMaxSuppression."""

from __future__ import annotations

from typing import Any

from ....dtype import i32, i64
from ..emit import ops
from ..items import Known
from ..node_context import NodeContext
from ..registry import rule


@rule("NonZero")
def nonzero(site: NodeContext) -> Any:
    """Imports NonZero: the indices of nonzero elements, one row per dim."""
    x = site.x(0)
    x = ops.reshape(x, (1,)) if site.rank(0) == 0 else x
    return ops.permute(ops.nonzero(x), (1, 0))


@rule("Compress")
def compress(site: NodeContext) -> Any:
    """Imports Compress: the slices along an axis for which a condition is true."""
    axis = site.integer("axis", None)
    axis = None if axis is None else site.normal(axis, site.rank(0))
    return ops.compress(site.x(0), site.x(1), axis)


@rule("Unique")
def unique(site: NodeContext) -> Any:
    """Imports Unique: the unique elements, or the unique slices along an axis."""
    if "axis" in site.attributes and site.rank(0) != 1:
        return _unique_along(site, site.axis("axis", site.rank(0)), bool(site.integer("sorted", 1)))
    return ops.unique(ops.reshape(site.x(0), (-1,)), bool(site.integer("sorted", 1)))


def _unique_along(site: NodeContext, axis: int, ordered: bool) -> Any:
    """Returns the unique slices along an axis, their first indices, the number of each slice, and the counts, by comparing all pairs.

    Slice j comes before slice i if it is smaller at the first element at which they differ. They are sorted if `ordered`, else in order of
    first occurrence.
    """
    rank, n = site.rank(0), site.tensor(0).shape[axis]
    rows = ops.reshape(ops.permute(site.x(0), [axis, *(k for k in range(rank) if k != axis)]), (n, -1))
    mine, other = ops.unsqueeze(rows, 1), ops.unsqueeze(rows, 0)
    differ = ops.not_equal(mine, other)  # [i, j, elements]
    first = ops.unsqueeze(ops.argmax(ops.cast(differ, i32), axis=2), 2)
    same = ops.logical_not(ops.any(differ, axis=2))  # [i, j]
    leader = ops.argmax(ops.cast(same, i32), axis=1)  # the first slice equal to each slice
    leads = ops.equal(leader, ops.arange(n))
    if ordered:
        before = ops.squeeze(ops.gather(ops.cast(ops.less(other, mine), i32), first, 2), 2)
        number = ops.sum(ops.where(leads, ops.cast(before, i64), 0), axis=1)  # the number of leaders before each slice
    else:
        number = ops.take(ops.sub(ops.cumsum(ops.cast(leads, i64), 0), 1), leader, 0)
    leaders = ops.squeeze(ops.nonzero(leads), 1)
    count = leaders.tensor.shape[0]
    indices = ops.scatter(ops.zeros((count,), i64), ops.take(number, leaders, 0), leaders, 0)
    sizes = ops.scatter(ops.zeros((count,), i64), number, ops.ones((n,), i64), 0, "add")
    return ops.take(site.x(0), indices, axis), indices, number, sizes


@rule("TopK")
def topk(site: NodeContext) -> Any:
    """Imports TopK: the k largest or smallest elements along an axis, in order."""
    axis = site.axis("axis", site.rank(0), -1)
    k = site.integer("k", 0) if site.version < 10 else site.run_time_dims(1, site.tensor(0).shape[axis])[0]
    return ops.topk(site.x(0), k, axis, bool(site.integer("largest", 1)))


@rule("NonMaxSuppression")
def non_max_suppression(site: NodeContext) -> Any:
    """Imports NonMaxSuppression: the boxes that it selects, as rows (batch, class, box); none without a maximal number."""
    most: Any = 0
    if site.has(2):
        most = int(site.number(2)) if isinstance(site.item(2), Known) else ops.reshape(site.x(2), ())
    limits = [ops.reshape(site.x(k), ()) if site.has(k) else 0.0 for k in (3, 4)]
    if not site.has(4):
        limits[1] = float("-inf")
    center = bool(site.integer("center_point_box", 0))
    return ops.non_max_suppression(site.x(0), site.x(1), most, limits[0], limits[1], center_point_box=center)
