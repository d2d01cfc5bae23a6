"""Top-k of a row with a binary heap: the root is the worst of the k best so far, and most elements are rejected by one comparison with it.

Of equal elements the earlier one is better. Each index that comes from memory is under a condition that bounds it, because range analysis
knows nothing about loaded values.
"""

# Inline functions are written in the loop language, which is not typed for mypy.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from ....loop.inline import inline
from ....loop.script import alloc
from ....sym.spec import bool_, i64


@inline
def best_by_heap(element, n, count, X, is_before, put):
    """Calls `put(place in the result, value, place in the row)` for the best `count` of the `n` elements of a row; place 0 is the best."""
    best = alloc((count,), X)
    where = alloc((count,), i64)
    for i in range(min(count, n)):
        best[i] = element(i)
        where[i] = i
    for t in range(count // 2):  # each element becomes worse than the two below it
        top = count // 2 - 1 - t
        if 0 <= top < count:
            key = best[top]
            place = where[top]
            sink(best, where, count, top, key, place, count, is_before)
    if count > 0:
        for j in range(count, n):
            new = element(j)
            if is_before(new, best[0]):
                sink(best, where, count, 0, new, j, count, is_before)
    for r in range(count):
        last = count - 1 - r
        put(last, best[0], where[0])
        key = best[last]
        place = where[last]
        sink(best, where, count, 0, key, place, last, is_before)


@inline
def sink(best, where, count, top, key, place, size, is_before):
    """Sift-down: inserts an element at `top` and moves worse children up, within the first `size` elements."""
    hole = alloc((1,), i64, scope="stack")
    hole[0] = top
    chosen = alloc((1,), i64, scope="stack")
    chosen[0] = 0
    going = alloc((1,), bool_, scope="stack")
    going[0] = True
    while going[0]:
        h = hole[0]
        left = h * 2 + 1
        right = h * 2 + 2
        chosen[0] = left
        going[0] = False
        if 0 <= left < count and (0 <= right < count) and right < size:
            if is_worse(best[right], where[right], best[left], where[left], is_before):
                chosen[0] = right
        child = chosen[0]
        if 0 <= h < count and (0 <= child < count) and child < size:
            if is_worse(best[child], where[child], key, place, is_before):
                best[h] = best[child]
                where[h] = where[child]
                hole[0] = child
                going[0] = True
    end = hole[0]
    if 0 <= end < count:
        best[end] = key
        where[end] = place


@inline
def is_worse(key, place, than_key, than_place, is_before):
    """True if an element comes after another one in the result; of equal ones, if its place is later."""
    return is_before(than_key, key) or (not is_before(key, than_key) and than_place < place)
