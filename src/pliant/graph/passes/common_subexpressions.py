"""Common subexpression elimination: a pure node is replaced by an equal one before it in the same body or an enclosing one.

Two nodes are equal if kind, operator or loop program, attributes, dims, annotations and arguments are equal. The earlier node must make
all run-time checks of the later one. Nodes that consume state or define dims stay, and so do calls with unknown effects (`call_host`,
`call_library`). Nodes of a branch replace nothing in the other branch or after the `If`, because they may not have run.

    a = ops.exp(x)          ->      a = ops.exp(x)
    b = ops.exp(x)                  c = ops.add(a, a)
    c = ops.add(a, b)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from ..node import Body, CallLoop, Const, Function, MatchCast, Node, Op, Value, is_state
from ..rewrite import Rewriter, map_nodes
from ..structural import array_form

SMALL = 1 << 16  # bytes: larger literals are compared by identity, because hashing weights would dominate the compile time


def common_subexpressions(function: Function) -> Function:
    """Returns the function with each pure node replaced by an equal earlier one (CSE); the same object if there are none."""
    rewriter = _Subexpressions(function)
    changed = rewriter.run()
    return map_nodes(changed, rewriter.with_origins) if rewriter.origins else changed


class _Subexpressions(Rewriter):
    """Replaces nodes by equal earlier ones; collects the origins of the replaced nodes."""

    def __init__(self, function: Function) -> None:
        super().__init__(function, lambda r, node: self.like(node))
        self.known: dict[Hashable, Node] = {}
        self.origins: dict[Value, tuple[str, ...]] = {}  # first result of a node that replaces others -> the origins of all of them

    def like(self, node: Node) -> Sequence[Value] | None:
        """Returns the results of an equal earlier node that makes all of the node's checks, or None."""
        key = _key(node)
        if key is None:
            return None
        other = self.known.setdefault(key, node)
        checked = {r.cond for r in other.requires}
        if other is node or any(r.cond not in checked for r in node.requires):
            return None
        first = other.outs[0]
        self.origins[first] = tuple(dict.fromkeys((*self.origins.get(first, other.origin), *node.origin)))
        return other.outs

    def with_origins(self, node: Node) -> Node:
        """Returns the node with the origins (user's layers) of all nodes that it replaces added."""
        origin = self.origins.get(node.outs[0], node.origin) if node.outs else node.origin
        return node if origin == node.origin else replace(node, origin=origin)

    def _body(self, body: Body) -> Body:
        outer = dict(self.known)
        rewritten = super()._body(body)
        self.known = outer
        return rewritten


def _key(node: Node) -> Hashable | None:
    """Returns the key that equal nodes share; None for a node that must stay, because it has state or effects."""
    annotations = tuple(o.annotation for o in node.outs)
    if any(is_state(o) for o in node.outs):
        return None
    match node:
        case Const():
            return ("const", array_form(node.array) if node.array.nbytes <= SMALL else id(node.array))
        case Op():
            return ("op", node.op, node.args, node.attrs, repr(node.attrs), annotations)  # repr, because 0.0 == -0.0
        case CallLoop():
            return ("loop", node.callee.program, node.args, node.dims, annotations)
        case MatchCast() if not node.defines:
            return ("match_cast", node.value, annotations)
    return None
