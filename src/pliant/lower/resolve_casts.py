"""Variables that a match_cast introduces are replaced by what they equal.

A match_cast of `x: Tensor[f32, n * 2]` to `Tensor[f32, m]` defines m, and m is n * 2 from there on; what else it asserts is a
run-time condition (`requires`) that deduction put on the node. Afterwards every variable is defined by a parameter.
"""

from __future__ import annotations

from ..graph import node as g
from ..graph.substitute import Substitution
from ..sym.expr import Var


def resolve_casts(function: g.Function) -> g.Function:
    """The function with the variables of its match_casts replaced."""
    return _Resolution({}).function(function)


class _Resolution(Substitution):
    def node(self, n: g.Node) -> g.Node:
        if isinstance(n, g.MatchCast):
            source, target = self.annotation(n.value.annotation), n.outs[0].annotation
            assert isinstance(source, g.Tensor) and isinstance(target, g.Tensor)
            for found, wanted in zip(source.shape, target.shape, strict=True):
                if isinstance(wanted, Var) and wanted in n.defines:
                    self.values.setdefault(wanted, found)
        return super().node(n)
