"""Operators on sizes and conditions that depend on values."""

from __future__ import annotations

from typing import Any

from ....dtype import i64
from ..emit import ops
from ..registry import rule
from ..site import Site, rank


@rule("aten.histc")
def histc(site: Site, self: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """Imports histc with given bounds: the number of elements in each of `bins` equal parts of the range; others are not counted.

    Raises UnsupportedError for equal bounds, for which torch takes the least and largest element.
    """
    if min == max:
        raise site.unsupported("bounds that are those of the elements are not supported")
    of = site.dtype()
    x = ops.reshape(self, (-1,))
    inside = ops.logical_and(ops.greater_equal(x, site.cast(min, of)), ops.less_equal(x, site.cast(max, of)))
    place = ops.floor(ops.mul(ops.div(ops.sub(x, float(min)), float(max - min)), float(bins)))
    at = ops.minimum(ops.cast(ops.where(inside, place, 0.0), i64), bins - 1)
    zeros = ops.full((bins,), 0.0, of)
    return ops.scatter(zeros, at, ops.cast(inside, of), axis=0, reduction="add")


@rule("aten.isin")
def isin(site: Site, elements: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Imports isin: for each element whether it is among the test elements, or with `invert` whether it is not."""
    of = site.common("elements", "test_elements")
    x, y = site.cast(elements, of), ops.reshape(site.cast(test_elements, of), (-1,))
    found = ops.any(ops.equal(ops.unsqueeze(x, rank(x)), y), axis=rank(x))
    return ops.logical_not(found) if invert else found
