"""Running reductions: rows are shared out, an axis is walked in order, what lies beside it goes along in vectors.

for i in parallel(n):
    for k in vector(w): total[k] = 0
    for j in range(m):
        for k in vector(w): total[k] = total[k] + x[i, j, k]; y[i, j, k] = total[k]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dtype import DType, bool_
from ...graph.ops.reduce import accumulator, limit
from ...loop.buffer import Buffer
from ...loop.stmt import Alloc, For, Let, Stmt, Store, seq
from ...sym.expr import Add, And, Binary, Cast, Const, Eq, Expr, Le, Mul, Ne, Or, Select, Var
from .build import ONE, ZERO, Indices, Site, nest

Step = Callable[[Indices, Expr, Indices], Stmt]  # indices before the axis, along it, behind it
OPERATION: dict[str, tuple[type[Binary], int]] = {"cumsum": (Add, 0), "cumprod": (Mul, 1)}


def running(site: Site) -> Stmt:
    """`cumsum` and `cumprod`."""
    x, y, attrs = site.buffer(0), site.outs[0], site.attrs
    operation, identity = OPERATION[site.name]
    wide = accumulator(x.dtype)
    extent, beside = x.shape[attrs.axis], x.shape[attrs.axis + 1 :]
    total = _beside("total", wide, beside)

    def step(rows: Indices, j: Expr, k: Indices) -> Stmt:
        at, place = (*rows, extent - 1 - j if attrs.reverse else j, *k), k or (ZERO,)
        new = operation(total.load(*place), _cast(wide, x.load(*at)))
        write = Store(y, at, _cast(y.dtype, total.load(*place)))
        return seq(write, Store(total, place, new)) if attrs.exclusive else seq(Store(total, place, new), write)

    return _walk(site, extent, beside, [total], [Const(identity, wide)], step)


def extremum(site: Site) -> Stmt:
    """`cummax` and `cummin`."""
    x, (values, indices) = site.buffer(0), site.outs
    axis = site.attrs.axis
    extent, beside = x.shape[axis], x.shape[axis + 1 :]
    best, where = _beside("best", x.dtype, beside), _beside("where", indices.dtype, beside)

    def step(rows: Indices, j: Expr, k: Indices) -> Stmt:
        at, place = (*rows, j, *k), k or (ZERO,)
        new, old = Var("new", x.dtype), Var("old", x.dtype)
        better: Expr = Le(old, new) if site.name == "cummax" else Le(new, old)
        if x.dtype.is_float:
            better = Or(Ne(new, new), And(Eq(old, old), better))
        taken, kept, since = Var("taken", bool_), Var("kept", x.dtype), Var("since", indices.dtype)
        return seq(  # by selection: where a larger one comes cannot be foreseen
            Let(new, x.load(*at)),
            Let(old, best.load(*place)),
            Let(taken, better),
            Let(kept, Select(taken, new, old)),
            Let(since, Select(taken, j, where.load(*place))),
            *(Store(b, i, e) for b, i, e in ((best, place, kept), (where, place, since), (values, at, kept), (indices, at, since))),
        )

    first = limit(x.dtype, largest=site.name == "cummin")  # no element is worse
    return _walk(site, extent, beside, [best, where], [first, ZERO], step)


def _beside(name: str, dtype: DType, beside: tuple[Expr, ...]) -> Buffer:
    """What is kept of each element that lies behind the axis; one element on the stack where there are none."""
    return Buffer(name, dtype, beside or (ONE,), scope="workspace" if beside else "stack")


def _walk(site: Site, extent: Expr, beside: Sequence[Expr], kept: Sequence[Buffer], first: Sequence[Expr], step: Step) -> Stmt:
    """Rows in parallel, each walked along the axis with what is kept beside it."""
    x, axis = site.buffer(0), site.attrs.axis

    def row(rows: Indices) -> Stmt:
        def start(k: Indices) -> Stmt:
            return seq(*(Store(b, k or (ZERO,), e) for b, e in zip(kept, first, strict=True)))

        j = Var("t", ZERO.dtype)
        inside = nest(beside, lambda k: step(rows, j, k), inner="vector", outer="vector" if len(beside) == 1 else "serial")
        begin = nest(beside, start, inner="vector", outer="vector" if len(beside) == 1 else "serial")
        return seq(*(Alloc(b) for b in kept), begin, For(j, ZERO, extent, "serial", inside))

    return nest(x.shape[:axis], row, outer="parallel")


def _cast(dtype: DType, e: Expr) -> Expr:
    return e if e.dtype is dtype else Cast(dtype, e)
