"""Products of one input with several literal weights become one product with the weights side by side.

    q = ops.linear(x, wq, bq)           ->      w = ops.concat([wq, wk], axis=0); b = ops.concat([bq, bk], axis=0)
    k = ops.linear(x, wk, bk)                   y = ops.linear(x, w, b)
                                                q, k = slices of y along its last axis

The weights are put together once, when the program is loaded. A slice of the result would be a copy; so this is done only where every
reader of the products moves their elements anyway (the heads of attention: reshape, permute, slice) and reads through the slice.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from ...sym.expr import Const, Expr, const
from ...sym.simplify import simplify
from ..node import Const as Literal
from ..node import Function, Node, Op, Tensor, Value, bodies, node_args, walk_nodes
from ..ops.reduce import AxisAttrs
from ..ops.slicing import SliceAttrs
from ..rewrite import Rewriter

MOVES = ("reshape", "permute", "slice")


def combine_matmuls(function: Function) -> Function:
    """The function with parallel products of literal weights combined; the same object where there are none."""
    groups = [g for nodes in _bodies(function) for g in _groups(nodes, function) if len(g) > 1]
    return _Combining(function, groups).run() if groups else function


class _Combining(Rewriter):
    def __init__(self, function: Function, groups: Sequence[Sequence[Op]]) -> None:
        super().__init__(function, lambda r, node: self.combine(node))
        self.group = {m.outs[0]: g for g in groups for m in g}
        self.literals = {n.outs[0]: n for n in walk_nodes(function.nodes) if isinstance(n, Literal)}
        self.done: dict[Value, Value] = {}

    def combine(self, node: Node) -> Sequence[Value] | None:
        group = self.group.get(node.outs[0]) if isinstance(node, Op) else None
        if group is None or not isinstance(node, Op):
            return None
        if node.outs[0] not in self.done and not self.together(node, group):
            return None
        return [self.done[node.outs[0]]]

    def together(self, first: Op, group: Sequence[Op]) -> bool:
        """Emits the combined product in the place of its first member, and the slices."""
        axis = 0 if first.op == "linear" else 1
        operands = [self.side_by_side([m.args[1] for m in group], axis, first)]
        if len(first.args) == 3:
            operands.append(self.side_by_side([m.args[2] for m in group], 0, first))
        made = self.make(first.op, (first.args[0], *operands), first.attrs, first)
        if made is None:
            return False
        at: Expr = const(0)
        last = len(made[0].tensor.shape) - 1
        for m in group:
            end = simplify(at + m.outs[0].tensor.shape[-1])
            part = self.make("slice", made, SliceAttrs(last, at, end), m)
            if part is None or part[0].annotation != m.outs[0].annotation:
                return False
            self.done[m.outs[0]] = part[0]
            at = end
        return True

    def side_by_side(self, values: Sequence[Value], axis: int, near: Op) -> Value:
        copies = []
        for v in values:  # literals may stand anywhere before their readers: here are some of their own
            out = Value(self.name(v.name), v.annotation)
            self._append(replace(self.literals[v], outs=(out,)))
            copies.append(out)
        found = self.make("concat", copies, AxisAttrs(axis), near)
        assert found is not None
        return found[0]


def _bodies(function: Function) -> list[Sequence[Node]]:
    return [function.nodes, *(b.nodes for n in walk_nodes(function.nodes) for b in bodies(n))]


def _groups(nodes: Sequence[Node], function: Function) -> list[list[Op]]:
    literals = {n.outs[0] for n in walk_nodes(function.nodes) if isinstance(n, Literal)}
    moved = _only_moved(function)
    found: dict[Hashable, list[Op]] = {}
    for n in nodes:
        if isinstance(n, Op) and n.op in ("linear", "matmul") and not n.requires and n.outs[0] in moved:
            weight = n.args[1].annotation
            plain = isinstance(weight, Tensor) and len(weight.shape) == 2 and all(isinstance(e, Const) for e in weight.shape)
            if plain and all(a in literals for a in n.args[1:]):
                found.setdefault((n.op, n.args[0], len(n.args), n.attrs), []).append(n)
    return list(found.values())


def _only_moved(function: Function) -> set[Value]:
    """The values that are read, and only by operators that move elements."""
    read: set[Value] = set()
    other: set[Value] = set(function.results)
    for n in walk_nodes(function.nodes):
        target = read if isinstance(n, Op) and n.op in MOVES else other
        target.update(node_args(n))
        other.update(v for b in bodies(n) for v in b.results)
    return read - other
