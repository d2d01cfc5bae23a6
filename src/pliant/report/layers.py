"""Builds the tree of the user's layers from paths: `encoder.layer.3.attention` is below `encoder`, `layer` and `3`.

tree_of([("a.b", 0), ("a.c", 1), ("", 2)])        # own [2]; a: {b: [0], c: [1]}

The parts of a path are between dots or slashes: PyTorch's exporter writes `/encoder/layer.3/attention/MatMul`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from ..support.record import dataclass

_PART = re.compile(r"[^./]+")


@dataclass(slots=True)
class Tree:
    """A layer of the model in the report: the items directly in it, and its sublayers in order of first use."""

    own: list[int] = field(default_factory=list)
    children: dict[str, Tree] = field(default_factory=dict)

    def every(self) -> list[int]:
        """All items of the layer, including those of its sublayers."""
        return [*self.own, *(i for child in self.children.values() for i in child.every())]


def tree_of(items: Sequence[tuple[str, int]]) -> Tree:
    """Returns the tree of layers from pairs of a path and an item."""
    root = Tree()
    for path, item in items:
        at = root
        for part in _PART.findall(path):
            at = at.children.setdefault(part, Tree())
        at.own.append(item)
    return root


def depth_within(tree: Tree, rows: int) -> int:
    """Returns the depth down to which the tree has at most so many layers and items; 0 if even the root has more."""
    level, depth, found = [tree], 0, 0
    while level:
        found += sum(len(t.own) + len(t.children) for t in level)
        if found > rows:
            return depth
        level, depth = [child for t in level for child in t.children.values()], depth + 1
    return depth


def prefixes(path: str) -> list[str]:
    """Returns the paths of a layer's ancestors and its own, from the root down: `/a/b.0` gives `/a`, `/a/b` and `/a/b.0`."""
    return [path[: part.end()] for part in _PART.finditer(path)]
