"""MaxPool with indices, and the inverse operators MaxUnpool and Col2Im."""

from __future__ import annotations

from typing import Any

from ..emit import ops
from ..node_context import NodeContext
from ..registry import rule
from .extents import plain, total
from .spatial import windows


def pool_with_places(site: NodeContext, kernel: list[int], named: dict[str, Any]) -> Any:
    """Emits max pooling.

    Returns the maxima and the flat index of each: row-major, or with the first spatial dim fastest (storage_order=1).
    """
    x, y = site.x(0), ops.max_pool(site.x(0), kernel, **named)
    rank, of = len(kernel), site.dtype(0)
    n, c, *spatial = site.tensor(0).shape
    outs = y.tensor.shape[2:]
    inside, flat = None, None
    for k in range(rank):
        first = ops.sub(ops.mul(ops.arange(outs[k]), named["stride"][k]), named["padding"][k][0])
        shape = [[outs[i] if i == k else 1 for i in range(rank)], [kernel[i] if i == k else 1 for i in range(rank)]]
        at = ops.add(
            ops.reshape(first, [*shape[0], *[1] * rank]),
            ops.reshape(ops.mul(ops.arange(kernel[k]), named["dilation"][k]), [*[1] * rank, *shape[1]]),
        )
        here = ops.logical_and(ops.greater_equal(at, 0), ops.less(at, spatial[k]))
        inside = here if inside is None else ops.logical_and(inside, here)
        clamped = ops.minimum(ops.maximum(at, 0), ops.sub(ops.add(spatial[k], 0), 1))
        flat = clamped if flat is None else ops.add(ops.mul(flat, spatial[k]), clamped)
    taps, points = total(kernel), total(outs)
    flat, inside = (ops.reshape(ops.expand(v, (*outs, *kernel)), (points, taps)) for v in (flat, inside))
    seen: Any = ops.take(ops.reshape(x, (n, c, total(spatial))), flat, 2)  # [n, c, points, taps]
    low = float("-inf") if of.is_float else of.min
    best = ops.argmax(ops.where(inside, seen, ops.constant(low, of)), axis=-1)  # [n, c, points]
    chosen = ops.gather(ops.expand(ops.reshape(flat, (1, 1, points, taps)), (n, c, points, taps)), ops.unsqueeze(best, -1), 3)
    place = ops.reshape(chosen, (n, c, *outs))
    if site.integer("storage_order", 0):
        place = _columns_first(place, spatial)
    image = ops.reshape(ops.arange(total([n, c])), (n, c, *[1] * rank))
    return y, ops.add(ops.mul(image, total(spatial)), place)


def _columns_first(place: Any, spatial: list[Any]) -> Any:
    """Converts row-major pixel indices to indices in column-major order, for `storage_order` 1."""
    index, step = None, None
    for k, n in enumerate(spatial):
        rest = total(spatial[k + 1 :])
        at = ops.remainder(ops.floor_divide(place, rest), n)
        part = at if step is None else ops.mul(at, step)
        index = part if index is None else ops.add(index, part)
        step = n if step is None else plain(step * n)
    return index


@rule("MaxUnpool")
def max_unpool(site: NodeContext) -> Any:
    """Imports MaxUnpool: scatters elements to their indices in a zero tensor; a larger `output_shape` is padded with zeros at the end."""
    kernel = site.ints("kernel_shape", None) or []
    rank = site.rank(0) - 2
    site.require(len(kernel) == rank, f'attribute "kernel_shape" has {len(kernel)} numbers, {rank} are expected')
    strides, _, pads = windows(site, kernel, rank, site.shape(0)[2:])
    n, c, *spatial = site.tensor(0).shape
    inner = [plain((d - 1) * s - (p[0] + p[1]) + k) for d, s, p, k in zip(spatial, strides, pads, kernel, strict=True)]
    whole = (n, c, *inner)
    places = ops.reshape(site.x(1), (-1,))
    image = ops.scatter(ops.zeros((total(whole),), site.dtype(0)), places, ops.reshape(site.x(0), (-1,)), 0)
    image = ops.reshape(image, whole)
    if not site.has(2):
        return image
    wanted = site.dims(2)
    site.require(len(wanted) == rank + 2, f"{len(wanted)} extents are asked for, {rank + 2} are expected")
    return ops.pad(image, [(0, plain(w - have)) for w, have in zip(wanted, whole, strict=True)])


@rule("Col2Im")
def col2im(site: NodeContext) -> Any:
    """Imports Col2Im, the inverse of im2col: sums the columns of overlapping windows into an image."""
    image, kernel = site.dims(1), site.known_ints(2)
    rank = len(kernel)
    site.require(len(image) == rank >= 1 and min(kernel) > 0 and site.rank(0) == 3, "operand, image and block do not fit each other")
    strides, dilations, pads = windows(site, kernel, rank, tuple(image))
    padded = [plain(n + (a + b)) for n, (a, b) in zip(image, pads, strict=True)]
    counts = [(n - (d * (k - 1) + 1)) // s + 1 for n, d, k, s in zip(padded, dilations, kernel, strides, strict=True)]
    n, rows = site.tensor(0).shape[:2]
    channels = plain(rows // total(kernel))
    flat = None
    for k in range(rank):
        tap = ops.reshape(ops.mul(ops.arange(kernel[k]), dilations[k]), [kernel[k] if i == k else 1 for i in range(2 * rank)])
        at = ops.reshape(ops.mul(ops.arange(counts[k]), strides[k]), [counts[k] if i - rank == k else 1 for i in range(2 * rank)])
        flat = ops.add(tap, at) if flat is None else ops.add(ops.mul(flat, padded[k]), ops.add(tap, at))
    elements = total([*kernel, *counts])
    indices = ops.expand(ops.reshape(ops.expand(flat, (*kernel, *counts)), (1, elements)), (total([n, channels]), elements))
    updates = ops.reshape(site.x(0), (total([n, channels]), elements))
    result = ops.scatter(ops.zeros((total([n, channels]), total(padded)), site.dtype(0)), indices, updates, 1, "add")
    result = ops.reshape(result, (n, channels, *padded))
    for k, ((before, _), size) in enumerate(zip(pads, image, strict=True)):
        result = ops.slice(result, k + 2, before, plain(size + before))
    return result
