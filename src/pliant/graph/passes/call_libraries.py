"""Replaces subgraphs that match a registered pattern by calls of a library (`graph/patterns.py`).

    m = ops.matmul(x, w)            ->      y = ops.call_library("libfast.so:gelu_matmul", [x, w], out=Tensor[f32, n, m])
    y = ops.gelu(m)

The call takes the place of the last matched node. Intermediate values must have no other reader, and the results must not be read before
that place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..node import Body, Function, If, Node, Op, Value, While, bodies, node_args, walk_nodes
from ..patterns import REGISTERED, Match, Pattern, call_of, find


def call_libraries(function: Function, patterns: Sequence[Pattern] | None = None) -> Function:
    """Returns the function with matches of `patterns` (default: the registered ones) replaced; the same object if there are none."""
    wanted = REGISTERED if patterns is None else patterns
    if not wanted:
        return function
    nodes = _nodes(function.nodes, function.results, wanted)
    return function if nodes == function.nodes else function.with_(nodes=nodes)


def _nodes(nodes: tuple[Node, ...], results: Sequence[Value], patterns: Sequence[Pattern]) -> tuple[Node, ...]:
    """Returns the nodes with matched patterns replaced by library calls, also in their bodies; `results` are the values used after them."""
    nodes = tuple(_inside(n, patterns) for n in nodes)
    for pattern in patterns:
        for root in reversed(nodes):
            if isinstance(root, Op) and root in nodes:
                nodes = _replaced(nodes, results, pattern, root)
    return nodes


def _replaced(nodes: tuple[Node, ...], results: Sequence[Value], pattern: Pattern, root: Op) -> tuple[Node, ...]:
    """Returns the nodes with the match of `pattern` whose first result `root` computes replaced by one call.

    They are returned as they are if there is no match, others read its inner values, or the pattern's `when` refuses it.
    """
    match = find(pattern.function, root, {v: n for n in nodes for v in n.outs})
    if match is None or not _is_closed(nodes, results, pattern, match):
        return nodes
    dims = {v.name: e for v, e in match.dims.items()}
    if pattern.when is not None and not pattern.when(dims):
        return nodes
    members = [n for n in nodes if n in match.nodes]
    call = call_of(pattern, match, members)
    calls = (*match.turned.values(), call)
    return tuple(new for n in nodes for new in (calls if n is members[-1] else () if n in match.nodes else (n,)))


def _is_closed(nodes: Sequence[Node], results: Sequence[Value], pattern: Pattern, match: Match) -> bool:
    """True if no other node reads an intermediate value of the match, or one of its results before its last node."""
    last = max(i for i, n in enumerate(nodes) if n in match.nodes)
    outputs = {match.values[r] for r in pattern.function.results}
    computed = {v for n in match.nodes for v in n.outs}
    for i, n in enumerate(nodes):
        read = {
            *node_args(n),
            *(v for m in _within(n) for v in node_args(m)),
            *(v for m in (n, *_within(n)) for b in bodies(m) for v in b.results),
        }
        if n not in match.nodes and read & computed and (read & (computed - outputs) or i < last):
            return False
    return not (set(results) & (computed - outputs))


def _within(n: Node) -> list[Node]:
    """Returns the nodes inside the bodies of an `If` or `While`; none for other nodes."""
    return [m for b in bodies(n) for m in walk_nodes(b.nodes)]


def _inside(n: Node, patterns: Sequence[Pattern]) -> Node:
    """Returns the node with matched patterns replaced by library calls inside its bodies."""
    match n:
        case If():
            then, orelse = _body(n.then, patterns), _body(n.orelse, patterns)
            return n if then is n.then and orelse is n.orelse else replace(n, then=then, orelse=orelse)
        case While():
            cond, body = _body(n.cond, patterns), _body(n.body, patterns)
            return n if cond is n.cond and body is n.body else replace(n, cond=cond, body=body)
    return n


def _body(b: Body, patterns: Sequence[Pattern]) -> Body:
    nodes = _nodes(b.nodes, b.results, patterns)
    return b if nodes == b.nodes else Body(b.params, nodes, b.results)
