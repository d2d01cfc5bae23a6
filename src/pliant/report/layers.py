"""The user's layers as a tree, from the paths that nodes come from: `encoder.layer.3.attention` under `encoder`, under `layer`, …

tree_of([("a.b", 0), ("a.c", 1), ("", 2)])        # own [2]; a: {b: [0], c: [1]}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from ..support.record import dataclass


@dataclass(slots=True)
class Tree:
    """A layer: what is its own, and the layers inside of it, in order of first use."""

    own: list[int] = field(default_factory=list)
    children: dict[str, Tree] = field(default_factory=dict)

    def every(self) -> list[int]:
        """What is its own and what is of the layers inside."""
        return [*self.own, *(i for child in self.children.values() for i in child.every())]


def tree_of(items: Sequence[tuple[str, int]]) -> Tree:
    """The tree of paths and what lies there."""
    root = Tree()
    for path, item in items:
        at = root
        for part in path.split(".") if path else ():
            at = at.children.setdefault(part, Tree())
        at.own.append(item)
    return root
