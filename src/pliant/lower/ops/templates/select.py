"""Operators with data-dependent result sizes: nonzero and unique. Results have room for the largest size; the true size is counted."""

# Inline functions are written in the loop language, which is not typed for mypy.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

from ....dtype import bool_
from ....loop.inline import inline
from ....loop.script import alloc, grid, vector, view
from ....sym.script import cast
from ....sym.spec import i64
from .build import Site, numbered
from .sort import merge_sort, order_of


def nonzero(site: Site) -> Any:
    """Builds `nonzero`: the indices of the elements that are not zero, in row-major order."""
    x, places, total = site.args[0], site.outs[0], site.counts[0]
    X, IS_BOOL, most = x.dtype, x.dtype is bool_, places.shape[0]

    @inline
    def indices():
        count = alloc((1,), i64, scope="stack")
        count[0] = 0
        for i in grid(*x.shape):
            if x[*i] if IS_BOOL else x[*i] != cast(X, 0):
                at = count[0]
                if 0 <= at < most:
                    for d, index in numbered(i):
                        places[at, d] = index
                    count[0] = at + 1
        total[()] = count[0]

    return indices


def unique(site: Site) -> Any:
    """Builds `unique`: sorts the elements and numbers runs of equal ones; without `sorted`, renumbers them by first occurrence."""
    x, (values, firsts, inverse, counts), total = site.args[0], site.outs, site.counts[0]
    X, SORTED, n, is_before = x.dtype, site.attrs.sorted, inverse.shape[0], order_of(x.dtype, descending=False)

    @inline
    def number_runs(keys, places, values, firsts, counts):
        """Numbers the runs of equal sorted keys, and stores the value, the first position and the size of each run."""
        count = alloc((1,), i64, scope="stack")
        count[0] = 0
        for t in range(n):
            if t == 0 or is_before(keys[t - 1], keys[t]):
                at = count[0]
                if 0 <= at < n:
                    values[at] = keys[t]
                    firsts[at] = places[t]
                    counts[at] = 0
                    count[0] = at + 1
            group = count[0] - 1
            place = places[t]
            if 0 <= group < n and (0 <= place < n):
                counts[group] = counts[group] + 1
                inverse[place] = group
        total[()] = count[0]

    @inline
    def renumber(value, first, size):
        """Reorders the runs by the position of their first element."""
        rank = alloc((n,), i64)
        met = alloc((1,), i64, scope="stack")
        met[0] = 0
        for j in range(n):
            group = inverse[j]
            if 0 <= group < n:
                if first[group] == j:
                    at = met[0]
                    if 0 <= at < n:
                        values[at] = value[group]
                        firsts[at] = first[group]
                        counts[at] = size[group]
                        rank[group] = at
                        met[0] = at + 1
                new = rank[group]
                inverse[j] = new

    @inline
    def runs():
        flat = view(x, (n,))
        keys = alloc((n,), X)
        places = alloc((n,), i64)
        next_keys = alloc((n,), X)
        next_places = alloc((n,), i64)
        for j in vector(n):
            keys[j] = flat[j]
            places[j] = j
        merge_sort(keys, places, next_keys, next_places, n, is_before)
        if SORTED:
            number_runs(keys, places, values, firsts, counts)
        else:
            value = alloc((n,), X)
            first = alloc((n,), i64)
            size = alloc((n,), i64)
            number_runs(keys, places, value, first, size)
            renumber(value, first, size)

    return runs
