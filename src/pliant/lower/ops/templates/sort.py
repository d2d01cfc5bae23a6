"""Sorting operators: stable bottom-up merge sort of rows (keys with their indices), top-k, and binary search.

Rows run in parallel. Each index that comes from memory is under a condition that bounds it, because range analysis knows nothing about
loaded values.
"""

# Inline functions are written in the loop language, which is not typed for mypy.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
from typing import Any

from ....dtype import DType, bool_
from ....loop.buffer import Buffer
from ....loop.inline import compile_time, inline
from ....loop.script import alloc, grid, vector
from ....sym.expr import Const, Expr, Var
from ....sym.script import cast, select
from ....sym.spec import i8, i64
from .build import Site
from .heap import best_by_heap

SMALL = 64  # up to this k, topk keeps a sorted list on the stack instead of a heap: insertions are rare, and shift at most k elements


@functools.cache
def order_of(dtype: DType, descending: bool) -> Any:
    """Returns the comparison "a comes before b" of an ascending or `descending` sort; NaN is the largest value."""
    IS_BOOL, IS_FLOAT = dtype is bool_, dtype.is_float

    @inline
    def less(a, b):
        return cast(i8, a) < cast(i8, b) if IS_BOOL else (a < b or (b != b and a == a)) if IS_FLOAT else a < b

    @inline
    def is_before(a, b):
        return less(b, a) if descending else less(a, b)

    return is_before


@compile_time
def is_plain(extent: Expr) -> Const:
    """True for a dim or a number: range analysis bounds a loop variable by it, but not by a product."""
    return Const(isinstance(extent, Var | Const), bool_)


@inline
def merge_sort(keys, places, next_keys, next_places, n, is_before):
    """Sorts the first `n` keys with their places, stably, by merging into the other two buffers.

    `n` must be provably at most the size of all.
    """
    width = alloc((1,), i64, scope="stack")  # runs of this length are sorted
    width[0] = 1
    start = alloc((1,), i64, scope="stack")
    start[0] = 0
    left = alloc((1,), i64, scope="stack")
    left[0] = 0
    right = alloc((1,), i64, scope="stack")
    right[0] = 0
    while 0 < width[0] < n:
        w = width[0]
        start[0] = 0
        while 0 <= start[0] < n:  # merges the run at start with the next one
            lo = start[0]
            middle = min(lo + w, n)
            end = min(lo + w + w, n)
            left[0] = lo
            right[0] = middle
            for t in range(lo, end):
                if is_plain(n) or t < n:
                    merge_next(keys, places, next_keys, next_places, left, right, t, middle, end, n, is_before)
            start[0] = end
        for j in vector(n):
            keys[j] = next_keys[j]
            places[j] = next_places[j]
        width[0] = w + w


@inline
def merge_next(keys, places, next_keys, next_places, left, right, t, middle, end, n, is_before):
    """Moves the head of one of two runs to `t`: the one that comes first in the order, the left one where they are equal.

    If one run is used up, it moves the head of the other.
    """
    a = left[0]
    b = right[0]
    (has_a := 0 <= a < middle and a < n)
    (has_b := 0 <= b < end and b < n)
    if has_a and has_b:
        key_a = keys[a]
        key_b = keys[b]
        place_a = places[a]
        place_b = places[b]
        second = is_before(key_b, key_a)  # selects instead of a branch, which would be mispredicted half of the time
        next_keys[t] = select(second, key_b, key_a)
        next_places[t] = select(second, place_b, place_a)
        left[0] = select(second, a, a + 1)
        right[0] = select(second, b + 1, b)
    elif has_a:
        next_keys[t] = keys[a]
        next_places[t] = places[a]
        left[0] = a + 1
    elif has_b:
        next_keys[t] = keys[b]
        next_places[t] = places[b]
        right[0] = b + 1


def sort(site: Site) -> Any:
    """Builds `sort`: the sorted values and their original indices."""
    return _sorted(site, *site.outs)


