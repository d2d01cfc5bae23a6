"""Helpers of the fusion steps: rewriting node lists of a function and its nested bodies, readers of values, and what may be fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...graph import node as g
from ..callee import func_of

Users = dict[g.Value, list[g.Node | None]]
Change = Callable[[Sequence[g.Node], Sequence[g.Value]], tuple[g.Node, ...]]  # (nodes, values read outside of them) -> new nodes


_BODIES: dict[type[g.Node], tuple[str, ...]] = {g.If: ("then", "orelse"), g.While: ("cond", "body")}


def map_node_lists(function: g.Function, change: Change) -> g.Function:
    """Returns the function with `change` applied to every list of nodes: those of branches and loop bodies first, its own last.

    A function that nothing changes is returned itself: then the step is shown as unchanged, and nothing is verified again.
    """

    def body(b: g.Body) -> g.Body:
        nodes = inside(b.nodes, b.results)
        return b if nodes is b.nodes else g.Body(b.params, nodes, b.results)

    def node(n: g.Node) -> g.Node:
        bodies = {name: getattr(n, name) for name in _BODIES.get(type(n), ())}
        changed = {name: body(b) for name, b in bodies.items()}
        return n if all(changed[name] is b for name, b in bodies.items()) else n.with_(**changed)

    def inside(nodes: tuple[g.Node, ...], results: Sequence[g.Value]) -> tuple[g.Node, ...]:
        new = change(tuple(map(node, nodes)), results)
        same = len(new) == len(nodes) and all(a is b for a, b in zip(new, nodes, strict=True))
        return nodes if same else new

    nodes = inside(function.nodes, function.results)
    return function if nodes is function.nodes else function.with_(nodes=nodes)


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
