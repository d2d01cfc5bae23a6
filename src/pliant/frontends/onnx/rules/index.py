"""Gather and scatter operators."""

from __future__ import annotations

from typing import Any

from ....dtype import i64
from ..emit import ops
from ..node_context import NodeContext
from ..registry import rule


@rule("Gather")
def gather(site: NodeContext) -> Any:
    """Imports Gather: the slices at given indices along an axis."""
    return ops.take(site.x(0), site.x(1), site.axis("axis", site.rank(0), 0))


@rule("GatherElements")
def gather_elements(site: NodeContext) -> Any:
    """Imports GatherElements: one element per index, along an axis."""
    return ops.gather(site.x(0), site.x(1), site.axis("axis", site.rank(0), 0))


@rule("GatherND")
def gather_nd(site: NodeContext) -> Any:
    """Imports GatherND: the slices at index tuples."""
    _check_tuples(site)
    return ops.gather_nd(site.x(0), site.x(1), batch_dims=site.integer("batch_dims", 0))


@rule("ScatterElements", "Scatter")
def scatter_elements(site: NodeContext) -> Any:
    """Imports ScatterElements: writes one update per index, along an axis."""
    how = site.text("reduction", "none", "none", "add", "mul", "max", "min")
    return ops.scatter(site.x(0), site.x(1), site.x(2), site.axis("axis", site.rank(0), 0), how)


@rule("ScatterND")
def scatter_nd(site: NodeContext) -> Any:
    """Imports ScatterND: writes updates at index tuples."""
    _check_tuples(site)
    how = site.text("reduction", "none", "none", "add", "mul", "max", "min")
    return ops.scatter_nd(site.x(0), site.x(1), site.x(2), how)


def _check_tuples(site: NodeContext) -> None:
    """Raises unless the length of index tuples is known, which determines the rank of the result."""
    if site.rank(1) and not isinstance(site.shape(1)[-1], int):
        raise site.needed_dim("the last dim of the indices must be known")


@rule("ReverseSequence")
def reverse_sequence(site: NodeContext) -> Any:
    """Imports ReverseSequence: reverses the first elements of each sequence, up to its length."""
    return ops.reverse_sequence(site.x(0), site.x(1), axis=site.integer("time_axis", 0), batch_axis=site.integer("batch_axis", 1))


@rule("TensorScatter")
def tensor_scatter(site: NodeContext) -> Any:
    """Imports TensorScatter: writes new rows into a KV cache, from a start position for each sequence (0 without input 2).

    In the mode `circular`, rows behind the end continue at the beginning.
    """
    cache, update = site.x(0), site.x(1)
    axis = site.axis("axis", site.rank(0), -2)
    mode = site.text("mode", "linear", "linear", "circular")
    rank, shape = site.rank(0), site.shape(1)
    places: Any = ops.reshape(ops.arange(shape[axis]), [-1 if k == axis else 1 for k in range(rank)])
    if site.has(2):
        start: Any = site.x(2) if site.dtype(2) is i64 else ops.cast(site.x(2), i64)
        places = ops.add(places, ops.reshape(start, [-1 if k == 0 else 1 for k in range(rank)]))
    if mode == "circular":
        places = ops.remainder(places, ops.add(site.tensor(0).shape[axis], 0))
    return ops.scatter(cache, ops.expand(places, list(shape)), update, axis)
