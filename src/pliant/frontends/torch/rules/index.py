"""Reads and writes at computed indices."""

from __future__ import annotations

from typing import Any

from ....dtype import bool_, i64
from ....graph.operators import tensor_of
from ....sym.expr import Expr
from ..emit import ops
from ..registry import rule
from ..site import Site, dtype_in, normal, rank, shape

REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


@rule("aten.embedding")
def embedding(site: Site, weight: Any, indices: Any, padding_idx: Any = -1, scale_grad_by_freq: Any = False, sparse: Any = False) -> Any:
    """Imports embedding: the rows of the weight at the indices; what only gradients need is ignored."""
    return ops.take(weight, indices, axis=0)


@rule("aten.index_select")
def index_select(site: Site, self: Any, dim: int, index: Any) -> Any:
    """Imports index_select: the elements at the indices along an axis; a tensor without dims counts as one element."""
    if not rank(self):
        return ops.reshape(ops.take(ops.reshape(self, (1,)), index), ())
    at = index if rank(index) else ops.reshape(index, (1,))
    return ops.take(self, at, axis=normal(dim, rank(self)))


@rule("aten.gather")
def gather(site: Site, self: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    """Imports gather along an axis; a tensor without dims counts as one element."""
    if not rank(self):
        return ops.reshape(ops.take(ops.reshape(self, (1,)), ops.reshape(index, (1,))), index.tensor.shape)
    return ops.gather(self, index, axis=normal(dim, rank(self)))


@rule("aten.index", "aten._unsafe_index")
def index(site: Site, self: Any, indices: Any) -> Any:
    """Imports indexing by tensors: they broadcast, and None keeps an axis.

    If the indexed axes are adjacent, the new dims take their place, else they come first. A mask of the first axes gives a dim that is
    known only at run time. Raises UnsupportedError for a mask among other indices.
    """
    if any(i is not None and dtype_in(i) is bool_ for i in indices):
        if indices[0] is None or any(i is not None for i in indices[1:]):
            raise site.unsupported("a mask among other indices is not supported")
        return ops.gather_nd(self, ops.nonzero(indices[0]))
    used = [k for k, i in enumerate(indices) if i is not None]
    chosen = [indices[k] for k in used]
    if len(used) == 1:
        return ops.take(self, chosen[0], axis=used[0])
    others = [k for k in range(rank(self)) if k not in used]
    front = ops.permute(self, [*used, *others])
    found = _at(front, chosen)
    new = rank(found) - len(others)
    if used != list(range(used[0], used[0] + len(used))):
        return found
    lead = used[0]
    return ops.permute(found, [*range(new, new + lead), *range(new), *range(new + lead, rank(found))])


def _at(x: Any, indices: list[Any]) -> Any:
    """Returns `x` at indices into its leading axes, which broadcast."""
    whole = ops.cast(indices[0], i64)
    for i in indices[1:]:
        whole = ops.add(whole, ops.mul(ops.cast(i, i64), 0))
    wanted = whole.tensor.shape
    columns = [ops.unsqueeze(ops.expand(ops.cast(i, i64), wanted), len(wanted)) for i in indices]
    return ops.gather_nd(x, ops.concat(columns, axis=len(wanted)))


@rule("aten.nonzero")
def nonzero(site: Site, self: Any) -> Any:
    """Imports nonzero: the indices of the elements that are not 0, a row for each; their number is known only at run time."""
    return ops.nonzero(site.cast(self, bool_)) if rank(self) else ops.slice(ops.nonzero(ops.reshape(site.cast(self, bool_), (1,))), 1, 0, 0)


@rule("aten.masked_select")
def masked_select(site: Site, self: Any, mask: Any) -> Any:
    """Imports masked_select: the elements where the mask is true, whose number is known only at run time."""
    return ops.masked_select(self, mask)


@rule("aten.index_put", "aten._unsafe_index_put")
def index_put(site: Site, self: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """Imports index_put: by one mask as a select, by indices with None for whole axes; with `accumulate` values are added.

    Returns the new tensor. Raises UnsupportedError for a mask with several values, or among other indices.
    """
    of = dtype_in(self)
    values = site.cast(values, of)
    masks = [i for i in indices if i is not None and dtype_in(i) is bool_]
    if masks:
        return _put_masked(site, self, indices, values, accumulate)
    used = [k for k, i in enumerate(indices) if i is not None]
    others = [k for k in range(rank(self)) if k not in used]
    order = [*used, *others]
    front = self if order == list(range(rank(self))) else ops.permute(self, order)
    adjacent = used == list(range(used[0], used[0] + len(used)))
    chosen = [indices[k] for k in used]
    if adjacent and used[0] and rank(values) > rank(self) - len(used) - used[0]:
        values = _values_first(values, used[0], max(rank(i) for i in chosen), rank(self) - len(used))
    put = ops.index_put(front, values, *[ops.cast(i, i64) for i in chosen], accumulate=accumulate)
    return put if front is self else ops.permute(put, [order.index(k) for k in range(rank(self))])


def _values_first(values: Any, lead: int, new: int, others: int) -> Any:
    """Returns values with the dims of adjacent indices first, as `index_put` of leading axes expects them."""
    full = new + others
    if rank(values) < full:
        values = ops.reshape(values, (*[1] * (full - rank(values)), *values.tensor.shape))
    return ops.permute(values, [*range(lead, lead + new), *range(lead), *range(lead + new, full)])


def _put_masked(site: Site, x: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    """Returns `x` with one value where a mask of its first axes is true, or with it added there (`accumulate`).

    Raises UnsupportedError for several values, and for a mask that is not the first and only index.
    """
    mask = next(i for i in indices if i is not None)
    one = sum(i is not None for i in indices) == 1 and indices[0] is not None
    scalar = all(n == 1 for n in shape(values))
    if not one or not scalar:
        raise site.unsupported("values at the places of a mask are supported if there is one value only")
    mask = ops.reshape(mask, (*mask.tensor.shape, *[1] * (rank(x) - rank(mask))))
    value = ops.reshape(values, ())
    return ops.where(mask, ops.add(x, value) if accumulate else value, x)


@rule("aten.scatter", "aten.scatter_add", "aten.scatter_reduce")
def scatter(
    site: Site, self: Any, dim: int, index: Any, src: Any = None, value: Any = None, reduce: Any = None, include_self: bool = True
) -> Any:
    """Imports scatter of values or of one number, with or without a reduction.

    Raises UnsupportedError for a mean, and for a reduction without the operand itself.
    """
    of = dtype_in(self)
    updates = site.cast(value if src is None else src, of)
    how = "add" if site.op == "aten.scatter_add" else "none" if reduce is None else REDUCTIONS.get(reduce)
    if how is None or not include_self:
        raise site.unsupported(f'the reduction "{reduce}"{"" if include_self else " without the operand itself"} is not supported')
    if not rank(self):
        one = scatter_one(ops.reshape(self, (1,)), ops.reshape(index, (1,)), ops.reshape(updates, (1,)), how)
        return ops.reshape(one, ())
    if src is None:
        updates = ops.expand(updates, index.tensor.shape)
    for axis, n in enumerate(tensor_of(index.annotation).shape):
        if tensor_of(updates.annotation).shape[axis] is not n:
            updates = ops.slice(updates, axis, 0, n)
    return ops.scatter(self, index, updates, axis=normal(dim, rank(self)), reduction=how)


def scatter_one(x: Any, index: Any, updates: Any, how: str) -> Any:
    """Returns a scatter into a tensor of one dim, with the reduction `how` ("none" replaces elements)."""
    return ops.scatter(x, index, updates, axis=0, reduction=how)


@rule("aten.index_copy", "aten.index_add", "aten.index_fill")
def index_copy(site: Site, self: Any, dim: int, index: Any, source: Any = None, alpha: Any = 1, value: Any = None) -> Any:
    """Imports index_copy, index_add and index_fill: slices along an axis replaced by others, with others times `alpha` added, or filled."""
    of = dtype_in(self)
    if not rank(self):
        x, axis = ops.reshape(self, (1,)), 0
    else:
        x, axis = self, normal(dim, rank(self))
    at = ops.reshape(index, (-1,)) if not rank(index) else index
    written = site.cast(value if source is None else source, of)
    written = written if alpha == 1 else ops.mul(written, site.cast(alpha, of))
    if source is not None:
        written = ops.reshape(written, (1,)) if not rank(written) else written
        written = _moved(written, axis, 0)
    put = ops.index_put(_moved(x, axis, 0), written, ops.cast(at, i64), accumulate=site.op == "aten.index_add")
    return ops.reshape(_moved(put, 0, axis), self.tensor.shape)


def _moved(x: Any, axis: int, to: int) -> Any:
    """Returns `x` with one axis moved to another position."""
    order = [k for k in range(rank(x)) if k != axis]
    order.insert(to, axis)
    return x if order == list(range(rank(x))) else ops.permute(x, order)


@rule("aten.slice_scatter", "aten.select_scatter")
def slice_scatter(
    site: Site, self: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1, index: Any = None
) -> Any:
    """Imports slice_scatter and select_scatter: a copy in which a slice, or one index along an axis, is replaced by other values."""
    from .shapes import bound

    axis = normal(dim, rank(self))
    n = shape(self)[axis]
    if index is not None:
        src = ops.unsqueeze(src, axis)
        first = n + index if isinstance(index, int) and index < 0 else index
        last = first + 1
    else:
        first, last = bound(start, n, 0), bound(end, n, n)
    if first == 0 and last is n and step == 1:
        return site.cast(src, dtype_in(self))
    extent = shape(src)[axis]
    places = ops.add(ops.mul(ops.arange(extent), step), ops.scalar(first) if isinstance(first, Expr) else first)
    put = ops.index_put(_moved(self, axis, 0), _moved(site.cast(src, dtype_in(self)), axis, 0), places)
    return _moved(put, 0, axis)


@rule("aten.masked_fill")
def masked_fill(site: Site, self: Any, mask: Any, value: Any) -> Any:
    """Imports masked_fill: a value where the mask is true; the dtype stays that of the operand."""
    return ops.where(mask, site.cast(value, dtype_in(self)), self)


@rule("aten.masked_scatter")
def masked_scatter(site: Site, self: Any, mask: Any, source: Any) -> Any:
    """Imports masked_scatter: the elements of the source, in order, where the mask is true, and the operand elsewhere."""
    wanted = self.tensor.shape
    flags = ops.reshape(ops.expand(mask, wanted), (-1,))
    order = ops.sub(ops.cumsum(ops.cast(flags, i64), axis=0), 1)
    values = ops.take(ops.reshape(source, (-1,)), ops.where(flags, order, 0), axis=0)
    return ops.reshape(ops.where(flags, values, ops.reshape(self, (-1,))), wanted)
