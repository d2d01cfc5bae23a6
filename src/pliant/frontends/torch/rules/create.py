"""Tensors from nothing: ranges, fills, and tensors like others."""

from __future__ import annotations

from typing import Any

from ....dtype import bool_
from ....graph.operators import tensor_of
from ....sym.expr import Expr
from ..emit import ops
from ..registry import rule
from ..site import Site


def _filled(site: Site, extents: Any, value: Any) -> Any:
    """Returns a tensor of these extents, in the dtype that torch deduced, with one value: a number or a size."""
    of = site.dtype()
    if isinstance(value, Expr):
        return ops.expand(ops.reshape(site.cast(value, of), (1,) * len(extents)), tuple(extents))
    return ops.full(tuple(extents), bool(value) if of is bool_ else float(value) if of.is_float else of.wrap(int(value)), of)


@rule("aten.full", "aten.new_full")
def full(site: Site, size: Any, fill_value: Any, dtype: Any = None, self: Any = None) -> Any:
    """Imports full and new_full: a tensor of a size with one value, in the dtype that torch deduced."""
    return _filled(site, size, fill_value)


@rule("aten.zeros", "aten.new_zeros", "aten.ones", "aten.new_ones", "aten.empty", "aten.new_empty", "aten.empty_permuted")
def zeros_ones(site: Site, size: Any, dtype: Any = None, self: Any = None, physical_layout: Any = None) -> Any:
    """Imports zeros, ones and empty, with their `new_` forms; empty tensors are zeros."""
    return _filled(site, size, 1 if "ones" in site.op else 0)


@rule("aten.full_like", "aten.zeros_like", "aten.ones_like", "aten.empty_like", "aten.fill")
def like(site: Site, self: Any, fill_value: Any = None, dtype: Any = None, value: Any = None) -> Any:
    """Imports fills in another tensor's shape: full_like, zeros_like, ones_like, empty_like (zeros) and fill.

    The value is a number, a size, or a tensor of one element.
    """
    extents = tensor_of(self.annotation).shape
    number = fill_value if fill_value is not None else value
    if number is None:
        number = 1 if "ones" in site.op else 0
    if not isinstance(number, Expr | bool | int | float):
        return ops.expand(site.cast(number, site.dtype()), extents)
    return _filled(site, extents, number)


@rule("aten.arange")
def arange(site: Site, end: Any, start: Any = 0, step: Any = 1, dtype: Any = None) -> Any:
    """Imports arange, in the dtype that torch deduced, of numbers and sizes."""
    of = site.dtype()
    if of.is_float and not any(isinstance(v, Expr) for v in (start, end, step)):
        return ops.arange(float(start), float(end), float(step), dtype=of)
    return site.cast(ops.arange(start, end, step), of)


@rule("aten.scalar_tensor")
def scalar_tensor(site: Site, s: Any, dtype: Any = None) -> Any:
    """Imports scalar_tensor: a number or size as a tensor without dims."""
    return site.cast(s, site.dtype())


@rule("aten.eye")
def eye(site: Site, n: Any, m: Any = None, dtype: Any = None) -> Any:
    """Imports eye: ones on the diagonal of a matrix [n, m], by default [n, n], else zeros."""
    return ops.eye(n, n if m is None else m, dtype=site.dtype())


@rule("aten.linspace")
def linspace(site: Site, start: Any, end: Any, steps: Any, dtype: Any = None) -> Any:
    """Imports linspace between two numbers; a bound that is computed is not supported."""
    return ops.linspace(float(start), float(end), steps, dtype=site.dtype())
