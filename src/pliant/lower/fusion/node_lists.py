"""Helpers of the fusion steps: rewriting node lists of a function and its nested bodies, readers of values, and what may be fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...graph import node as g
from ..callee import func_of

Users = dict[g.Value, list[g.Node | None]]
Change = Callable[[Sequence[g.Node], Sequence[g.Value]], tuple[g.Node, ...]]  # (nodes, values read outside of them) -> new nodes


def map_node_lists(function: g.Function, change: Change) -> g.Function:
    """Returns the function with `change` applied to every list of nodes: those of branches and loop bodies first, its own last."""

    def body(b: g.Body) -> g.Body:
        return g.Body(b.params, inside(b.nodes, b.results), b.results)

    def node(n: g.Node) -> g.Node:
        match n:
            case g.If():
                return n.with_(then=body(n.then), orelse=body(n.orelse))
            case g.While():
                return n.with_(cond=body(n.cond), body=body(n.body))
        return n

    def inside(nodes: Sequence[g.Node], results: Sequence[g.Value]) -> tuple[g.Node, ...]:
        return change(tuple(map(node, nodes)), results)

    nodes = inside(function.nodes, function.results)
    same = len(nodes) == len(function.nodes) and all(a is b for a, b in zip(nodes, function.nodes, strict=True))
    return function if same else function.with_(nodes=nodes)


def users_of(nodes: Sequence[g.Node], results: Sequence[g.Value]) -> Users:
    """Returns the readers of each value, without duplicates; None stands for the end of the list, which reads the results."""
    readers: dict[g.Value, dict[g.Node | None, None]] = {}
    for n in nodes:
        for v in g.all_uses(n):
            readers.setdefault(v, {})[n] = None
    for v in results:
        readers.setdefault(v, {})[None] = None
    return {v: list(users) for v, users in readers.items()}


def may_join(n: g.CallLoop) -> bool:
    """True if a call may be fused: not if it touches state (updates must stay in order), nor if it has a schedule of its own."""
    values = [*n.outs, *(a for a in n.args if isinstance(a, g.Value))]
    return not any(map(g.is_state, values)) and not func_of(n.callee).attrs.scheduled
