"""Results that data decide: NonZero, Compress, Unique, TopK, NonMaxSuppression."""

from __future__ import annotations

from typing import Any

from ..emit import ops
from ..items import Known
from ..registry import rule
from ..site import Site


@rule("NonZero")
def nonzero(site: Site) -> Any:
    """The indices of elements that are not zero, a row for each dim."""
    x = site.x(0)
    x = ops.reshape(x, (1,)) if site.rank(0) == 0 else x
    return ops.permute(ops.nonzero(x), (1, 0))


@rule("Compress")
def compress(site: Site) -> Any:
    """The parts where a condition holds."""
    axis = site.integer("axis", None)
    axis = None if axis is None else site.normal(axis, site.rank(0))
    return ops.compress(site.x(0), site.x(1), axis)


@rule("Unique")
def unique(site: Site) -> Any:
    """The different elements."""
    if "axis" in site.attributes and site.rank(0) != 1:
        raise site.unsupported('attribute "axis" is not supported')
    return ops.unique(ops.reshape(site.x(0), (-1,)), bool(site.integer("sorted", 1)))


@rule("TopK")
def topk(site: Site) -> Any:
    """The largest or smallest elements along an axis, in order."""
    axis = site.axis("axis", site.rank(0), -1)
    k = site.integer("k", 0) if site.version < 10 else site.run_time_dims(1, site.tensor(0).shape[axis])[0]
    return ops.topk(site.x(0), k, axis, bool(site.integer("largest", 1)))


@rule("NonMaxSuppression")
def non_max_suppression(site: Site) -> Any:
    """The boxes that are kept."""
    most: Any = 0
    if site.has(2):
        most = int(site.number(2)) if isinstance(site.item(2), Known) else ops.reshape(site.x(2), ())
    limits = [ops.reshape(site.x(k), ()) if site.has(k) else 0.0 for k in (3, 4)]
    if not site.has(4):
        limits[1] = float("-inf")
    center = bool(site.integer("center_point_box", 0))
    return ops.non_max_suppression(site.x(0), site.x(1), most, limits[0], limits[1], center_point_box=center)
