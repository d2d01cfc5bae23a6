"""Products of one input with several literal weights become one product with the weights side by side.

    q = ops.linear(x, wq, bq)           ->      w = ops.concat([wq, wk], axis=0); b = ops.concat([bq, bk], axis=0)
    k = ops.linear(x, wk, bk)                   y = ops.linear(x, w, b)
                                                q, k = slices of y along its last axis

The weights are put together once, when the program is loaded. A bias may also be added afterwards, as exporters write it. A slice of the
result would be a copy; so this is done only where every reader of the products moves their elements anyway (the heads of attention:
reshape, permute, slice) and reads through the slice.
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

MOVES = ("reshape", "permute", "slice")


@dataclass(frozen=True, slots=True)
class _Product:
    """A product with literals, and what adds a literal row to it, if that is another operator."""

    product: Op
    added: Op | None

    @property
    def last(self) -> Op:
        """The operator that gives the result."""
        return self.added or self.product

    @property
    def row(self) -> Value | None:
        """The literal that is added afterwards."""
        return None if self.added is None else next(a for a in self.added.args if a is not self.product.outs[0])


def combine_matmuls(function: Function) -> Function:
    """The function with parallel products of literal weights combined; the same object where there are none."""
    groups = [g for nodes in _bodies(function) for g in _groups(nodes, function) if len(g) > 1]
    return _Combining(function, groups).run() if groups else function


class _Combining(Rewriter):
    def __init__(self, function: Function, groups: Sequence[Sequence[_Product]]) -> None:
        super().__init__(function, lambda r, node: self.combine(node))
        self.group = {m.last.outs[0]: g for g in groups for m in g}
        self.literals = {n.outs[0]: n for n in walk_nodes(function.nodes) if isinstance(n, Literal)}
        self.done: dict[Value, Value] = {}

    def combine(self, node: Node) -> Sequence[Value] | None:
        group = self.group.get(node.outs[0]) if isinstance(node, Op) else None
        if group is None:
            return None
        if node.outs[0] not in self.done and not self.together(group):
            return None
        return [self.done[node.outs[0]]]

    def together(self, group: Sequence[_Product]) -> bool:
        """Emits the combined product in the place of its first member, and the slices."""
        first = group[0].product
        axes = (_column_axis(first), 0)  # of the weights, and of biases
        operands = [self.side_by_side([m.product.args[k] for m in group], axes[k - 1], first) for k in range(1, len(first.args))]
        known = [v for v in operands if v is not None]
        made = self.make(first.op, (first.args[0], *known), first.attrs, first) if len(known) == len(operands) else None
        rows = [m.row for m in group if m.row is not None]
        if made is not None and rows:
            made = self.make("add", (*made, self.one_row(rows)), None, group[0].last)
        if made is None:
            return False
        at: Expr = const(0)
        last = len(made[0].tensor.shape) - 1
        for m in group:
            out = m.last.outs[0]
            end = simplify(at + out.tensor.shape[-1])
            part = self.make("slice", made, SliceAttrs(last, at, end), m.last)
            if part is None or part[0].annotation != out.annotation:
                return False
            self.done[out] = part[0]
            at = end
        return True

    def one_row(self, rows: Sequence[Value]) -> Value:
        """A literal of some literal rows: it is small, and a concat of them would be computed in the product."""
        array = np.concatenate([self.literals[v].array for v in rows])
        out = Value(self.name(rows[0].name), Tensor(rows[0].tensor.dtype, (const(len(array)),)))
        self._append(replace(self.literals[rows[0]], outs=(out,), array=array))
        return out

    def side_by_side(self, values: Sequence[Value], axis: int, near: Op) -> Value | None:
        copies = []
        for v in values:  # literals may stand anywhere before their readers: here are some of their own
            out = Value(self.name(v.name), v.annotation)
            self._append(replace(self.literals[v], outs=(out,)))
            copies.append(out)
        found = self.make("concat", copies, AxisAttrs(axis), near)
        return None if found is None else found[0]


def _column_axis(product: Op) -> int:
    """Along which axis of its weight a product's columns are."""
    turned = product.op == "linear" or (isinstance(product.attrs, MatmulAttrs) and product.attrs.transpose_b)
    return 0 if turned else 1


def _bodies(function: Function) -> list[Sequence[Node]]:
    return [function.nodes, *(b.nodes for n in walk_nodes(function.nodes) for b in bodies(n))]


def _groups(nodes: Sequence[Node], function: Function) -> list[list[_Product]]:
    literals = {n.outs[0] for n in walk_nodes(function.nodes) if isinstance(n, Literal)}
    moved = _only_moved(function)
    adds = _additions(nodes, literals, count_uses(function))
    found: dict[Hashable, list[_Product]] = {}
    for n in nodes:
        if isinstance(n, Op) and n.op in ("linear", "matmul") and not n.requires:
            member = _Product(n, adds.get(n.outs[0]))
            weight = n.args[1].annotation
            if not isinstance(weight, Tensor) or len(weight.shape) != 2 or not all(isinstance(e, Const) for e in weight.shape):
                continue
            if all(a in literals for a in n.args[1:]) and member.last.outs[0] in moved:
                found.setdefault((n.op, n.args[0], len(n.args), n.attrs, weight.dtype, member.added is None), []).append(member)
    return list(found.values())


def _additions(nodes: Sequence[Node], literals: set[Value], uses: Counter[Value]) -> dict[Value, Op]:
    """The operators that add one literal row to a value, by that value, which nobody else reads."""
    found: dict[Value, Op] = {}
    for n in nodes:
        if not isinstance(n, Op) or n.op != "add" or n.requires:
            continue
        for value, row in (n.args, n.args[::-1]):
            rows = isinstance(row.annotation, Tensor) and row.tensor.shape == n.outs[0].tensor.shape[-1:]
            if row in literals and rows and uses[value] == 1 and value.annotation == n.outs[0].annotation:
                found[value] = n
    return found


def _only_moved(function: Function) -> set[Value]:
    """The values that are read, and only by operators that move elements."""
    read: set[Value] = set()
    other: set[Value] = set(function.results)
    for n in walk_nodes(function.nodes):
        target = read if isinstance(n, Op) and n.op in MOVES else other
        target.update(node_args(n))
        other.update(v for b in bodies(n) for v in b.results)
    return read - other
