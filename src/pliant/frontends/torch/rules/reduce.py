"""Reductions, extremes with their indices, running sums, sorting."""

from __future__ import annotations

import math
from typing import Any

from ....dtype import bool_, f32, i64
from ..emit import ops
from ..registry import rule
from ..site import Site, axes, dtype_in, normal, rank

_LOGICAL = {"aten.any": ops.any, "aten.all": ops.all, "aten._is_all_true": ops.all, "aten._is_any_true": ops.any}


@rule("aten.sum", "aten.mean", "aten.prod")
def total(site: Site, self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Imports sum, mean and prod along axes (all for None), in the dtype of the result; those of 16-bit floats are taken in f32."""
    of = site.dtype()
    x = site.cast(self, of)
    wide = site.cast(x, f32) if of.is_float and of.bits < 32 else x
    make = {"aten.sum": ops.sum, "aten.mean": ops.mean, "aten.prod": ops.prod}[site.op]
    along = axes(dim, rank(x)) if rank(x) else []
    return site.cast(make(wide, axis=along, keepdims=keepdim) if along else wide, of)


@rule("aten.amax", "aten.amin")
def extremes(site: Site, self: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """Imports amax and amin along axes, all of them for an empty list; of bools they are `any` and `all`."""
    return _extreme(self, "max" if site.op == "aten.amax" else "min", axes(list(dim), rank(self)), keepdim)


def _extreme(x: Any, word: str, along: list[int], keepdim: bool = False) -> Any:
    """Returns the largest ("max") or smallest ("min") elements along axes; of bools `any` and `all`.

    A tensor without dims stays as it is.
    """
    if not rank(x):
        return x
    if dtype_in(x) is bool_:
        return (ops.any if word == "max" else ops.all)(x, axis=along, keepdims=keepdim)
    return getattr(ops, word)(x, axis=along, keepdims=keepdim)


@rule("aten.max", "aten.min")
def max_min(site: Site, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Imports max and min of all elements, or along one axis: then a list of values and indices."""
    word = site.op.removeprefix("aten.")
    if dim is None:
        return _extreme(self, word, axes(None, rank(self)))
    if not rank(self):
        return [self, ops.full((), 0, i64)]
    make = ops.max_with_index if word == "max" else ops.min_with_index
    return list(_whole(site, self, lambda x: make(x, axis=normal(dim, rank(x)), keepdims=keepdim)))


def _whole(site: Site, x: Any, make: Any) -> Any:
    """Returns the values and indices that `make` gives for numbers; bools are compared as integers, and the values are bools again."""
    if dtype_in(x) is not bool_:
        return make(x)
    values, indices = make(ops.cast(x, i64))
    return ops.cast(values, bool_), indices


@rule("aten.argmax", "aten.argmin")
def arg(site: Site, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Imports argmax and argmin along an axis, or, without one, in the tensor as one row; 0 for a tensor without dims."""
    if not rank(self):
        return ops.full((), 0, i64)
    make = getattr(ops, site.op.removeprefix("aten."))
    if dim is None:
        flat = make(self)
        return ops.reshape(flat, (1,) * rank(self)) if keepdim else flat
    return make(self, axis=normal(dim, rank(self)), keepdims=keepdim)


@rule(*_LOGICAL)
def logical(site: Site, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Imports any and all, along axes or of all elements; numbers are true if they are not 0.

    An empty list of axes reduces nothing, unlike for sum.
    """
    x = site.cast(self, bool_)
    nothing = isinstance(dim, list | tuple) and not dim  # an empty list of dims: of any and all, unlike of sum, it means none
    result = _LOGICAL[site.op](x, axis=axes(dim, rank(x)), keepdims=keepdim) if rank(x) and not nothing else x
    return site.cast(result, site.dtype())


@rule("aten.linalg_vector_norm")
def vector_norm(site: Site, self: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Imports the norm of vectors of any order, along axes or of all elements, in f32 for 16-bit floats."""
    result = site.dtype()
    of = f32 if result.bits < 32 else result  # powers of 16-bit floats overflow
    return site.cast(_norm(ops.abs(site.cast(self, of)), ord, dim, keepdim, of), result)


def _norm(x: Any, ord: Any, dim: Any, keepdim: bool, of: Any) -> Any:
    """Returns the norm of any order of absolute values along axes, all of them for None.

    Order 0 counts those that are not 0; an infinite order takes the largest, or the smallest for minus infinity.
    """
    if not rank(x):
        return x if ord != 0 else ops.cast(ops.not_equal(x, 0.0), of)
    named = {"axis": axes(dim, rank(x)), "keepdims": keepdim}
    if ord == 0:
        return ops.sum(ops.cast(ops.not_equal(x, 0.0), of), **named)
    if math.isinf(ord):
        return (ops.max if ord > 0 else ops.min)(x, **named)
    if ord == 1:
        return ops.sum(x, **named)
    if ord == 2:
        return ops.norm(x, p=2, **named)
    return ops.pow(ops.sum(ops.pow(x, float(ord)), **named), 1.0 / float(ord))


@rule("aten.var", "aten.std", "aten.var_mean", "aten.std_mean")
def variance(site: Site, self: Any, dim: Any = None, correction: Any = None, keepdim: bool = False, unbiased: bool = True) -> Any:
    """Imports var and std, alone or in a list with the mean; the correction is by default 1, or 0 if not `unbiased`.

    Raises UnsupportedError for a correction that is no whole number.
    """
    less = (1 if unbiased else 0) if correction is None else correction
    if less != int(less):
        raise site.unsupported("a correction that is no whole number is not supported")
    named = {"axis": axes(dim, rank(self)), "keepdims": keepdim}
    make = ops.var if "var" in site.op else ops.std
    result = make(self, correction=int(less), **named)
    return [result, ops.mean(self, **named)] if site.op.endswith("_mean") else result


@rule("aten.logsumexp")
def logsumexp(site: Site, self: Any, dim: Any, keepdim: bool = False) -> Any:
    """Imports logsumexp along axes, in the dtype of the result; an operand without dims is the result."""
    x = site.cast(self, site.dtype())
    return ops.logsumexp(x, axis=axes(dim, rank(x)), keepdims=keepdim) if rank(x) else x


@rule("aten.cumsum", "aten.cumprod")
def running(site: Site, self: Any, dim: int, dtype: Any = None) -> Any:
    """Imports cumsum and cumprod along an axis, in the dtype of the result; an operand without dims is the result."""
    x = site.cast(self, site.dtype())
    if not rank(x):
        return x
    return (ops.cumsum if site.op == "aten.cumsum" else ops.cumprod)(x, axis=normal(dim, rank(x)))


@rule("aten.cummax", "aten.cummin")
def running_extreme(site: Site, self: Any, dim: int) -> Any:
    """Imports cummax and cummin along an axis: a list of values and indices, those of the last of equal elements."""
    if not rank(self):
        return [self, ops.full((), 0, i64)]
    make = ops.cummax if site.op == "aten.cummax" else ops.cummin
    return list(_whole(site, self, lambda x: make(x, axis=normal(dim, rank(x)))))


@rule("aten.topk")
def topk(site: Site, self: Any, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Imports topk: a list of the k largest (or smallest) values along an axis and their indices, always sorted."""
    if not rank(self):
        return [self, ops.full((), 0, i64)]
    return list(ops.topk(self, k, axis=normal(dim, rank(self)), largest=largest))


@rule("aten.sort")
def sort(site: Site, self: Any, dim: int = -1, descending: bool = False, stable: Any = None) -> Any:
    """Imports sort along an axis, which is always stable: a list of values and indices."""
    if not rank(self):
        return [self, ops.full((), 0, i64)]
    return list(_whole(site, self, lambda x: ops.sort(x, axis=normal(dim, rank(x)), descending=descending)))


@rule("aten.argsort")
def argsort(site: Site, self: Any, dim: int = -1, descending: bool = False, stable: Any = None) -> Any:
    """Imports argsort: the indices that sort along an axis, stably."""
    return sort(site, self, dim, descending)[1]


@rule("aten.bucketize")
def bucketize(site: Site, self: Any, boundaries: Any, out_int32: bool = False, right: bool = False) -> Any:
    """Imports bucketize: the index of each element's bucket between sorted boundaries; with `right` a boundary begins its bucket."""
    of = site.common("self", "boundaries")
    return site.cast(ops.bucketize(site.cast(self, of), site.cast(boundaries, of), right=right), site.dtype())


@rule("aten.searchsorted")
def searchsorted(site: Site, sorted_sequence: Any, self: Any, out_int32: bool = False, right: bool = False, side: Any = None) -> Any:
    """Imports searchsorted: where elements belong in sorted rows, before equal ones, or after them with `right` or a `side` "right"."""
    of = site.common("sorted_sequence", "self")
    after = right or side == "right"
    return site.cast(ops.searchsorted(site.cast(sorted_sequence, of), site.cast(self, of), right=after), site.dtype())
