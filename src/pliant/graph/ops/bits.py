"""Reinterpreting bits as another data type.

ops.bit_cast(x, i32)                           # of f32: the bit patterns of its elements
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from ...dtype import DType, bool_
from ...dtype import dtype as to_dtype
from ...support.record import dataclass
from ...sym.expr import Bitcast, Cast, Expr
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import OpCall
from .elementwise import pointwise

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BitCastAttrs:
    """The attributes of `bit_cast`: the dtype of the result."""

    dtype: DType


def _deduce(d: Deduction, attrs: BitCastAttrs) -> tuple[Annotation, ...]:
    of, to = d.tensor(0).dtype, attrs.dtype
    if of.storage or to.storage:
        raise d.error(f"bit_cast of {of} to {to}: types for storage have no bits of their own while something is computed", arg=0)
    if of.bits != to.bits and bool_ not in (of, to):
        raise d.error(f"bit_cast of {of} to {to}: {of.bits} bits are not {to.bits} bits", arg=0)
    if bool_ in (of, to) and (of.bits if to is bool_ else to.bits) not in (1, 8):
        raise d.error(f"bit_cast of {of} to {to}: a bool is a byte", arg=0)
    return (Tensor(to, d.tensor(0).shape),)


def _value(to: DType, x: Expr) -> Expr:
    """Returns the bits of `x` as the dtype `to`; a bool is the byte 0 or 1."""
    return Cast(to, x) if bool_ in (x.dtype, to) else Bitcast(to, x) if x.dtype is not to else x


def _reference(args: Any, attrs: BitCastAttrs) -> list[Any]:
    x = args[0]
    return [x != 0 if attrs.dtype is bool_ else np.ascontiguousarray(x).view(attrs.dtype.numpy()).reshape(x.shape)]


@pointwise(deduce=_deduce, reference=_reference, formula=lambda attrs: lambda x: _value(attrs.dtype, x), attrs=BitCastAttrs)
def bit_cast(op: OpCall, x: Any, dtype: type[T]) -> T:
    """The bits of `x` reinterpreted as another data type of the same width."""
    return op.emit(x, attrs=BitCastAttrs(to_dtype(dtype)))
