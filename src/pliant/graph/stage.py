"""Stages: an operator's loop program, given in terms of `sym` alone (graph programs do not know loop programs).

A stage computes one tensor, element by element. Its `value` is called with the indices of the element, the indices of the
reduction (one for each extent of `reduce`) and `read`; `read(k, *indices)` is an element of argument number k, `read("name",
*indices)` one of an earlier stage. With `reduce`, the element is `init` combined with the value at every reduction point, in order.
A `TupleStage` reduces several values at once by an associative function of two tuples, and computes a tensor for each.
The last tensors of an operator's stages are its results, in order; those before are temporaries.

    Stage("sum", f32, (n,), lambda i, r, read: read(0, *i, *r), reduce=(m,), combiner="add", init=const(0.0, f32))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ..dtype import DType
from ..support.record import dataclass
from ..sym.expr import Expr

Indices = tuple[Expr, ...]
Read = Callable[..., Expr]  # read(argument number or stage name, *indices)
StageValue = Callable[[Indices, Indices, Read], Expr]
TupleValue = Callable[[Indices, Indices, Read], tuple[Expr, ...]]
Combine = Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]
StageCheck = Callable[[Indices, Read], tuple[Expr, str, tuple[Expr, ...]]]  # a condition, and a message with its values


@dataclass(frozen=True, slots=True)
class Stage:
    """One tensor computed element by element; see the module."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    value: StageValue
    reduce: tuple[Expr, ...] = ()
    combiner: Literal["add", "mul", "min", "max", "and", "or"] = "add"
    init: Expr | None = None
    check: StageCheck | None = None  # what has to hold for an element to be computed


@dataclass(frozen=True, slots=True)
class TupleStage:
    """Several tensors of one shape, reduced together: `init` combined with the values at every reduction point, in order."""

    names: tuple[str, ...]
    dtypes: tuple[DType, ...]
    shape: tuple[Expr, ...]
    values: TupleValue
    reduce: tuple[Expr, ...]
    combine: Combine  # associative: what is there, and what comes after it
    init: tuple[Expr, ...]


AnyStage = Stage | TupleStage
