"""Writes at computed indices: scatter, scatter_nd, index_put.

Negative indices count from the end; an index out of range is an error that names it. Several updates of one element are applied in order:
without a reduction the last one remains. If `x` is state, it is updated in place, and its new version is returned.

    ops.scatter(x, places, updates, axis=1), ops.scatter_nd(x, places, updates, reduction="add")
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operator
from .index import checked, element_places, fits, integers, tuple_length
from .reduce import normal_axis

T = TypeVar("T")
UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


@dataclass(frozen=True, slots=True)
class ScatterAttrs:
    """The attributes of `scatter`: the axis of the indices, and how new values are combined with old ones (none: they replace them)."""

    axis: int
    reduction: str = "none"


@dataclass(frozen=True, slots=True)
class ScatterNDAttrs:
    """The attributes of `scatter_nd`: how new values are combined with old ones: none (they replace them), add, mul, min, max."""

    reduction: str = "none"


def _same_updates(d: Deduction, k: int, reduction: str) -> Tensor:
    """Returns the annotation of the updates, argument `k`.

    Raises an error if its dtype is not that of the data, if there is no such reduction, for storage types, and for a reduction of bools.
    """
    x, updates = d.tensor(0), d.tensor(k)
    if updates.dtype is not x.dtype:
        help_ = f"write ops.cast({d.args[k].name}, {x.dtype})"
        raise d.error(f"{d.what} of {updates.dtype} into {x.dtype}: nothing is cast implicitly", arg=k, help=help_)
    if reduction != "none" and reduction not in UFUNCS:
        raise d.error(f'{d.what}: there is no reduction "{reduction}"', help="one of none, add, mul, min, max")
    if x.dtype.storage or (reduction != "none" and x.dtype.kind == "b"):
        raise d.error(f"{d.what}: no {reduction} of {x.dtype}", arg=0)
    return updates


def _updated(x: Tensor) -> Tensor:
    """Returns the annotation of the result: state stays state, a tensor is a new tensor."""
    return x if x.state else Tensor(x.dtype, x.shape)


def _deduce_scatter(d: Deduction, attrs: ScatterAttrs) -> tuple[Annotation, ...]:
    x, indices = d.tensor(0), integers(d, 1)
    updates = _same_updates(d, 2, attrs.reduction)
    d.rank(1, len(x.shape))
    d.rank(2, len(x.shape))
    for i, (n, m) in enumerate(zip(indices.shape, updates.shape, strict=True)):
        d.equal(m, n, f"dim {i} of `{d.args[2].name}` is {{0}}, that of `{d.args[1].name}` {{1}}", arg=2)
    fits(d, 1, attrs.axis)
    return (_updated(x),)


def _scatter_reference(args: Sequence[Array], attrs: ScatterAttrs) -> list[Array]:
    return [_put(args[0], element_places("scatter", args[0], args[1], attrs.axis), args[2], attrs.reduction)]


def _put(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    result = x.copy()
    if reduction == "none":
        result[places] = updates
    else:
        UFUNCS[reduction].at(result, places, updates)
    return result


@operator(deduce=_deduce_scatter, reference=_scatter_reference, attrs=ScatterAttrs, arity=3, template="scatter.elements", updates=True)
def scatter(op: OpCall, x: T, indices: Any, updates: Any, axis: int = 0, reduction: str = "none") -> T:
    """`x` with updates written at indices along `axis`: y[indices[i, j], j] = updates[i, j] for axis 0 (ONNX ScatterElements).

    With a reduction (add, mul, min, max) they are combined with the old values.
    """
    values = op.operands((x, indices, updates))
    return op.emit(*values, attrs=ScatterAttrs(normal_axis(op.name, values[0], axis), reduction))


def _deduce_scatter_nd(d: Deduction, attrs: ScatterNDAttrs) -> tuple[Annotation, ...]:
    x, indices = d.tensor(0), d.tensor(1)
    updates = _same_updates(d, 2, attrs.reduction)
    length = tuple_length(d, 1, len(x.shape))
    expected = (*indices.shape[:-1], *x.shape[length:])
    d.rank(2, len(expected))
    for i, (n, m) in enumerate(zip(expected, updates.shape, strict=True)):
        d.equal(m, n, f"dim {i} of the updates `{d.args[2].name}` is {{0}}, {{1}} is expected", arg=2)
    return (_updated(x),)


def _scatter_nd_reference(args: Sequence[Array], attrs: ScatterNDAttrs) -> list[Array]:
    x, index, updates = args
    if not updates.size:  # nothing is put at any index
        return [x.copy()]
    places = tuple(checked("scatter_nd", index[..., k], x.shape[k]) for k in range(index.shape[-1]))
    return [_put(x, places, updates, attrs.reduction)]


@operator(
    deduce=_deduce_scatter_nd, reference=_scatter_nd_reference, attrs=ScatterNDAttrs, arity=3, template="scatter.tuples", updates=True
)
def scatter_nd(op: OpCall, x: T, indices: Any, updates: Any, reduction: str = "none") -> T:
    """`x` with slices updated at index tuples, which are the rows of the last dim of `indices`.

    With a reduction (add, mul, min, max) updates are combined with the old values.
    """
    return op.emit(*op.operands((x, indices, updates)), attrs=ScatterNDAttrs(reduction))


@dataclass(frozen=True, slots=True)
class IndexPutAttrs:
    """The attributes of `index_put`: whether values are added to the old ones instead of replacing them."""

    accumulate: bool = False


def _deduce_index_put(d: Deduction, attrs: IndexPutAttrs) -> tuple[Annotation, ...]:
    x, values = d.tensor(0), _same_updates(d, 1, "add" if attrs.accumulate else "none")
    count = len(d.args) - 2
    if count > len(x.shape):
        raise d.error(f"index_put: {count} indices into the {len(x.shape)} dims of `{d.args[0].name}`")
    points = d.broadcast(*(integers(d, k).shape for k in range(2, len(d.args))))
    written = (*points, *x.shape[count:])
    if len(values.shape) > len(written):
        raise d.error(f"index_put: the values have {len(values.shape)} dims, what is written has {len(written)}", arg=1)
    both = d.broadcast(written, values.shape)
    for i, (n, m) in enumerate(zip(written, both, strict=True)):
        d.equal(m, n, f"dim {i} of what is written is {{1}}, and the values have {{0}}", arg=1)
    return (_updated(x),)


def _index_put_reference(args: Sequence[Array], attrs: IndexPutAttrs) -> list[Array]:
    x, values, *indices = args
    if 0 in x.shape[len(indices) :]:  # nothing is put at any index
        return [x.copy()]
    places = np.broadcast_arrays(*(checked("index_put", index, x.shape[k]) for k, index in enumerate(indices)))
    shape = (*places[0].shape, *x.shape[len(indices) :])
    return [_put(x, tuple(places), np.broadcast_to(values, shape), "add" if attrs.accumulate else "none")]


@operator(
    deduce=_deduce_index_put,
    reference=_index_put_reference,
    attrs=IndexPutAttrs,
    arity=(3, None),
    template="scatter.broadcast_tuples",
    updates=True,
)
def index_put(op: OpCall, x: T, values: Any, *indices: Any, accumulate: bool = False) -> T:
    """`x` with values written (or added) at indices into its leading dims; indices and values broadcast."""
    return op.emit(*op.operands((x, values, *indices)), attrs=IndexPutAttrs(accumulate))
