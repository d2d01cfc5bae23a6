"""Helpers for graph nodes that call loop programs: converting between Func and Callee, and rewriting all calls of a function."""

from __future__ import annotations

from collections.abc import Callable

from ..graph import node as g
from ..graph.node import Callee, Parameter
from ..loop.buffer import Buffer
from ..loop.stmt import Func
from ..sym.conditions import all_of
from ..sym.expr import Expr, Var, free_vars, substitute


def callee_of(func: Func) -> Callee:
    """Returns the callee (signature and program) by which a graph function calls a loop program."""
    params = tuple(
        Parameter(p.value.name, p.value.dtype, p.value.shape, p.role, strides=p.value.strides)
        if isinstance(p.value, Buffer)
        else Parameter(p.value.name, p.value.dtype, None, p.role, p.value)
        for p in func.params
    )
    return Callee(func.name, params, func.symbols, func)


def func_of(callee: Callee) -> Func:
    """Returns the loop program that a callee of the graph refers to."""
    assert isinstance(callee.program, Func)
    return callee.program


def given_by(call: g.CallLoop) -> Expr:
    """Returns the conditions that a call checks before it runs its loop program, expressed over the symbols of that program.

    Conditions that use other dims than those passed as symbols are left out.
    """
    names: dict[Var, Expr] = {}
    for symbol, value in zip(call.callee.symbols, call.dims, strict=True):
        if isinstance(value, Var):
            names.setdefault(value, symbol)
    return all_of(*(substitute(r.cond, names) for r in call.requires if free_vars(r.cond) <= names.keys()))


def map_calls(nodes: tuple[g.Node, ...], change: Callable[[g.CallLoop], g.Node]) -> tuple[g.Node, ...]:
    """Returns the nodes with `change` applied to every call of a loop program, also inside branches and loops."""

    def body(b: g.Body) -> g.Body:
        return g.Body(b.params, map_calls(b.nodes, change), b.results)

    def node(n: g.Node) -> g.Node:
        match n:
            case g.CallLoop():
                return change(n)
            case g.If():
                return n.with_(then=body(n.then), orelse=body(n.orelse))
            case g.While():
                return n.with_(cond=body(n.cond), body=body(n.body))
        return n

    return tuple(map(node, nodes))
