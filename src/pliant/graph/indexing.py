"""Subscripts of tensors with numpy's meaning, `x[:, 0]`, `x[None]`, `x[..., 1:]`, as steps of slice, take and reshape.

A slice keeps its axis, an integer drops it, None inserts one, `...` stands for the axes that are not mentioned, and a tensor of
integers gathers along its axis. Graph functions and traced modules share this file; each runs the steps in its own way.

    x[-1, None, 2:]    ->  slice(x, axis=0, start=n - 1, stop=n), slice(axis=1, start=2), reshape
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..support.errors import Error, counted
from ..sym.expr import Const, Expr
from ..sym.simplify import simplify
from . import opset as ops
from .node import Scalar, Tensor, Value

Step = Callable[[Value], Value]
_NEW = None  # an axis of the result that the operand does not have


def index_steps(value: Value, items: Sequence[Any]) -> list[Step]:
    """Returns the steps that compute `value[items]`, to be applied one after the other; raises for a subscript that is not supported."""
    shape = _shape(value)
    full = _without_ellipsis(value, items)
    _check_tensors(full)
    steps: list[Step] = []
    kept: list[int | None] = []  # the axes of the last step's result that are kept, in order; _NEW for those of None
    axis = own = 0  # of the value that the steps so far give, and of the operand
    for item in full:
        if item is None:
            kept.append(_NEW)
            continue
        if isinstance(item, slice):
            if item != slice(None):
                steps.append(_cut(axis, item.start, item.stop, item.step))
            kept.append(axis)
        elif (place := _place(item, shape[own])) is not None:
            steps.append(_cut(axis, place, simplify(place + 1), None))
        else:
            rank = _index_rank(value, item)
            steps.append(_gather(axis, item))
            kept += range(axis, axis + rank)
            axis += rank - 1
        axis, own = axis + 1, own + 1
    if kept != list(range(axis)):
        steps.append(_reshape(kept, axis))
    return steps


def _without_ellipsis(value: Value, items: Sequence[Any]) -> list[Any]:
    """Returns the items with `...` replaced by whole slices; raises for more than one `...`, or more items than the operand has dims."""
    rank = len(_shape(value))
    taken = sum(i is not None and i is not Ellipsis for i in items)
    if taken > rank:
        raise Error(
            f"{taken} {'index' if taken == 1 else 'indices'} for `{value.name}`, which has {counted(rank, 'dim')}", facts=[repr(value)]
        )
    places = [k for k, i in enumerate(items) if i is Ellipsis]
    if len(places) > 1:
        raise Error("a subscript has `...` at most once", facts=[repr(value)])
    full = list(items)
    if places:
        full[places[0] : places[0] + 1] = [slice(None)] * (rank - taken)
    return full


def _check_tensors(items: Sequence[Any]) -> None:
    """Raises if two tensors index, or one that is apart from an integer: numpy would broadcast them, and move their axis to the front."""
    wide = [k for k, i in enumerate(items) if _is_tensor(i)]
    if len(wide) > 1:
        raise Error("a tensor is indexed by one tensor at a time", help="use ops.take for each axis, or ops.gather_nd for index tuples")
    if not wide:
        return
    numbers = [k for k, i in enumerate(items) if i is not None and not isinstance(i, slice)]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise Error(
            "an integer and a tensor index with other axes between them",
            facts=["numpy moves the indexed axis to the front here, which is easily overlooked"],
            help="index in two steps: first the integers, then the tensor",
        )


def _is_tensor(item: Any) -> bool:
    """True for an index that has dims of its own: a tensor or array of rank 1 or more, or a list."""
    if isinstance(item, Value):
        return isinstance(item.annotation, Tensor) and bool(item.annotation.shape)
    return isinstance(item, list) or (isinstance(item, np.ndarray) and item.ndim > 0)


def _place(item: Any, extent: Expr) -> Expr | None:
    """An integer index counted from the start as an expression of dims; None if the index is known only at run time, or no integer."""
    if isinstance(item, Value) and isinstance(item.annotation, Scalar):
        item = item.annotation.value
    if isinstance(item, np.integer) or (isinstance(item, np.ndarray) and item.ndim == 0 and item.dtype.kind in "iu"):
        item = int(item)
    if isinstance(item, Const) and item.dtype.is_int:
        item = item.value
    if isinstance(item, int) and not isinstance(item, bool):
        return simplify(extent + item) if item < 0 else Const(item, extent.dtype)
    return item if isinstance(item, Expr) and item.dtype is extent.dtype else None


def _index_rank(value: Value, item: Any) -> int:
    """Returns the number of dims of an index that gathers; raises for what cannot index a tensor: masks, floats, other objects."""
    found = np.asarray(item) if isinstance(item, list) else item
    if isinstance(found, Value) and isinstance(found.annotation, Tensor | Scalar):
        dtype, rank = found.annotation.dtype, len(_shape(found)) if isinstance(found.annotation, Tensor) else 0
        if dtype.is_int:
            return rank
        help_ = "ops.compress, ops.masked_select or ops.where choose by a mask" if dtype.name == "bool" else "an index is an integer"
        raise Error(f"`{value.name}` is indexed by `{found.name}`, which is {found.annotation}", help=help_)
    if isinstance(found, np.ndarray) and found.dtype.kind in "iu":
        return found.ndim
    what = f"an array of {found.dtype}" if isinstance(found, np.ndarray) else f"an object of type `{type(item).__name__}`"
    raise Error(
        f"a tensor cannot be indexed by {what}", facts=[repr(value)], help="slices, integers, None, `...` and tensors of integers can"
    )


def _cut(axis: int, start: Any, stop: Any, step: Any) -> Step:
    return lambda value: ops.slice(value, axis, start, stop, 1 if step is None else step)


def _gather(axis: int, item: Any) -> Step:
    indices = np.asarray(item) if isinstance(item, list) else item
    return lambda value: ops.take(value, indices, axis)


def _reshape(kept: Sequence[int | None], end: int) -> Step:
    """The step that drops and inserts axes: `kept`, and all from `end` on."""

    def step(value: Value) -> Value:
        shape = _shape(value)
        return ops.reshape(value, (*(1 if k is _NEW else shape[k] for k in kept), *shape[end:]))

    return step


def _shape(value: Value) -> tuple[Expr, ...]:
    return value.annotation.shape if isinstance(value.annotation, Tensor) else ()
