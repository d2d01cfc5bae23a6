"""Folds transposes into matmuls, so that operands have the layout that the micro-kernel reads.

The micro-kernel broadcasts single elements of the left operand, in any order, and loads whole rows of the right one. Therefore:
- A transposed left operand is read through its strides, and nothing is copied.
- A transposed right operand is transposed once before, instead of gathered for every tile. With few rows on the left it stays: dot
  products with its rows are faster than the copy.
- The weight of a `linear`, stored as (out, in), is left to layout selection, unless it is a transpose itself: the two cancel.

    t = ops.permute(a, [0, 2, 1])               ->      y = ops.matmul(a, b, transpose_a=True)
    y = ops.matmul(t, b)

    y = ops.matmul(q, k, transpose_b=True)      ->      t = ops.permute(k, [0, 2, 1])
                                                        y = ops.matmul(q, t)

    t = ops.permute(w, [1, 0])                  ->      y = ops.matmul(x, w)
    y = ops.linear(x, t)
"""

from __future__ import annotations

from collections.abc import Sequence

from ...sym.expr import Const
from ..node import Function, Node, Op, Value, is_state
from ..ops.linalg import PLAIN, MatmulAttrs
from ..ops.shape import PermuteAttrs
from ..rewrite import Rewriter

FEW_ROWS = 7  # with up to this number of rows, reading the right operand once per row is faster than transposing it once


def transposes_into_matmul(function: Function) -> Function:
    """Returns the function with transposes folded into matmuls; the same object if there are none."""
    return Rewriter(function, _rewrite).run()


def _rewrite(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """The matmul that replaces a matmul or linear with a transposed operand; None if there is nothing to fold."""
    if not isinstance(node, Op) or node.op not in ("matmul", "linear"):
        return None
    if node.op == "linear":
        weight = _source(r, node.args[1])
        plain = weight is not None and len(node.args) == 2 and len(node.args[0].tensor.shape) >= 2
        return r.op("matmul", (node.args[0], weight), None, node) if plain and weight is not None else None
    how, (a, b) = node.attrs or PLAIN, node.args
    left = _source(r, a)
    right = _source(r, b) if how.transpose_b else None
    if left is None and not how.transpose_b:
        return None
    if left is not None:
        a, how = left, MatmulAttrs(not how.transpose_a, how.transpose_b)
    if how.transpose_b:
        moved = right or (None if _has_few_rows(a, how) else _moved(r, b, node))
        if moved is None:
            return None
        b, how = moved, MatmulAttrs(how.transpose_a)
    return r.op("matmul", (a, b), None if how == PLAIN else how, node)


def _has_few_rows(a: Value, how: MatmulAttrs) -> bool:
    """True if the left operand is not transposed and has a constant number of at most FEW_ROWS rows."""
    rows = a.tensor.shape[-2]
    return not how.transpose_a and isinstance(rows, Const) and rows.value <= FEW_ROWS


def _moved(r: Rewriter, value: Value, node: Op) -> Value | None:
    """Returns a value with its last two dims transposed by a new node; None if deduction fails."""
    results = r.make("permute", (value,), PermuteAttrs(_swap(value)), node)
    return None if results is None else results[0]


def _swap(value: Value) -> tuple[int, ...]:
    """Returns the permutation of a value's axes that swaps the last two."""
    rank = len(value.tensor.shape)
    return (*range(rank - 2), rank - 1, rank - 2)


def _source(r: Rewriter, value: Value) -> Value | None:
    """Returns the operand if `value` is a transpose of the last two dims, else None."""
    node = r.op_of(value, "permute")
    if node is None or is_state(node.args[0]):
        return None
    return node.args[0] if node.attrs.axes == _swap(value) else None