def argsort(site: Site) -> Any:
    """Builds `argsort`: the original indices of the sorted values."""
    return _sorted(site, None, site.outs[0])


def _sorted(site: Site, values: Any, indices: Any) -> Any:
    """Sorts every row; stores the values (if wanted) and the original indices."""
    x, axis = site.args[0], site.attrs.axis
    outer, n, inner = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    X, WITH_VALUES, is_before = x.dtype, values is not None, order_of(x.dtype, site.attrs.descending)

    @inline
    def rows():
        for o, k in grid(*outer, *inner, outermost="parallel"):
            keys = alloc((n,), X)
            places = alloc((n,), i64)
            next_keys = alloc((n,), X)
            next_places = alloc((n,), i64)
            for j in range(n):
                keys[j] = x[*o, j, *k]
                places[j] = j
            merge_sort(keys, places, next_keys, next_places, n, is_before)
            for i in range(n):
                if WITH_VALUES:
                    values[*o, i, *k] = keys[i]
                indices[*o, i, *k] = places[i]

    return rows


def topk(site: Site) -> Any:
    """Builds `topk`: keeps the best elements in a sorted list if `k` is a small constant, else in a heap."""
    count, (values, indices), x, axis = site.attrs.k, site.outs, site.args[0], site.attrs.axis
    outer, n, inner = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    X, is_before = x.dtype, order_of(x.dtype, site.attrs.largest)
    best_of_row = best_by_insertion if isinstance(count, Const) and 0 < count.value <= SMALL else best_by_heap

    @inline
    def rows():
        for o, k in grid(*outer, *inner, outermost="parallel"):

            def element(j):
                return x[*o, j, *k]

            def put(i, value, place):
                values[*o, i, *k] = value
                indices[*o, i, *k] = place

            best_of_row(element, n, count, X, is_before, put)

    return rows


@inline
def best_by_insertion(element, n, count, X, is_before, put):
    """Calls `put(place in the result, value, place in the row)` for the best `count` of `n` elements, best first.

    Each element that is better than the last one of a sorted list is inserted into the list.
    """
    best = alloc((count,), X, scope="stack")
    where = alloc((count,), i64, scope="stack")
    have = alloc((1,), i64, scope="stack")
    have[0] = 0
    place = alloc((1,), i64, scope="stack")
    place[0] = 0
    for i in range(count):
        best[i] = cast(X, 0)
        where[i] = 0
    for j in range(n):
        new = element(j)
        h = have[0]
        if h < count or is_before(new, best[count - 1]):
            place[0] = min(h, count - 1)
            if h < count:
                have[0] = h + 1
            while 0 < place[0] < count and is_before(new, best[place[0] - 1]):
                p = place[0]
                best[p] = best[p - 1]
                where[p] = where[p - 1]
                place[0] = p - 1
            q = place[0]
            if 0 <= q < count:
                best[q] = new
                where[q] = j
    for r in range(count):
        put(r, best[r], where[r])


def search(site: Site) -> Any:
    """Builds `searchsorted`: binary search for the place of each value, before equal elements, or after them with `right`."""
    order, values, out = site.args[0], site.args[1], site.outs[0]
    n, less, RIGHT = order.shape[-1], order_of(order.dtype, descending=False), site.attrs.right
    BATCHED, NUMBER = order.ndim > 1, not isinstance(values, Buffer)

    @inline
    def positions():
        for v in grid(*out.shape, outermost="parallel"):
            low = alloc((1,), i64, scope="stack")
            low[0] = 0
            high = alloc((1,), i64, scope="stack")
            high[0] = n
            value = values if NUMBER else values[*v]
            while low[0] < high[0]:
                a = low[0]
                b = high[0]
                middle = (a + b) // 2
                if 0 <= middle < n:
                    (pivot := order[*v[:-1], middle] if BATCHED else order[middle])
                    if not less(value, pivot) if RIGHT else less(pivot, value):
                        low[0] = middle + 1
                    else:
                        high[0] = middle
                else:
                    high[0] = a
            out[*v] = low[0]

    return positions
