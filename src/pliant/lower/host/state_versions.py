"""Tracks versions of state (such as a KV cache) through a graph function: which value updates which, and which parameter a result aliases.

State is updated in place, so all versions of one state share one memory. Calls, branches and loops pass it on.

    k1 = update(k0, x); return k1        # versions(update) is [(k0, k1)]: the result is the memory of the parameter k0
"""

from __future__ import annotations

from collections.abc import Sequence

from ...graph import node as g
from ...graph.node import is_state
from ...support.errors import UnsupportedError


def aliases_of(function: g.Function) -> list[int | None]:
    """Returns the index of the state parameter that each result aliases, or None for a result that is not state.

    Raises UnsupportedError for state that is no new version of a parameter.
    """
    first = _first_versions(function.nodes, function.results)
    for old, result in zip(first, function.results, strict=True):
        if is_state(result) and old not in function.params:
            raise UnsupportedError(f"state that `{function.name}` returns is no new version of one of its parameters", where=function.span)
    return [function.params.index(old) if is_state(r) else None for old, r in zip(first, function.results, strict=True)]


def versions(node: g.Node) -> list[tuple[g.Value, g.Value]]:
    """Returns the pairs (consumed state, its new version) of a node.

    Raises UnsupportedError if branches or rounds of a loop would make one state alias two memories.
    """
    if isinstance(node, g.CallLoop):
        inputs = [(p, a) for p, a in zip([p for p in node.callee.params if p.role != "out"], node.args, strict=True)]
        consumed = [a for p, a in inputs if p.role == "inout" and isinstance(a, g.Value)]
        updated = [out for p, out in zip([p for p in node.callee.params if p.role != "in"], node.outs, strict=True) if p.role == "inout"]
        return list(zip(consumed, updated, strict=True))
    if isinstance(node, g.If):
        then, orelse = (_first_versions(b.nodes, b.results) for b in (node.then, node.orelse))
        pairs = [(a, b, out) for a, b, out in zip(then, orelse, node.outs, strict=True) if is_state(out)]
        for a, b, out in pairs:
            if a is not b:
                raise UnsupportedError(
                    f"state `{out.name}` is `{a.name}` in one branch and `{b.name}` in the other",
                    where=node.span,
                    help="state is updated in place: let both branches update the same one",
                )
        return [(a, out) for a, _, out in pairs]
    if isinstance(node, g.While):
        for p, first in zip(node.body.params, _first_versions(node.body.nodes, node.body.results), strict=True):
            if is_state(p) and first is not p:
                raise UnsupportedError(
                    f"state `{p.name}` is `{first.name}` in the next round of a loop",
                    where=node.span,
                    help="state is updated in place: let each round update the same one",
                )
        return [(old, out) for old, out in zip(node.init, node.outs, strict=True) if is_state(out)]
    return [(node.value, node.outs[0])] if isinstance(node, g.MatchCast) and is_state(node.outs[0]) else []


def _first_versions(nodes: Sequence[g.Node], values: Sequence[g.Value]) -> list[g.Value]:
    """Returns the first version of each state in a sequence of nodes, the one that it had on entry, from a later version."""
    older = {new: old for n in nodes for old, new in versions(n)}
    first: list[g.Value] = []
    for v in values:
        while v in older:
            v = older[v]
        first.append(v)
    return first
