"""Transposes around matrix products: operands lie the way the loops read them.

A tile of a product reads single elements of its left operand, in any order, and whole rows of its right operand. So a permute of the
last two dims of the left operand becomes a way of reading it, and nothing is moved; a right operand that is given transposed is
moved once, before, rather than gathered element by element for every tile, unless there are a few rows only, which are multiplied with
its rows as they lie; and the weight of a `linear`, which lies as (out, in), is left to the choice of layouts, unless it is a permute
already, which then is not done at all.

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

FEW_ROWS = 7  # up to this many, reading the right operand for each of them takes less time than moving it once


def transposes_into_matmul(function: Function) -> Function:
    """The function whose matmuls read a transposed left operand as it lies; the same object where there is nothing to do."""
    return Rewriter(function, _rewrite).run()


def _rewrite(r: Rewriter, node: Node) -> Sequence[Value] | None:
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
    rows = a.tensor.shape[-2]
    return not how.transpose_a and isinstance(rows, Const) and rows.value <= FEW_ROWS


def _moved(r: Rewriter, value: Value, node: Op) -> Value | None:
    found = r.make("permute", (value,), PermuteAttrs(_swap(value)), node)
    return None if found is None else found[0]


def _swap(value: Value) -> tuple[int, ...]:
    rank = len(value.tensor.shape)
    return (*range(rank - 2), rank - 1, rank - 2)


def _source(r: Rewriter, value: Value) -> Value | None:
    """What `value` is the transpose of, in its last two dims."""
    node = r.op_of(value, "permute")
    if node is None or is_state(node.args[0]):
        return None
    return node.args[0] if node.attrs.axes == _swap(value) else None
