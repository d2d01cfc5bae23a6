"""Rematerialization: duplicates cheap elementwise producers, so that each reader of the value recomputes it.

    y = add(x, 1); a = exp(y); b = sum(y)      ->      y = add(x, 1); a = exp(y); y_1 = add(x, 1); b = sum(y_1)

Each copy has one reader, so that `fuse` merges it into that reader, and the value is never written to memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...graph import node as g
from ...loop.analysis.nest_kind import Kind, cheap_store, pattern_kind
from ..callee import func_of
from .node_lists import map_node_lists, may_join, users_of

CHEAP = (Kind.ELEMENTWISE, Kind.BROADCAST, Kind.INJECTIVE)
MOST_READERS = 4  # limits code growth: each reader contains the producer's arithmetic


def rematerialize(function: g.Function) -> g.Function:
    """Returns the function with cheap producers duplicated for their readers, also inside branches and loops."""
    return map_node_lists(function, _copied_to_readers)


def _copied_to_readers(nodes: Sequence[g.Node], results: Sequence[g.Value]) -> tuple[g.Node, ...]:
    """Returns the nodes with a copy of each cheap producer before each of its readers but the first, if all readers can recompute it.

    There are 2 to MOST_READERS readers, and all copies together are at most as many as the nodes.
    """
    kinds = {n: pattern_kind(func_of(n.callee)) for n in nodes if isinstance(n, g.CallLoop) and may_join(n)}
    anchors = {v for n in nodes if kinds.get(n) not in CHEAP for v in n.outs}  # type: ignore[call-overload]
    users = users_of(nodes, results)
    left = len(nodes)
    for n in reversed(nodes):
        if n not in kinds or not isinstance(n, g.CallLoop) or not _is_cheap(n, anchors):
            continue
        readers = users.get(n.outs[0], [])
        takers = [u for u in readers if kinds.get(u) in (*CHEAP, Kind.REDUCTION)]  # type: ignore[call-overload]
        if 1 < len(readers) == len(takers) <= MOST_READERS and left >= len(readers):
            left -= len(readers)
            nodes, copies = _with_copies(nodes, n, readers[1:])
            kinds |= {new: kinds[old] for new, old in copies.items()}
            users = users_of(nodes, results)
    return tuple(nodes)


def _with_copies(
    nodes: Sequence[g.Node], n: g.CallLoop, readers: Sequence[g.Node | None]
) -> tuple[tuple[g.Node, ...], dict[g.CallLoop, g.CallLoop]]:
    """Returns the nodes with a copy of `n` before each of the readers, and the node that each new node replaces."""
    result: list[g.Node] = []
    origin: dict[g.CallLoop, g.CallLoop] = {}
    for m in nodes:
        if m in readers and isinstance(m, g.CallLoop):
            out = replace(n.outs[0])
            copy = replace(n, outs=(out,))
            reader = replace(m, args=tuple(out if a is n.outs[0] else a for a in m.args))
            origin |= {copy: n, reader: m}
            result += [copy, reader]
        else:
            result.append(m)
    return tuple(result), origin


def _is_cheap(n: g.CallLoop, anchors: set[g.Value]) -> bool:
    """True if a node is one elementwise store about as cheap as a load, and could not be an epilogue of an anchor instead."""
    return len(n.outs) == 1 and cheap_store(func_of(n.callee)) and anchors.isdisjoint(a for a in n.args)
