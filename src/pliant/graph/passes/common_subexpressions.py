"""Computes the same thing once: a pure node whose like stands before it, in its body or around it, gives way to that one.

Two nodes are alike when kind, operator or loop program, attributes, dims, annotations and arguments are the same. What a node checks at
run time its like must have checked. State is linear, and a match_cast that defines dims defines them: nodes that consume state or define
dims stay, and so do calls whose effects nobody knows (`call_host`, `call_library`). Branches keep what is theirs: what one of them
computes is not there for the other, nor after them.

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

SMALL = 1 << 16  # bytes: larger literals are alike only where they are one array


def common_subexpressions(function: Function) -> Function:
    """The function in which no pure node stands twice; the same object if none did."""
    found = _Subexpressions(function)
    changed = found.run()
    return map_nodes(changed, found.with_origins) if found.origins else changed


class _Subexpressions(Rewriter):
    def __init__(self, function: Function) -> None:
        super().__init__(function, lambda r, node: self.like(node))
        self.known: dict[Hashable, Node] = {}
        self.origins: dict[Value, tuple[str, ...]] = {}  # of nodes that stand for others too, by their first result

    def like(self, node: Node) -> Sequence[Value] | None:
        """The results of a node before this one that is alike."""
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
        """The node, as coming from all that it stands for."""
        origin = self.origins.get(node.outs[0], node.origin) if node.outs else node.origin
        return node if origin == node.origin else replace(node, origin=origin)

    def _body(self, body: Body) -> Body:
        outer = dict(self.known)
        found = super()._body(body)
        self.known = outer
        return found


def _key(node: Node) -> Hashable | None:
    """What nodes that are alike have in common; None for a node that stays."""
    annotations = tuple(o.annotation for o in node.outs)
    if any(is_state(o) for o in node.outs):
        return None
    match node:
        case Const():
            return ("const", array_form(node.array) if node.array.nbytes <= SMALL else id(node.array))
        case Op():
            return ("op", node.op, node.args, node.attrs, repr(node.attrs), annotations)  # as text too: 0.0 is not -0.0
        case CallLoop():
            return ("loop", node.callee.program, node.args, node.dims, annotations)
        case MatchCast() if not node.defines:
            return ("match_cast", node.value, annotations)
    return None
