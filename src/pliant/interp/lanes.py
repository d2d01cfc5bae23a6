"""Loads and stores of many independent iterations ("lanes") at once, as numpy array operations.

Lanes form a box of `extents`; values are arrays that broadcast against it, or scalars where all lanes agree. An affine access is given by
the index of the first lane and, for each index, its step along each axis of the box: it becomes a strided view, without a copy. Any other
access is given by index arrays. A mask, if there is one, marks the active lanes; the others neither read nor write. Two lanes that write
the same element raise `Conflict`, because their order matters: the caller then starts again, one iteration at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .memory import Ints, Memory

Mask = Any  # a bool array that broadcasts against the box, or None
Rows = tuple[Ints, ...]  # for each index, its step along each axis
Fail = Callable[[Ints], None]  # raises the error for an index out of range

LIMIT = 1 << 20  # maximal number of lanes at once, to bound the memory of temporaries


class Conflict(Exception):
    """Raised if two lanes write the same element, so that their order would matter."""


def chunks(start: int, stop: int, outer: int) -> Iterator[tuple[int, int]]:
    """Yields the ranges that a loop is cut into, to bound the number of lanes that run at once."""
    step = max(1, LIMIT // max(1, outer))
    for low in range(start, stop, step):
        yield low, min(low + step, stop)


def axis(low: int, high: int, position: int, rank: int) -> np.ndarray[Any, Any]:
    """Returns the loop variable of each lane as an array along axis `position` of the lanes."""
    return np.arange(low, high).reshape(tuple(-1 if d == position else 1 for d in range(rank)))


def _inside(memory: Memory, starts: Ints, rows: Rows, extents: Ints) -> bool:
    """True if every index of an affine access stays in its dim for all lanes, masked ones too.

    `starts` are the indices of the first lane; `rows` has the steps of each index along the axes. Extents are at least 1.
    """
    for start, row, size in zip(starts, rows, memory.shape, strict=True):
        low = high = start
        for step, n in zip(row, extents, strict=True):
            if step > 0:
                high += step * (n - 1)
            elif step:
                low += step * (n - 1)
        if low < 0 or high >= size:
            return False
    return True


def _steps(memory: Memory, rows: Rows, rank: int) -> Ints:
    """Returns the distance in elements between neighboring lanes of an affine access, along each axis."""
    strides = memory.strides
    return tuple(sum(row[d] * s for row, s in zip(rows, strides, strict=True)) for d in range(rank))


def _indices(starts: Ints, rows: Rows, extents: Ints) -> tuple[Any, ...]:
    """Returns the index arrays of an affine access, one per dim of the buffer, for all lanes."""
    rank = len(extents)
    axes = [axis(0, n, d, rank) for d, n in enumerate(extents)]
    return tuple(
        sum((step * a for step, a in zip(row, axes, strict=True) if step), np.int64(start)) for start, row in zip(starts, rows, strict=True)
    )


def load_affine(memory: Memory, starts: Ints, rows: Rows, extents: Ints, mask: Mask, fail: Fail) -> Any:
    """Returns the elements that all lanes load by an affine access: a strided view if the access stays in bounds, else by index arrays.

    A view has extent 1 along lanes that load the same element.
    """
    if memory.dtype.storage or not _inside(memory, starts, rows, extents):
        return load(memory, _indices(starts, rows, extents), mask, fail)
    rank = len(extents)
    steps = _steps(memory, rows, rank)
    moves = [any(row[d] for row in rows) for d in range(rank)]
    first = sum(i * s for i, s in zip(starts, memory.strides, strict=True))
    return memory.box(tuple(n if m else 1 for n, m in zip(extents, moves, strict=True)), steps, first)


def load(memory: Memory, indices: tuple[Any, ...], mask: Mask, fail: Fail) -> Any:
    """Returns the elements that the lanes load at index arrays; calls `fail` if an active lane is out of range.

    Inactive lanes load element 0.
    """
    _check(memory, indices, mask, fail)
    if mask is not None:
        if 0 in memory.shape:  # an empty buffer: no lane can be active
            return np.zeros((1,) * np.ndim(mask), np.asarray(memory.array[(slice(0, 0),) * len(indices)]).dtype)
        indices = tuple(np.where(mask, i, 0) for i in indices)
    return memory.array[indices]


def _check(memory: Memory, indices: tuple[Any, ...], mask: Mask, fail: Fail) -> None:
    """Calls `fail`, which raises the error, with the index of the first active lane that is out of range."""
    for i, size in zip(indices, memory.shape, strict=True):
        bad = (i < 0) | (i >= size)
        if mask is not None:
            bad = bad & mask
        if np.any(bad):
            every = np.broadcast_arrays(bad, *indices)
            at = tuple(np.argwhere(every[0])[0])
            fail(tuple(int(x[at]) for x in every[1:]))


def _disjoint(steps: Ints, extents: Ints) -> bool:
    """True if no two points of the box are one element: each step exceeds the reach of all smaller ones."""
    reach = 0
    for step, n in sorted((abs(s), n) for s, n in zip(steps, extents, strict=True) if n > 1):
        if step <= reach:
            return False
        reach += step * (n - 1)
    return True


def store_affine(memory: Memory, starts: Ints, rows: Rows, value: Any, extents: Ints, mask: Mask, fail: Fail) -> None:
    """Stores the values of all lanes by an affine access.

    Through a strided view if lanes stay in bounds and apart, else by index arrays.
    """
    steps = _steps(memory, rows, len(extents))
    if memory.dtype.storage or not _inside(memory, starts, rows, extents) or not _disjoint(steps, extents):
        store(memory, _indices(starts, rows, extents), value, extents, mask, fail)
        return
    first = sum(i * s for i, s in zip(starts, memory.strides, strict=True))
    box = memory.box(extents, steps, first)
    if mask is None:
        box[...] = value
    else:
        np.copyto(box, value, where=mask)


def store(memory: Memory, indices: tuple[Any, ...], value: Any, extents: Ints, mask: Mask, fail: Fail) -> None:
    """Stores the elements at index arrays; raises `Conflict` if two lanes write one element, and calls `fail` if a lane is out of range."""
    _check(memory, indices, mask, fail)
    chosen = slice(None) if mask is None else np.broadcast_to(mask, extents).ravel()
    places = tuple(np.broadcast_to(i, extents).ravel()[chosen] for i in indices)
    written = np.array(np.broadcast_to(value, extents)).ravel()[chosen]  # a copy, because it may be a view of the memory that is written
    if not written.size:
        return
    flat = sum((i * s for i, s in zip(places, memory.strides, strict=True)), np.zeros(written.shape, np.int64))
    if np.unique(flat).size != flat.size:
        raise Conflict
    memory.array[places] = written if places else written[0]  # a 0-d buffer has one element


def reach(start: Any, stop: Any, mask: Mask) -> tuple[int, int]:
    """Returns the least start and the greatest stop, over the active lanes, of a loop whose bounds differ between lanes."""
    starts, stops, active = np.broadcast_arrays(start, stop, True if mask is None else mask)
    return int(starts[active].min()), int(stops[active].max())


def first_of(chosen: Any, *values: Any) -> list[int]:
    """Returns the values that the first chosen lane has, as integers; raises IndexError if no lane is chosen."""
    where, *every = np.broadcast_arrays(chosen, *values)
    return [int(v[where][0]) for v in every]


def lift(value: Any, rank: int) -> Any:
    """Returns a value as an array over the lanes, even if all lanes agree."""
    return value if isinstance(value, np.ndarray) else np.full((1,) * rank, value)
