"""Infers blocks in all loop programs that a function calls: fusion and scheduling work on blocks, not on plain loop nests."""

from __future__ import annotations

from ...graph import node as g
from ...loop.passes.infer_blocks import infer_blocks as infer
from ..callee import callee_of, func_of


def infer_blocks(function: g.Function) -> g.Function:
    """Returns the function with blocks inferred in every loop program it calls, also inside branches and loops."""
    nodes = tuple(_node(n) for n in function.nodes)
    return function if all(a is b for a, b in zip(nodes, function.nodes, strict=True)) else function.with_(nodes=nodes)


def _node(n: g.Node) -> g.Node:
    match n:
        case g.CallLoop():
            func = func_of(n.callee)
            inferred = infer(func)
            return n if inferred is func else n.with_(callee=callee_of(inferred))
        case g.If():
            return n.with_(then=_body(n.then), orelse=_body(n.orelse))
        case g.While():
            return n.with_(cond=_body(n.cond), body=_body(n.body))
    return n


def _body(b: g.Body) -> g.Body:
    return g.Body(b.params, tuple(_node(n) for n in b.nodes), b.results)
