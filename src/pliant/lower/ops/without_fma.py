"""For targets without fused multiply-add: applies `loop.passes.without_fma` to all loop programs that a function calls.

A call of `softmax`, which computes decay(x[v] - top[v]), becomes one of a program that computes decay(x[v] - top[v], fused=False).
"""

from __future__ import annotations

from ...graph import node as g
from ...loop.passes.without_fma import without_fma as of_loops
from ...loop.stmt import Func
from ..callee import callee_of, func_of, map_calls


def without_fma(function: g.Function) -> g.Function:
    """Returns the function with loop programs that use no FMA except where the user wrote one; the same object if nothing changes."""
    rewritten: dict[Func, Func] = {}

    def change(n: g.CallLoop) -> g.Node:
        func = of_loops(func_of(n.callee), rewritten)
        return n if func is n.callee.program else n.with_(callee=callee_of(func))

    nodes = map_calls(function.nodes, change)
    return function if all(a is b for a, b in zip(nodes, function.nodes, strict=True)) else function.with_(nodes=nodes)
