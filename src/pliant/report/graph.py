"""The graph of the launches, for the report: which launch needs the result of which, and how it is drawn.

for group in groups_of(x):
    group.launches, group.sources          # numbers of launches, and of the groups whose results they read

A large program has too many launches for a picture. Then launches of one layer that follow each other are one group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..graph.node import CallLoop, Node, Value, bodies, node_args
from ..support.record import dataclass
from .facts import Facts
from .layers import prefixes

MOST_GROUPS = 300  # boxes in the picture


@dataclass(frozen=True, slots=True)
class Group:
    """A box of the picture: its launches, the layer that they have in common, and the groups that it reads results of."""

    launches: Sequence[int]
    layer: str
    sources: Sequence[int]


def groups_of(x: Facts) -> list[Group]:
    """Returns the groups in the order of launches: single launches, or parts of a layer, so that there are at most MOST_GROUPS.

    Without layers there can be more launches than that; the last group has all that are left.
    """
    runs = _runs(x)
    runs = [*runs[: MOST_GROUPS - 1], [i for run in runs[MOST_GROUPS - 1 :] for i in run]] if len(runs) > MOST_GROUPS else runs
    number = {i: k for k, run in enumerate(runs) for i in run}
    reads = sources_of_launches(x)
    groups = []
    for k, run in enumerate(runs):
        sources = sorted({number[j] for i in run for j in reads[i]} - {k})
        groups.append(Group(run, _common([_layer(x, i) for i in run]), sources))
    return groups


def _runs(x: Facts) -> list[list[int]]:
    """Returns the launches one by one, or those that follow each other and have one layer at the greatest depth with few enough of them."""
    single = [[i] for i in range(len(x.steps))]
    paths = [prefixes(_layer(x, i)) for i in range(len(x.steps))]
    deepest = max(map(len, paths), default=0) if len(single) > MOST_GROUPS else 0
    for depth in range(deepest, 0, -1):
        runs: list[list[int]] = []
        last = None
        for i, path in enumerate(paths):
            key = path[min(depth, len(path)) - 1] if path else ""
            if key and key == last:
                runs[-1].append(i)
            else:
                runs.append([i])
            last = key
        if len(runs) <= MOST_GROUPS:
            return runs
    return single


def _layer(x: Facts, i: int) -> str:
    """Returns the first layer of a launch; an empty text for a copy."""
    return x.steps[i].layers[0] if x.steps[i].layers else ""


def _common(layers: Sequence[str]) -> str:
    """Returns the longest path that all layers begin with."""
    shared = prefixes(layers[0])
    return next((path for path in reversed(shared) if all(path in prefixes(layer) for layer in layers)), "")


def sources_of_launches(x: Facts) -> list[set[int]]:
    """Returns for each launch those whose results it reads, directly or through nodes that launch nothing; copies read none."""
    found: list[set[int]] = [set() for _ in x.steps]
    walk = _Walk({step.node: i for i, step in enumerate(x.steps) if step.node is not None}, {}, found)
    walk.nodes(x.provenance.lowered.function.nodes)
    return found


@dataclass(slots=True)
class _Walk:
    """Walks a function in order and keeps which launches each value comes from."""

    numbers: Mapping[Node, int]
    sources: dict[Value, frozenset[int]]
    found: list[set[int]]

    def nodes(self, nodes: Iterable[Node]) -> None:
        """Adds the launches that these nodes read from, and those that their results come from."""
        for node in nodes:
            read = self.of(node_args(node))
            for body in bodies(node):
                self.sources |= dict.fromkeys(body.params, read)
                self.nodes(body.nodes)
                read |= self.of(body.results)
            if isinstance(node, CallLoop) and node in self.numbers:
                number = self.numbers[node]
                self.found[number] |= read - {number}
                read = frozenset([number])
            self.sources |= dict.fromkeys(node.outs, read)

    def of(self, values: Iterable[Value]) -> frozenset[int]:
        """Returns the launches that these values come from."""
        return frozenset(i for v in values for i in self.sources.get(v, ()))
