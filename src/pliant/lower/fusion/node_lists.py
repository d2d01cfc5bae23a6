"""What the steps of fusion share: lists of nodes (of a function and of the bodies inside it), readers of values, who may join whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...graph import node as g
from ..callee import func_of

Users = dict[g.Value, list[g.Node | None]]
Change = Callable[[Sequence[g.Node], Sequence[g.Value]], tuple[g.Node, ...]]  # of a list of nodes whose results are read outside of it


def map_node_lists(function: g.Function, change: Change) -> g.Function:
    """The function with every list of nodes changed: those of branches and loop bodies first, the function's own last."""

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
    """The readers of each value, each once. None stands for the end of the list, which reads the results."""
    readers: dict[g.Value, dict[g.Node | None, None]] = {}
    for n in nodes:
        for v in g.all_uses(n):
            readers.setdefault(v, {})[n] = None
    for v in results:
        readers.setdefault(v, {})[None] = None
    return {v: list(users) for v, users in readers.items()}


def may_join(n: g.CallLoop) -> bool:
    """State keeps its place in the order, and a program that was scheduled by hand is compiled as it stands."""
    values = [*n.outs, *(a for a in n.args if isinstance(a, g.Value))]
    return not any(map(g.is_state, values)) and not func_of(n.callee).attrs.scheduled
