"""Builds the tree of the user's layers from dotted paths: `encoder.layer.3.attention` is below `encoder`, `layer` and `3`.

tree_of([("a.b", 0), ("a.c", 1), ("", 2)])        # own [2]; a: {b: [0], c: [1]}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from ..support.record import dataclass


@dataclass(slots=True)
class Tree:
    """A layer of the model in the report: the items directly in it, and its sublayers in order of first use."""

    own: list[int] = field(default_factory=list)
    children: dict[str, Tree] = field(default_factory=dict)

    def every(self) -> list[int]:
        """All items of the layer, including those of its sublayers."""
        return [*self.own, *(i for child in self.children.values() for i in child.every())]


def tree_of(items: Sequence[tuple[str, int]]) -> Tree:
    """Returns the tree of layers from pairs of a dotted path and an item."""
    root = Tree()
    for path, item in items:
        at = root
        for part in path.split(".") if path else ():
            at = at.children.setdefault(part, Tree())
        at.own.append(item)
    return root
