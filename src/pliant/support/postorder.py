"""Depth-first postorder of call graphs: callees before their callers.

postorder(main, lambda f: f.callees)     # [..., main]
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

N = TypeVar("N", bound=Hashable)


def postorder(root: N, callees: Callable[[N], Iterable[N]]) -> list[N]:
    """Returns all nodes that are reachable from `root`, each once, after its callees; `root` is the last. The graph has no cycles."""
    ordered: dict[N, None] = {}

    def visit(node: N) -> None:
        for callee in callees(node):
            if callee not in ordered:
                visit(callee)
        ordered[node] = None

    visit(root)
    return list(ordered)
