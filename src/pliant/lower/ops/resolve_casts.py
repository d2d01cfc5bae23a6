"""Replaces the dims that a match_cast defines by the expressions that they equal.

A match_cast of `x: Tensor[f32, n * 2]` to `Tensor[f32, m]` defines m as n * 2. Its other assertions are run-time conditions (`requires`)
that shape deduction put on the node. After this step every dim is defined by a parameter.
"""

from __future__ import annotations

from dataclasses import replace

from ...graph import node as g
from ...graph.node import annotation_exprs
from ...graph.rewrite import Renamer
from ...support.errors import UnsupportedError
from ...sym.expr import Var


def resolve_casts(function: g.Function) -> g.Function:
    """Returns the function with the dims of its match_casts replaced; raises if one depends on a value known only at run time."""
    if not any(isinstance(n, g.MatchCast) for n in g.walk_nodes(function.nodes)):
        return function
    return _Resolution().function(function)


class _Resolution(Renamer):
    """Walks a graph and replaces the dims that casts define by the expressions that they equal; raises if one has none."""

    def node(self, node: g.Node) -> g.Node:
        if isinstance(node, g.MatchCast):
            source, target = self.use(node.value).annotation, node.outs[0].annotation
            for actual, wanted in zip(annotation_exprs(source), annotation_exprs(target), strict=False):
                if isinstance(wanted, Var) and wanted in node.defines:
                    self.dims.setdefault(wanted, actual)
            unknown = [v for v in node.defines if v not in self.dims]
            if unknown:
                raise UnsupportedError(
                    f"dim `{unknown[0].name}` comes from a number that is known only while the program runs", where=node.span
                )
            node = replace(node, defines=())
        return super().node(node)
