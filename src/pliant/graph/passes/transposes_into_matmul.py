"""A permute of the last two dims that feeds a matmul becomes a way of reading the operand: nothing is moved.

    t = ops.permute(k, [0, 2, 1])       ->      s = ops.matmul(q, k, transpose_b=True)
    s = ops.matmul(q, t)

A permute that moves other dims as well stays. `linear` reads its weight as (out, in); a permute there makes it a matmul.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..node import Function, Node, Op, Value, is_state
from ..ops.linalg import PLAIN, MatmulAttrs
from ..rewrite import Rewriter


def transposes_into_matmul(function: Function) -> Function:
    """The function whose matmuls read transposed operands as they lie; the same object where there are none."""
    return Rewriter(function, _absorb).run()


def _absorb(r: Rewriter, node: Node) -> Sequence[Value] | None:
    if not isinstance(node, Op) or node.op not in ("matmul", "linear"):
        return None
    if node.op == "linear":
        weight = _transposed(r, node.args[1])
        if weight is None or len(node.args) != 2 or len(node.args[0].tensor.shape) < 2:
            return None
        return r.op("matmul", (node.args[0], weight), None, node)
    sources = [_transposed(r, a) for a in node.args]
    if sources == [None, None]:
        return None
    how = node.attrs or PLAIN
    a, b = sources
    attrs = MatmulAttrs(how.transpose_a is (a is None), how.transpose_b is (b is None))
    args = [old if new is None else new for old, new in zip(node.args, sources, strict=True)]
    return r.op("matmul", args, None if attrs == PLAIN else attrs, node)


def _transposed(r: Rewriter, value: Value) -> Value | None:
    """What `value` is the transpose of, in its last two dims."""
    node = r.op_of(value, "permute")
    if node is None or is_state(node.args[0]):
        return None
    rank = len(node.attrs.axes)
    return node.args[0] if node.attrs.axes == (*range(rank - 2), rank - 1, rank - 2) else None
