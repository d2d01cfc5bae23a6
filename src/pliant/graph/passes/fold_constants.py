"""Operators on literals alone become literals: computed now, by their numpy meaning, where the result is small.

What depends on dims is no literal. Larger results (weights that are transposed, tables) stay as they are here: they are worth memory of
their own, which is filled once, when the program is loaded.

    two = ops.constant(2.0)                 ->
    half = ops.div(1.0, two)
    return ops.mul(x, half)                     return ops.mul(x, 0.5)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import i64
from ...support.errors import Error
from ...sym.expr import Const, Expr, product
from ...sym.semantics import const_value
from ..node import Function, Node, Op, Tensor, Value
from ..operators import TABLE, Array, attr_exprs, map_attrs
from ..rewrite import Rewriter

LARGEST = 4096  # bytes of a result that is kept with the code


def fold_constants(function: Function) -> Function:
    """The function with its small constant results computed; the same object where there are none."""
    return Rewriter(function, _fold).run()


def _fold(r: Rewriter, node: Node) -> Sequence[Value] | None:
    if not isinstance(node, Op) or node.requires or not all(_is_small(o) for o in node.outs):
        return None
    if not node.args or not all(isinstance(e, Const) for e in attr_exprs(node.attrs)):
        return None  # without operands there is nothing to save: `full` fills memory as fast as it is read
    arrays = [r.array_of(a) for a in node.args]
    known = [a for a in arrays if a is not None]
    found = evaluate(node, known) if len(known) == len(arrays) else None
    if found is None:
        return None
    return [r.constant(a, o.name, node.origin, node.span) for a, o in zip(found, node.outs, strict=True)]


def _is_small(value: Value) -> bool:
    t = value.annotation
    if not isinstance(t, Tensor) or t.dtype.storage or not all(isinstance(n, Const) for n in t.shape):
        return False
    elements = product(t.shape)
    return isinstance(elements, Const) and elements.value * t.dtype.itemsize <= LARGEST


def _number(e: Expr) -> Any:
    """The value of an attribute as references take it: Python's integers, numpy's other numbers."""
    assert isinstance(e, Const)
    return e.value if e.dtype is i64 else const_value(e)


def evaluate(node: Op, arrays: Sequence[Array]) -> list[Array] | None:
    """The results of an operator on arrays; None where it has none (an index outside, say), which is for the run to tell."""
    attrs = map_attrs(node.attrs, _number)
    try:
        with np.errstate(all="ignore"):
            found = [np.asarray(a) for a in TABLE[node.op].reference(arrays, attrs)]
    except (Error, IndexError, ValueError):
        return None
    shapes = [tuple(int(str(n)) for n in o.tensor.shape) for o in node.outs]
    fits = all(a.shape == s and a.dtype == o.tensor.dtype.numpy() for a, s, o in zip(found, shapes, node.outs, strict=True))
    return found if fits else None
