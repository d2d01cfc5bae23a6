"""Scatter operators: copies the data (unless it is state, which is updated in place), then applies the updates in order.

Iterators over which two updates may hit the same element are ordered, so that the last update wins. The others are spatial (parallel).
"""

# Inline functions are written in the loop language, which is not typed for mypy.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....dtype import i64
from ....graph.deduce import Deduction
from ....graph.ops.elementwise import project
from ....graph.ops.index import tuple_inside
from ....graph.ops.shape import wrapped
from ....loop.buffer import Buffer
from ....loop.inline import compile_time, inline
from ....loop.script import block, check, grid
from ....sym.expr import Const, Expr
from .build import Indices, Site

Map = Callable[[Indices], Sequence[Expr]]  # iterators of an update -> its indices, as they are stored


def elements(site: Site) -> Any:
    """Builds `scatter`: each update has an index along one axis; updates that meet in one element are applied in order."""
    axis, index, updates = site.attrs.axis, site.args[1], site.args[2]
    kinds = "".join("O" if i == axis else "S" for i in range(index.ndim))
    return _scatter(
        site,
        kinds=kinds,
        extents=index.shape,
        indices=lambda v: [index.load(*v)],
        first=axis,
        place=lambda v, wrapped: (*v[:axis], *wrapped, *v[axis + 1 :]),
        value=lambda v: _element(updates, index.shape, v),
        reduction=site.attrs.reduction,
    )


def tuples(site: Site) -> Any:
    """Builds `scatter_nd`: the last dim of the indices holds index tuples; updates that meet are applied in order."""
    index, updates, out = site.args[1], site.args[2], site.outs[0]
    *points, length = index.shape
    rest, rank = out.shape[length.value :], len(points)
    return _scatter(
        site,
        kinds="O" * rank + "S" * len(rest),
        extents=(*points, *rest),
        indices=lambda v: [index.load(*v[:rank], Const(k, i64)) for k in range(length.value)],
        place=lambda v, wrapped: (*wrapped, *v[rank:]),
        value=lambda v: _element(updates, (*points, *rest), v),
        reduction=site.attrs.reduction,
    )


def broadcast_tuples(site: Site) -> Any:
    """Builds `index_put`: each leading dim has a tensor of indices; indices and values broadcast; `accumulate` adds instead of stores."""
    values, indices, out = site.args[1], site.args[2:], site.outs[0]
    points = Deduction("index_put").broadcast(*(b.shape for b in indices if isinstance(b, Buffer)))
    rest, rank = out.shape[len(indices) :], len(points)
    return _scatter(
        site,
        kinds="O" * rank + "S" * len(rest),
        extents=(*points, *rest),
        indices=lambda v: [_element(b, points, v[:rank]) for b in indices],
        place=lambda v, wrapped: (*wrapped, *v[rank:]),
        value=lambda v: _element(values, (*points, *rest), v),
        reduction="add" if site.attrs.accumulate else "none",
    )


def _element(operand: Buffer | Expr, shape: Indices, v: Indices) -> Expr:
    """Returns the element of an operand that is broadcast to `shape`."""
    return operand.load(*project(operand.shape, shape, v)) if isinstance(operand, Buffer) else operand


def _scatter(
    site: Site,
    *,
    kinds: str,
    extents: Any,
    indices: Map,
    place: Callable[[Indices, Indices], Indices],
    value: Callable[[Indices], Expr],
    reduction: str,
    first: int = 0,
) -> Any:
    """Returns the loop program of a scatter: an update over `extents` takes `value` to `place`, by indices of the dims from `first` on.

    It copies the data first, unless it is updated in place; indices are checked, and negative ones count from the end. An update replaces
    the element, or is combined with it by `reduction` (add, mul, min, max). `kinds` are the kinds of the block's iterators.
    """
    data, out = site.args[0], site.outs[0]
    NAME, IN_PLACE, COPIED = site.name, data is out, "S" * out.ndim
    NONE, ADD, MUL, MIN = (reduction == name for name in ("none", "add", "mul", "min"))

    @compile_time
    def inside(index: Indices) -> tuple[Any, ...]:
        condition, message, values = tuple_inside(NAME, list(zip(index, out.shape[first:], strict=False)), first)
        return condition, message, *values

    @compile_time
    def destination(v: Indices, index: Indices) -> Indices:
        return place(v, tuple(wrapped(i, n) for i, n in zip(index, out.shape[first:], strict=False)))

    loaded, updated = compile_time(lambda v: tuple(indices(v))), compile_time(value)

    @inline
    def put(at, new):  # `+` makes a store of a minimum, not a reduction, which would be reordered
        (old := out[*at])
        out[*at] = +(new if NONE else old + new if ADD else old * new if MUL else min(old, new) if MIN else max(old, new))

    @inline
    def scatter():
        if not IN_PLACE:
            for i in grid(*out.shape):
                with block("copy", COPIED, *i) as v:
                    out[*v] = data[*v]
        for i in grid(*extents):
            with block(NAME, kinds, *i) as v:
                index = loaded(v)
                check(*inside(index))
                put(destination(v, index), updated(v))

    return scatter
