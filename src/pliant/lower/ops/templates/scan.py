"""Scans (cumsum, cumprod, cummax, cummin): parallel over rows, sequential along the axis, vectorized over the inner dims.

If the axis is the last dim, there is nothing to vectorize. Then a few rows are interleaved: each step depends on the previous one of the
same row, and the other rows hide its latency.
"""

# Inline functions are written in the loop language, which is not typed for mypy.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

from ....graph.ops.reduce import accumulator, limit
from ....loop.inline import inline
from ....loop.script import alloc, grid
from ....sym.script import cast, select
from ....sym.spec import i64
from .build import Site, converted, count_of, numbered

TOGETHER = 4  # interleaved rows: about as many as a floating-point add takes cycles


def running(site: Site) -> Any:
    """Builds `cumsum` and `cumprod`, `exclusive` and `reverse` as the attributes say; totals have the accumulator's dtype."""
    x, y, SUM, EXCLUSIVE, REVERSE = site.args[0], site.outs[0], site.name == "cumsum", site.attrs.exclusive, site.attrs.reverse
    X: Any = x.dtype
    WIDE: Any = accumulator(X)

    @inline
    def step(total, place, at):
        if EXCLUSIVE:
            y[*at] = converted(X, total[*place])
        new = total[*place] + converted(WIDE, x[*at]) if SUM else total[*place] * converted(WIDE, x[*at])
        total[*place] = new
        if not EXCLUSIVE:
            y[*at] = converted(X, new)

    @inline
    def scan(rows, n, inner, SCOPE):
        total = alloc((count_of(rows), *inner), WIDE, scope=SCOPE)
        for r, _ in numbered(rows):
            for k in grid(*inner, innermost="vector"):
                total[r, *k] = cast(WIDE, 0 if SUM else 1)
        for j in range(n):
            for r, i in numbered(rows):
                for k in grid(*inner, innermost="vector"):
                    step(total, (r, *k), (*i, n - 1 - j if REVERSE else j, *k))

    return _over_rows(site, scan)


def extremum(site: Site) -> Any:
    """Builds `cummax` and `cummin`, with the indices of the extrema: the last one of equal elements wins, and NaN before all others."""
    x, values, indices, LARGEST = site.args[0], *site.outs, site.name == "cummax"
    X, IS_FLOAT = x.dtype, x.dtype.is_float
    FIRST = limit(X, largest=not LARGEST)  # the identity: no element is worse

    @inline
    def no_worse(new, old):
        return old <= new if LARGEST else new <= old

    @inline
    def step(best, where, place, at, j):
        new = x[*at]
        old = best[*place]
        taken = (new != new or (old == old and no_worse(new, old))) if IS_FLOAT else no_worse(new, old)
        value = select(taken, new, old)  # selects instead of branches, which would be mispredicted
        since = select(taken, j, where[*place])
        best[*place] = value
        where[*place] = since
        values[*at] = value
        indices[*at] = since

    @inline
    def scan(rows, n, inner, SCOPE):
        best = alloc((count_of(rows), *inner), X, scope=SCOPE)
        where = alloc((count_of(rows), *inner), i64, scope=SCOPE)
        for r, _ in numbered(rows):
            for k in grid(*inner, innermost="vector"):
                best[r, *k] = FIRST
                where[r, *k] = 0
        for j in range(n):
            for r, i in numbered(rows):
                for k in grid(*inner, innermost="vector"):
                    step(best, where, (r, *k), (*i, j, *k), j)

    return _over_rows(site, scan)


def _over_rows(site: Site, scan: Any) -> Any:
    """Runs `scan` for all rows: for one after the other, or for a few together if the axis is the last of several dims.

    The running values are one for each element of the inner dims, or a single one on the stack if the axis is the last dim.
    """
    shape, axis = site.args[0].shape, site.attrs.axis
    outer, n, inner = shape[:axis], shape[axis], shape[axis + 1 :]
    if not outer or inner:
        SCOPE = "workspace" if inner else "stack"

        @inline
        def rows():
            for i in grid(*outer, outermost="parallel"):
                scan((i,), n, inner, SCOPE)

        return rows

    batch, count = outer[:-1], outer[-1]
    groups = (count + (TOGETHER - 1)) // TOGETHER

    @inline
    def groups_of_rows():
        for i, g in grid(*batch, groups, outermost="parallel"):
            (b := g * TOGETHER)
            if b + TOGETHER <= count:
                scan(((*i, b), (*i, b + 1), (*i, b + 2), (*i, b + 3)), n, (), "stack")
            else:
                for row in range(b, count):
                    scan(((*i, row),), n, (), "stack")

    return groups_of_rows
