"""Stages: the elementwise definition of what an operator computes, as `sym` expressions (`graph/` does not import `loop/`).

A stage computes one tensor, element by element; lowering turns it into one loop nest. Its `value` is called with the indices of
the element, the indices of the reduction (one per extent of `reduce`) and `read`. `read(k, *indices)` is an element of argument k,
`read("name", *indices)` one of an earlier stage. With `reduce`, an element is `init` combined with the value at every reduction
point, in order. The last stages of an operator are its results, in order; those before are temporaries.

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
StageCheck = Callable[[Indices, Read], tuple[Expr, str, tuple[Expr, ...]]]  # (condition, message, values for the message)


@dataclass(frozen=True, slots=True)
class Stage:
    """The definition of one tensor: `value(indices, reduction indices, read)` is the formula of an element.

    `read` gives elements of arguments (by number) and of earlier stages (by name). With `reduce`, an element is `init` combined with the
    value at every reduction point, in order.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    value: StageValue
    reduce: tuple[Expr, ...] = ()
    combiner: Literal["add", "mul", "min", "max", "and", "or"] = "add"
    init: Expr | None = None
    check: StageCheck | None = None  # a condition that must hold for each element, e.g. that an index is in range
