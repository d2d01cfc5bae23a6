"""Dims that become known at run time: a computed number becomes a dim.

An operator whose result size depends on data (nonzero, unique, non_max_suppression) is lowered to a loop program that fills memory of a
known capacity and counts, to `bind_dim`, which makes the count a dim, and to `prefix`, which is the filled part of the memory. Users call
`bind_dim` for sizes of their own.

    u = ops.bind_dim(count, most=n)         # a host scalar whose value is a new dim, checked to be at most n
    y = ops.slice(x, axis=0, stop=u)        # Tensor[f32, u, 64]
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import i64
from ...support.errors import ShapeError
from ...support.record import dataclass
from ...sym.expr import And, Dim, Expr, Le, Var, const
from ..deduce import Deduction
from ..node import Annotation, Scalar, Tensor
from ..operators import Array, OpCall, operator
from .shape import as_dim

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BindAttrs:
    """The attributes of `bind_dim`: the new dim, and its upper bound."""

    dim: Var
    most: Expr


def _deduce_bind(d: Deduction, attrs: BindAttrs) -> tuple[Annotation, ...]:
    value = d.rank(0, 0)
    if value.dtype is not i64:
        raise d.error(
            f"bind_dim: `{d.args[0].name}` is {value.dtype}, and a dim is i64", arg=0, help=f"write ops.cast({d.args[0].name}, i64)"
        )
    return (Scalar(i64, attrs.dim),)


def _bind_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    value = int(args[0])
    if not 0 <= value <= attrs.most:
        raise ShapeError(f"a dim is {value}, which is not within 0..{attrs.most}")
    return [np.asarray(value)]


@operator(deduce=_deduce_bind, reference=_bind_reference, attrs=BindAttrs, defines=("dim",))
def bind_dim(op: OpCall, value: Any, dim: Any = None, most: Any = None) -> Any:
    """Makes a computed number a new dim; memory is planned for `most`, and a larger number is an error at run time.

    `dim` is the symbol of the new dim; without it a new symbol is made. Raises a ShapeError without `most`.
    """
    if most is None:
        raise ShapeError(
            f"{op.name}: `most` is missing", help="say what the dim is at most, in terms of other dims: memory is planned for that"
        )
    return op.emit(op.operand(value, i64), attrs=BindAttrs(new_dim(dim), as_dim(op.name, most)))


@dataclass(frozen=True, slots=True)
class PrefixAttrs:
    """The attributes of `prefix`: the number of elements along the first axis."""

    extent: Expr


def _deduce_prefix(d: Deduction, attrs: PrefixAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    if not x.shape:
        raise d.error(f"prefix: `{d.args[0].name}` has no dims", arg=0)
    inside = And(Le(const(0), attrs.extent), Le(attrs.extent, x.shape[0]))
    d.require(inside, f"prefix: {{0}} is not within the {{1}} elements of axis 0 of `{d.args[0].name}`", (attrs.extent, x.shape[0]))
    return (Tensor(x.dtype, (attrs.extent, *x.shape[1:])),)


@operator(deduce=_deduce_prefix, reference=lambda args, attrs: [args[0][: attrs.extent]], attrs=PrefixAttrs, view=True)
def prefix(op: OpCall, x: T, extent: Any) -> T:
    """The first `extent` elements along axis 0, as a view of `x`."""
    return op.emit(op.operand(x), attrs=PrefixAttrs(as_dim(op.name, extent)))


def new_dim(wanted: Any, name: str = "u") -> Var:
    """Returns the dim that an operator defines: the user's, or a new one of that name; raises if the user's is no dim."""
    if wanted is None:
        return Dim(name)
    if isinstance(wanted, Var) and wanted.dtype is i64:
        return wanted
    raise ShapeError(f"a new dim is expected, not {wanted!r}", help=f'write {name} = dim("{name}") before the function')
