"""Slice, Split and Pad."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....dtype import i64
from ....graph.node import Value
from ....sym.expr import Const, Expr, Le, Lt, Max, Min, Select, const
from ....sym.prove import prove
from ....sym.simplify import simplify
from ..emit import ops
from ..items import Known
from ..node_context import NodeContext
from ..registry import rule
from .extents import plain

FAR = 1 << 31  # a bound of this size or beyond means the end: no dim is larger, and exporters write INT_MAX or INT64_MAX


def slice_bounds(site: NodeContext, rank: int) -> Iterator[tuple[int, Any, Any, Any]]:
    """Yields the axis, start, stop and step of each sliced axis; starts and stops are integers, expressions or run-time values.

    Raises ModelFileError if their numbers differ, an axis occurs twice or a step is 0.
    """
    if site.version < 10:
        starts, stops, axes = site.ints("starts", []), site.ints("ends", []), site.ints("axes", None)
        steps: list[int] = [1] * len(starts)
    else:
        starts, stops = _bounds(site, 1), _bounds(site, 2)
        axes = site.known_ints(3) if site.has(3) else None
        steps = site.known_ints(4) if site.has(4) else [1] * len(starts)
    axes = list(range(len(starts))) if axes is None else [site.normal(a, rank) for a in axes]
    site.require(len(starts) == len(stops) == len(axes) == len(steps), "starts, ends, axes and steps have different lengths")
    site.require(len(set(axes)) == len(axes) <= rank, f"the axes {axes} of a tensor with {rank} dims")
    site.require(0 not in steps, "a step is 0")
    yield from zip(axes, starts, stops, steps, strict=True)


def _bounds(site: NodeContext, k: int) -> list[Any]:
    """Returns the bounds of input `k`: integers and expressions if it is known, otherwise run-time values.

    Raises NeededError if their number is not known.
    """
    if isinstance(site.item(k), Known):
        return site.dims(k)
    shape = site.shape(k)
    if len(shape) != 1 or not isinstance(shape[0], int):
        raise site.importer.needed(site, k)
    wide: Any = site.x(k) if site.dtype(k) is i64 else ops.cast(site.x(k), i64)
    return [ops.reshape(ops.slice(wide, 0, i, i + 1), ()) for i in range(shape[0])]


@rule("Slice")
def slice_(site: NodeContext) -> Any:
    """Imports Slice: slices along axes; bounds are clamped to the tensor."""
    x: Any = site.x(0)
    shape = site.tensor(0).shape
    for axis, start, stop, step in slice_bounds(site, site.rank(0)):
        if isinstance(start, Value) or isinstance(stop, Value):
            x = ops.slice(x, axis, _far(start), _far(stop), step)
            continue
        n = shape[axis]
        if step > 0:
            first, last = _cut(start, n, const(0), n), _cut(stop, n, const(0), n)
            last = last if prove(Le(first, last)) else simplify(Max(first, last))
            if first is not const(0) or last is not n or step != 1:
                x = ops.slice(x, axis, first, last, step)
        else:
            most = simplify(n - 1)
            first, last = _cut(start, n, const(-1), most), _cut(stop, n, const(-1), most)
            extent = simplify(Max((first - last + (-step - 1)) // -step, const(0)))
            x = ops.strided_slice(x, axis, first, extent, step)
    return x


def _far(bound: Any) -> Any:
    """Returns None, i.e. no bound, for a bound that is beyond every dim; else the bound."""
    return None if isinstance(bound, int) and abs(bound) >= FAR else bound


def _cut(bound: Any, n: Expr, low: Expr, high: Expr) -> Expr:
    """Returns a bound as a nonnegative index, clamped to low..high; emits selects only where the sign or range is not proven."""
    if isinstance(bound, int) and bound >= FAR:
        return high
    if isinstance(bound, int) and bound <= -FAR:
        return low
    e = const(bound) if isinstance(bound, int) else bound
    if isinstance(e, Const):
        e = simplify(n + e) if e.value < 0 else e
    elif not prove(Le(const(0), e)):
        e = simplify(n + e) if prove(Lt(e, const(0))) else simplify(Select(Lt(e, const(0)), n + e, e))
    e = e if prove(Le(e, high)) else simplify(Min(e, high))
    return e if prove(Le(low, e)) else simplify(Max(e, low))


@rule("Split")
def split(site: NodeContext) -> Any:
    """Imports Split: splits along an axis into given sizes, or into parts of ceil(n / count) elements, the last possibly smaller.

    A symbolic extent is split evenly, unless the model gives `num_outputs`.
    """
    axis, count = site.axis("axis", site.rank(0), 0), len(site.node.output)
    sizes: list[Any] | None = site.dims(1) if site.has(1) else site.ints("split", None)
    n = site.shape(0)[axis]
    parts = site.integer("num_outputs", count)
    site.require(parts == count, f'attribute "num_outputs" is {parts}, and {count} results are named')
    if sizes is None and isinstance(n, int):
        part = -(-n // count)
        sizes = [min(part, max(n - k * part, 0)) for k in range(count)]
    if sizes is None and "num_outputs" in site.attributes:  # with this attribute, the last parts may be smaller
        whole = (n + (count - 1)) // count
        sizes = [plain(Min(whole, Max(n - whole * k, const(0)))) for k in range(count)]
    if sizes is None:  # without it, a symbolic dim is split evenly
        return ops.split(site.x(0), count, axis)
    site.require(len(sizes) == count, f"{len(sizes)} sizes for {count} results")
    return ops.split(site.x(0), list(sizes), axis) if count > 1 else ops.slice(site.x(0), axis, 0, sizes[0])


@rule("Pad")
def pad(site: NodeContext) -> Any:
    """Imports Pad: pads with a constant, or by the modes reflect, edge and wrap; negative amounts crop."""
    rank = site.rank(0)
    pads: Any
    if site.version < 11:
        pads, value = site.ints("pads", None) or site.ints("paddings", []), site.real("value", 0.0)
    else:
        pads, value = site.dims(1), site.number(2) if site.has(2) else 0
    axes = [site.normal(a, rank) for a in site.known_ints(3)] if site.has(3) else list(range(rank))
    site.require(len(pads) == 2 * len(axes), f"{len(pads)} paddings for {len(axes)} axes")
    site.require(len(set(axes)) == len(axes), f"the axes {axes}")
    pairs: list[tuple[Any, Any]] = [(0, 0)] * rank
    for k, a in enumerate(axes):
        pairs[a] = (pads[k], pads[k + len(axes)])
    mode = site.text("mode", "constant", "constant", "reflect", "edge", "wrap")
    value = (bool(value) if site.dtype(0).name == "bool" else value) if site.dtype(0).is_float or isinstance(value, bool) else int(value)
    x = site.x(0)
    if mode != "constant":
        x, pairs = _shortened(x, pairs)
    named = {"mode": {"wrap": "circular"}.get(mode, mode), "value": value}
    if site.dtype(0).name == "bool":
        return ops.cast(ops.pad(ops.cast(x, "u8"), pairs, **{**named, "value": int(value)}), "bool")
    return ops.pad(x, pairs, **named)


def _shortened(x: Any, pairs: list[tuple[Any, Any]]) -> tuple[Any, list[tuple[Any, Any]]]:
    """Crops `x` by the negative amounts and returns the others: the modes repeat elements of the cropped tensor."""
    for axis, (before, after) in enumerate(pairs):
        first, last = (-a if isinstance(a, int) and a < 0 else 0 for a in (before, after))
        if first or last:
            x = ops.slice(x, axis, first, simplify(x.tensor.shape[axis] - last))
    return x, [tuple(0 if isinstance(a, int) and a < 0 else a for a in pair) for pair in pairs]  # type: ignore[misc]
