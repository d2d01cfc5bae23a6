"""Scans (cumsum, cumprod, cummax, cummin): parallel over rows, sequential along the axis, vectorized over the inner dims.

for i in parallel(n):
    for k in vector(w): total[k] = 0
    for j in range(m):
        for k in vector(w): total[k] = total[k] + x[i, j, k]; y[i, j, k] = total[k]

If the axis is the last dim, there is nothing to vectorize. Then a few rows are interleaved: each step depends on the previous one of the
same row, and the other rows hide its latency.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ....dtype import DType, bool_
from ....graph.ops.reduce import accumulator, limit
from ....loop.buffer import Buffer, Scope
from ....loop.stmt import Alloc, For, If, Let, Stmt, Store, seq
from ....sym.expr import Add, And, Binary, Cast, Const, Eq, Expr, Le, Mul, Ne, Or, Select, Var
from .build import ONE, ZERO, Indices, Site, nest

Step = Callable[[Sequence[Buffer], Indices, Expr, Indices], Stmt]  # (running values, indices before the axis, along it, after it)
TOGETHER = 4  # interleaved rows: about as many as a floating-point add takes cycles
OPERATION: dict[str, tuple[type[Binary], int]] = {"cumsum": (Add, 0), "cumprod": (Mul, 1)}


def running(site: Site) -> Stmt:
    """Builds `cumsum` and `cumprod`."""
    x, y, attrs = site.buffer(0), site.outs[0], site.attrs
    operation, identity = OPERATION[site.name]
    wide = accumulator(x.dtype)
    extent = x.shape[attrs.axis]

    def step(kept: Sequence[Buffer], rows: Indices, j: Expr, k: Indices) -> Stmt:
        (total,) = kept
        at, place = (*rows, extent - 1 - j if attrs.reverse else j, *k), k or (ZERO,)
        new = operation(total.load(*place), _cast(wide, x.load(*at)))
        write = Store(y, at, _cast(y.dtype, total.load(*place)))
        return seq(write, Store(total, place, new)) if attrs.exclusive else seq(Store(total, place, new), write)

    return _walk(site, {"total": Const(identity, wide)}, step)


def extremum(site: Site) -> Stmt:
    """Builds `cummax` and `cummin`, with the indices of the extrema."""
    x, (values, indices) = site.buffer(0), site.outs

    def step(kept: Sequence[Buffer], rows: Indices, j: Expr, k: Indices) -> Stmt:
        best, where = kept
        at, place = (*rows, j, *k), k or (ZERO,)
        new, old = Var("new", x.dtype), Var("old", x.dtype)
        better: Expr = Le(old, new) if site.name == "cummax" else Le(new, old)
        if x.dtype.is_float:
            better = Or(Ne(new, new), And(Eq(old, old), better))
        taken, value, since = Var("taken", bool_), Var("value", x.dtype), Var("since", indices.dtype)
        return seq(  # selects instead of branches, which would be mispredicted
            Let(new, x.load(*at)),
            Let(old, best.load(*place)),
            Let(taken, better),
            Let(value, Select(taken, new, old)),
            Let(since, Select(taken, j, where.load(*place))),
            *(Store(b, i, e) for b, i, e in ((best, place, value), (where, place, since), (values, at, value), (indices, at, since))),
        )

    first = limit(x.dtype, largest=site.name == "cummin")  # the identity: no element is worse
    return _walk(site, {"best": first, "where": ZERO}, step)


def _walk(site: Site, first: Mapping[str, Expr], step: Step) -> Stmt:
    """Returns the loops of a scan: rows in parallel; the running values start as `first`."""
    x, axis = site.buffer(0), site.attrs.axis
    *outer, count = x.shape[:axis] or (ONE,)
    if axis == 0 or axis + 1 < x.ndim:
        return nest(x.shape[:axis], lambda rows: _together(site, [rows], first, step), outer="parallel")

    def group(at: Indices) -> Stmt:
        begin, row = at[-1] * TOGETHER, Var("row", ZERO.dtype)
        some = _together(site, [(*at[:-1], begin + n) for n in range(TOGETHER)], first, step)
        rest = For(row, begin, count, "serial", _together(site, [(*at[:-1], row)], first, step))
        return If(Le(begin + TOGETHER, count), some, rest)

    return nest((*outer, (count + TOGETHER - 1) // TOGETHER), group, outer="parallel")


def _together(site: Site, rows: Sequence[Indices], first: Mapping[str, Expr], step: Step) -> Stmt:
    """Scans some rows along the axis, interleaved step by step."""
    x, axis = site.buffer(0), site.attrs.axis
    beside = x.shape[axis + 1 :]
    # Running values: one for each element of the inner dims, or a single one on the stack if the axis is the last dim.
    shape = beside or (ONE,)
    scope: Scope = "workspace" if beside else "stack"
    kept = [[Buffer(name, e.dtype, shape, scope=scope) for name, e in first.items()] for _ in rows]
    outer = "vector" if len(beside) == 1 else "serial"
    j = Var("t", ZERO.dtype)

    def start(own: Sequence[Buffer]) -> Stmt:
        stores = list(zip(own, first.values(), strict=True))
        return nest(beside, lambda k: seq(*(Store(b, k or (ZERO,), e) for b, e in stores)), inner="vector", outer=outer)

    def move(own: Sequence[Buffer], at: Indices) -> Stmt:
        return nest(beside, lambda k: step(own, at, j, k), inner="vector", outer=outer)

    moves = [move(own, at) for own, at in zip(kept, rows, strict=True)]
    return seq(*(Alloc(b) for own in kept for b in own), *map(start, kept), For(j, ZERO, x.shape[axis], "serial", seq(*moves)))


def _cast(dtype: DType, e: Expr) -> Expr:
    return e if e.dtype is dtype else Cast(dtype, e)
