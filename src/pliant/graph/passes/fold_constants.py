"""Constant folding: operators on literals are computed at compile time by their numpy reference, if the result is small.

Operators whose attributes depend on dims are not folded. Larger results (transposed weights, tables) are not folded here:
`lower/layout/lift_constants.py` computes them once, when the program is loaded.

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
from ..op_table import TABLE
from ..operators import Array, attr_exprs, map_attrs
from ..rewrite import Rewriter

LARGEST = 4096  # bytes: larger results would only make the file of the program larger


def fold_constants(function: Function) -> Function:
    """Returns the function with operators on literals folded to literals, if these are small; the same object if there are none."""
    return Rewriter(function, _fold).run()


def _fold(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """Constant folding: returns the literals that replace a node; None if it cannot be folded or is large."""
    if not isinstance(node, Op) or node.requires or not all(_is_small(o) for o in node.outs):
        return None
    if not node.args or not all(isinstance(e, Const) for e in attr_exprs(node.attrs)):
        return None  # without operands nothing is saved: `full` fills memory as fast as a literal is read
    arrays = [r.array_of(a) for a in node.args]
    known = [a for a in arrays if a is not None]
    results = evaluate(node, known) if len(known) == len(arrays) else None
    if results is None:
        return None
    return [r.constant(a, o.name, node.origin, node.span) for a, o in zip(results, node.outs, strict=True)]


def _is_small(value: Value) -> bool:
    """True if the value is a tensor of constant shape with at most LARGEST bytes, of a dtype that is not storage-only."""
    t = value.annotation
    if not isinstance(t, Tensor) or t.dtype.storage or not all(isinstance(n, Const) for n in t.shape):
        return False
    elements = product(t.shape)
    return isinstance(elements, Const) and elements.value * t.dtype.itemsize <= LARGEST


def _number(e: Expr) -> Any:
    """The value of an attribute as numpy references expect it: a Python int for i64, else a numpy scalar."""
    assert isinstance(e, Const)
    return e.value if e.dtype is i64 else const_value(e)


def evaluate(node: Op, arrays: Sequence[Array]) -> list[Array] | None:
    """Returns the results of an operator on arrays; None if it fails (e.g. an index out of range), which run time will report.

    None also if a result does not have the annotated shape and dtype.
    """
    attrs = map_attrs(node.attrs, _number)
    try:
        with np.errstate(all="ignore"):
            results = [np.asarray(a) for a in TABLE[node.op].reference(arrays, attrs)]
    except (Error, IndexError, ValueError):
        return None
    shapes = [tuple(int(str(n)) for n in o.tensor.shape) for o in node.outs]
    fits = all(a.shape == s and a.dtype == o.tensor.dtype.numpy() for a, s, o in zip(results, shapes, node.outs, strict=True))
    return results if fits else None
