"""Scatter operators: copies the data (unless it is state, which is updated in place), then applies the updates in order.

    for i, j: y[i, j] = x[i, j]
    for i, j: place = index[i, j]; check(0 <= place < n); y[place, j] = y[place, j] + updates[i, j]

Iterators over which two updates may hit the same element are ordered, so that the last update wins. The others are spatial (parallel).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....graph.deduce import Deduction
from ....graph.ops.elementwise import project
from ....graph.ops.index import tuple_inside
from ....graph.ops.shape import wrapped
from ....loop.buffer import Buffer
from ....loop.stmt import Check, Let, Stmt, Store, seq
from ....sym.expr import Add, Binary, Const, Expr, Max, Min, Mul, Var
from .build import ZERO, Indices, Site, block

COMBINE: dict[str, type[Binary]] = {"add": Add, "mul": Mul, "min": Min, "max": Max}


def elements(site: Site) -> Stmt:
    """Builds `scatter`: each update has an index along one axis."""
    axis, index = site.attrs.axis, site.buffer(1)
    kinds = "".join("O" if i == axis else "S" for i in range(index.ndim))

    def update(v: Indices) -> Stmt:
        (place,), lets = _places(site, "scatter", [index.load(*v)], axis)
        return seq(*lets, _put(site, (*v[:axis], place, *v[axis + 1 :]), site.read(2, *v), site.attrs.reduction))

    return seq(*_copy(site), block("scatter", kinds, index.shape, update))


def tuples(site: Site) -> Stmt:
    """Builds `scatter_nd`: the last dim of the indices holds index tuples."""
    index = site.buffer(1)
    *points, length = index.shape
    assert isinstance(length, Const)
    count = int(length.value)

    def update(v: Indices) -> Stmt:
        point, rest = v[: len(points)], v[len(points) :]
        raw = [index.load(*point, Const(k, ZERO.dtype)) for k in range(count)]
        places, lets = _places(site, "scatter_nd", raw, 0)
        return seq(*lets, _put(site, (*places, *rest), site.read(2, *v), site.attrs.reduction))

    return seq(*_copy(site), _tuples_block("scatter_nd", points, site.outs[0].shape[count:], update))


def broadcast_tuples(site: Site) -> Stmt:
    """Builds `index_put`: each leading dim has a tensor of indices; indices and values broadcast."""
    indices = [site.args[k] for k in range(2, len(site.args))]
    points = Deduction("index_put").broadcast(*(b.shape for b in indices if isinstance(b, Buffer)))
    rest = site.outs[0].shape[len(indices) :]
    whole = (*points, *rest)

    def update(v: Indices) -> Stmt:
        point = v[: len(points)]
        raw = [b.load(*project(b.shape, points, point)) if isinstance(b, Buffer) else b for b in indices]
        places, lets = _places(site, "index_put", raw, 0)
        values = site.args[1]
        value = values.load(*project(values.shape, whole, v)) if isinstance(values, Buffer) else values
        return seq(*lets, _put(site, (*places, *v[len(points) :]), value, "add" if site.attrs.accumulate else "none"))

    return seq(*_copy(site), _tuples_block("index_put", points, rest, update))


def _copy(site: Site) -> Sequence[Stmt]:
    data, out = site.buffer(0), site.outs[0]
    if data is out:
        return ()
    return (block("copy", "S" * out.ndim, out.shape, lambda v: Store(out, v, data.load(*v))),)


def _tuples_block(name: str, points: Sequence[Expr], rest: Sequence[Expr], update: Callable[[Indices], Stmt]) -> Stmt:
    return block(name, "O" * len(points) + "S" * len(rest), (*points, *rest), update)


def _places(site: Site, name: str, raw: Sequence[Expr], first: int) -> tuple[list[Expr], list[Stmt]]:
    """Returns the indices with negative ones wrapped, and the statements that load and check them."""
    extents = site.outs[0].shape[first : first + len(raw)]
    read = [Var(f"index{k}", e.dtype) for k, e in enumerate(raw)]
    lets: list[Stmt] = [Let(v, e) for v, e in zip(read, raw, strict=True)]
    lets.append(Check(*tuple_inside(name, list(zip(read, extents, strict=True)), first)))
    return [wrapped(v, n) for v, n in zip(read, extents, strict=True)], lets


def _put(site: Site, place: Indices, value: Expr, reduction: str) -> Stmt:
    out = site.outs[0]
    return Store(out, place, value if reduction == "none" else COMBINE[reduction](out.load(*place), value))
