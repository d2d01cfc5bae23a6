"""Combines matmuls of one input with several literal weights (e.g. the Q, K, V projections) into one with concatenated weights.

    q = ops.linear(x, wq, bq)           ->      w = ops.concat([wq, wk], axis=0); b = ops.concat([bq, bk], axis=0)
    k = ops.linear(x, wk, bk)                   y = ops.linear(x, w, b)
                                                q, k = slices of y along its last axis

The weights are concatenated once, when the program is loaded. The bias may also be a separate add, as exporters write it. A slice of the
result could cost a copy; so this is done only if every reader only moves elements (the heads of attention: reshape, permute, slice)
and so can read through the slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from ...support.record import dataclass
from ...sym.expr import Const, Expr, const
from ...sym.simplify import simplify
from ..node import Const as Literal
from ..node import Function, Node, Op, Tensor, Value, bodies, node_args, walk_nodes
from ..ops.linalg import MatmulAttrs
from ..ops.reduce import AxisAttrs
from ..ops.slicing import SliceAttrs
from ..rewrite import Rewriter
from .fold_batch_norm import count_uses

MOVES = ("reshape", "permute", "slice")  # readers that only move elements, so that a slice before them costs no copy


@dataclass(frozen=True, slots=True)
class _Product:
    """A matmul with a literal weight, and the separate operator that adds a literal bias, if there is one."""

    product: Op
    added: Op | None

    @property
    def last(self) -> Op:
        """The operator that computes the result: the add, or the matmul without one."""
        return self.added or self.product

    @property
    def row(self) -> Value | None:
        """The literal bias of the separate add, or None."""
        return None if self.added is None else next(a for a in self.added.args if a is not self.product.outs[0])


def combine_matmuls(function: Function) -> Function:
    """Returns the function with matmuls of the same input with literal weights combined; the same object if there are none."""
    groups = [g for nodes in _bodies(function) for g in _groups(nodes, function) if len(g) > 1]
    return _Combining(function, groups).run() if groups else function


class _Combining(Rewriter):
    """Rewrites groups of matmuls of the same operand: emits one matmul per group, and replaces the members by slices of it."""

    def __init__(self, function: Function, groups: Sequence[Sequence[_Product]]) -> None:
        super().__init__(function, lambda r, node: self.combine(node))
        self.group = {m.last.outs[0]: g for g in groups for m in g}
        self.literals = {n.outs[0]: n for n in walk_nodes(function.nodes) if isinstance(n, Literal)}
        self.done: dict[Value, Value] = {}

    def combine(self, node: Node) -> Sequence[Value] | None:
        """Returns the slice that replaces a matmul of a group; None for other nodes."""
        group = self.group.get(node.outs[0]) if isinstance(node, Op) else None
        if group is None:
            return None
        if node.outs[0] not in self.done and not self.together(group):
            return None
        return [self.done[node.outs[0]]]

    def together(self, group: Sequence[_Product]) -> bool:
        """Emits the combined matmul at the place of the group's first member, and the slices, which `done` records.

        False if deduction fails.
        """
        first = group[0].product
        axes = (_column_axis(first), 0)  # the axis of output columns in weights and in biases
        operands = [self.side_by_side([m.product.args[k] for m in group], axes[k - 1], first) for k in range(1, len(first.args))]
        known = [v for v in operands if v is not None]
        combined = self.make(first.op, (first.args[0], *known), first.attrs, first) if len(known) == len(operands) else None
        rows = [m.row for m in group if m.row is not None]
        if combined is not None and rows:
            combined = self.make("add", (*combined, self.one_row(rows)), None, group[0].last)
        if combined is None:
            return False
        at: Expr = const(0)
        last = len(combined[0].tensor.shape) - 1
        for m in group:
            out = m.last.outs[0]
            end = simplify(at + out.tensor.shape[-1])
            part = self.make("slice", combined, SliceAttrs(last, at, end), m.last)
            if part is None or part[0].annotation != out.annotation:
                return False
            self.done[out] = part[0]
            at = end
        return True

    def one_row(self, rows: Sequence[Value]) -> Value:
        """Emits one literal with the concatenated biases, and returns its value.

        A concat operator would be fused into the matmul and run every time.
        """
        array = np.concatenate([self.literals[v].array for v in rows])
        out = Value(self.name(rows[0].name), Tensor(rows[0].tensor.dtype, (const(len(array)),)))
        self._append(replace(self.literals[rows[0]], outs=(out,), array=array))
        return out

    def side_by_side(self, values: Sequence[Value], axis: int, near: Op) -> Value | None:
        """Emits the concatenation of literals along `axis`, at the place of `near`, and returns its value; None if deduction fails."""
        copies = []
        for v in values:  # copies, because a literal of a later member may be defined only after this place
            out = Value(self.name(v.name), v.annotation)
            self._append(replace(self.literals[v], outs=(out,)))
            copies.append(out)
        joined = self.make("concat", copies, AxisAttrs(axis), near)
        return None if joined is None else joined[0]


def _column_axis(product: Op) -> int:
    """Returns the axis of a matmul's weight that indexes output columns."""
    turned = product.op == "linear" or (isinstance(product.attrs, MatmulAttrs) and product.attrs.transpose_b)
    return 0 if turned else 1


def _bodies(function: Function) -> list[Sequence[Node]]:
    """Returns the node lists of the function and of all bodies in it."""
    return [function.nodes, *(b.nodes for n in walk_nodes(function.nodes) for b in bodies(n))]


def _groups(nodes: Sequence[Node], function: Function) -> list[list[_Product]]:
    """Returns groups of matmuls with the same input, operator, attributes and dtype, 2-d literal weights, and results that are only moved.

    A group may have a single member.
    """
    literals = {n.outs[0] for n in walk_nodes(function.nodes) if isinstance(n, Literal)}
    moved = _only_moved(function)
    adds = _additions(nodes, literals, count_uses(function))
    groups: dict[Hashable, list[_Product]] = {}
    for n in nodes:
        if isinstance(n, Op) and n.op in ("linear", "matmul") and not n.requires:
            member = _Product(n, adds.get(n.outs[0]))
            weight = n.args[1].annotation
            if not isinstance(weight, Tensor) or len(weight.shape) != 2 or not all(isinstance(e, Const) for e in weight.shape):
                continue
            if all(a in literals for a in n.args[1:]) and member.last.outs[0] in moved:
                groups.setdefault((n.op, n.args[0], len(n.args), n.attrs, weight.dtype, member.added is None), []).append(member)
    return list(groups.values())


def _additions(nodes: Sequence[Node], literals: set[Value], uses: Counter[Value]) -> dict[Value, Op]:
    """Returns the values whose only reader adds a literal row to them, each with that add node."""
    additions: dict[Value, Op] = {}
    for n in nodes:
        if not isinstance(n, Op) or n.op != "add" or n.requires:
            continue
        for value, row in (n.args, n.args[::-1]):
            rows = isinstance(row.annotation, Tensor) and row.tensor.shape == n.outs[0].tensor.shape[-1:]
            if row in literals and rows and uses[value] == 1 and value.annotation == n.outs[0].annotation:
                additions[value] = n
    return additions


def _only_moved(function: Function) -> set[Value]:
    """The values that have readers, all of them operators that only move elements."""
    read: set[Value] = set()
    other: set[Value] = set(function.results)
    for n in walk_nodes(function.nodes):
        target = read if isinstance(n, Op) and n.op in MOVES else other
        target.update(node_args(n))
        other.update(v for b in bodies(n) for v in b.results)
    return read - other
