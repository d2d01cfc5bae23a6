"""Dead code elimination: removes nodes without live results, and unused results of branches.

A node is live if one of its outs is used, if it defines a dim that a live node mentions (a dim in an annotation is a dependency too),
or if it is a match_cast with a run-time check: an assertion of the user stays.

    a = ops.exp(x)          ->
    b = ops.silu(x)             b = ops.silu(x)
    return b                    return b
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...sym.expr import Expr, Var, free_vars
from ..annotation import annotation_vars, defined_vars
from ..node import Body, CallFunction, CallLoop, Function, If, MatchCast, Node, Op, Value, While, annotation_exprs, bodies, node_args
from ..op_table import node_defines
from ..operators import attr_exprs


def dead_code(function: Function) -> Function:
    """Returns the function without nodes whose results nothing uses; the same object if there are none.

    A match_cast with checks stays, and so does a node that defines a dim that is used.
    """
    live = _Live()
    live.use(function.results)
    nodes = live.nodes(function.nodes)
    return function if nodes == function.nodes else function.with_(nodes=nodes)


class _Live:
    """Liveness analysis: the values and dims that are live at a point of the backward walk."""

    def __init__(self) -> None:
        self.values: set[Value] = set()
        self.dims: set[Var] = set()

    def use(self, values: Iterable[Value]) -> None:
        """Marks values and the dims of their annotations as live."""
        for v in values:
            self.values.add(v)
            self.dims.update(annotation_vars(v.annotation))

    def mention(self, expressions: Iterable[Expr]) -> None:
        """Marks the dims of expressions as live."""
        for e in expressions:
            self.dims.update(free_vars(e))

    def nodes(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """Returns the live nodes of a list in order; walks it from last to first."""
        live_nodes: list[Node] = []
        for node in reversed(nodes):
            if self.needed(node):
                live_nodes.append(self.keep(node))
        return tuple(reversed(live_nodes))

    def needed(self, node: Node) -> bool:
        """True if a node is live: one of its results or of the dims it defines is used, or it is a match_cast with checks."""
        if any(o in self.values for o in node.outs) or (isinstance(node, MatchCast) and node.requires):
            return True
        defines = node_defines(node)
        if isinstance(node, CallFunction):  # it defines the dims of its results that do not occur in its arguments
            defines = defined_vars(o.annotation for o in node.outs)
            bound = {v for a in node.args for v in annotation_vars(a.annotation)}
            defines = tuple(v for v in defines if v not in bound)
        return any(v in self.dims for v in defines)

    def keep(self, node: Node) -> Node:
        """Marks the operands and dims of a live node as live; returns the node, with dead code removed from its bodies."""
        if isinstance(node, If):
            node = self.branches(node)
        elif isinstance(node, While):
            changed = {"cond": self.body(node.cond), "body": self.body(node.body)}
            if changed["cond"] is not node.cond or changed["body"] is not node.body:
                node = replace(node, **changed)  # type: ignore[arg-type]
        self.use(node_args(node))
        self.use(node.outs)
        for r in node.requires:
            self.mention([r.cond, *r.values])
        if isinstance(node, Op):
            self.mention(attr_exprs(node.attrs))
        if isinstance(node, CallLoop):
            self.mention([*node.dims, *(a for a in node.args if isinstance(a, Expr))])
        for body in bodies(node):
            for p in body.params:
                self.mention(annotation_exprs(p.annotation))
        return node

    def branches(self, node: If) -> If:
        """An `If` without its unused results and without dead code in its branches."""
        used = [k for k, o in enumerate(node.outs) if o in self.values]
        if len(used) < len(node.outs):
            then, orelse = (Body(b.params, b.nodes, tuple(b.results[k] for k in used)) for b in (node.then, node.orelse))
            node = replace(node, outs=tuple(node.outs[k] for k in used), then=then, orelse=orelse)
        then, orelse = self.body(node.then), self.body(node.orelse)
        return node if then is node.then and orelse is node.orelse else replace(node, then=then, orelse=orelse)

    def body(self, body: Body) -> Body:
        """Returns a body without dead nodes; all its results are live."""
        self.use(body.results)
        nodes = self.nodes(body.nodes)
        return body if nodes == body.nodes else Body(body.params, nodes, body.results)
