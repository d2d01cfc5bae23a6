"""Hands the relations between dims of a function to its loop programs, as conditions that the caller has checked: proofs rely on them.

m <= n is declared; rows(x) over n and m       ->       rows(x)  # checked: (m <= n)
"""

from __future__ import annotations

from ...graph import node as g
from ...sym.expr import free_vars
from ..callee import map_calls


def relations_to_calls(function: g.Function) -> g.Function:
    """Returns the function with its relations among the conditions of each call that has all of their dims."""
    relations = g.relations(function)
    if not relations:
        return function

    def change(n: g.CallLoop) -> g.Node:
        known = frozenset().union(*(free_vars(e) for e in n.dims))
        have = {r.cond for r in n.requires}
        more = tuple(r for r in relations if free_vars(r.cond) <= known and r.cond not in have)
        return n.with_(requires=(*n.requires, *more)) if more else n

    return function.with_(nodes=map_calls(function.nodes, change))
