"""Inlining: replaces calls of graph functions by the callee's nodes, with new value names and substituted dims.

The checks of a call remain: an argument or result whose annotation differs from the declared one goes through a match_cast. A dim of
the callee becomes a new variable, defined and checked by the match_cast, if the argument is not proven to satisfy the dim's contract:
the callee's nodes rely on the contract.

    y = double(x)           ->  add = ops.add(x, x)
    return y                    return add
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...support.errors import ShapeError
from ...support.names import unused_name
from ...sym.expr import Expr, Var, substitute
from ...sym.relations import facts_of
from ...sym.simplify import simplify
from .. import node as g
from ..annotation import decide, defined_vars, substitute_annotation
from ..deduce import Deduction, deduce_match
from ..op_table import node_defines
from ..rewrite import Renamer
from .use_relations import use_relations


def inline_functions(function: g.Function) -> g.Function:
    """Returns the function with all calls of other graph functions inlined; the same object if there are none."""
    if not any(isinstance(n, g.CallFunction) for n in g.walk_nodes(function.nodes)):
        return function
    return _Inliner(function).run()


class _Inliner:
    """Replaces all calls that one function makes by the nodes of the called functions."""

    def __init__(self, function: g.Function) -> None:
        self.function = function
        self.names = {p.name for p in function.params} | {o.name for n in g.walk_nodes(function.nodes) for o in n.outs}
        self.renamed: dict[g.Value, g.Value] = {}  # result of a call -> the inlined value

    def run(self) -> g.Function:
        dims = set(defined_vars(p.annotation for p in self.function.params))
        nodes = self.nodes(self.function.nodes, dims)
        return self.function.with_(nodes=nodes, results=self.uses(self.function.results))

    def unique(self, hint: str) -> str:
        return unused_name(hint, self.names)

    def uses(self, values: Sequence[g.Value]) -> tuple[g.Value, ...]:
        return tuple(self.renamed.get(v, v) for v in values)

    def nodes(self, nodes: Sequence[g.Node], dims: set[Var]) -> tuple[g.Node, ...]:
        """The nodes with calls inlined; `dims` are the variables defined so far, and is updated."""
        inlined: list[g.Node] = []
        for node in nodes:
            if isinstance(node, g.CallFunction):
                inlined += self.inline(replace(node, args=self.uses(node.args)), dims)
                continue
            inlined.append(self.kept(node, dims))
            dims.update(node_defines(node))
        return tuple(inlined)

    def kept(self, node: g.Node, dims: set[Var]) -> g.Node:
        """Returns a node that is no call, with its operands mapped to inlined values and calls in its bodies inlined."""
        if isinstance(node, g.If):
            then, orelse = self.body(node.then, dims), self.body(node.orelse, dims)
            return replace(node, cond=self.uses([node.cond])[0], then=then, orelse=orelse)
        if isinstance(node, g.While):
            return replace(node, init=self.uses(node.init), cond=self.body(node.cond, dims), body=self.body(node.body, dims))
        if isinstance(node, g.MatchCast):
            return replace(node, value=self.uses([node.value])[0])
        args = getattr(node, "args", None)
        return node if args is None else replace(node, args=tuple(self.renamed.get(a, a) for a in args))  # type: ignore[call-arg]

    def body(self, body: g.Body, dims: set[Var]) -> g.Body:
        """Returns a body with its calls inlined."""
        nodes = self.nodes(body.nodes, set(dims))
        return g.Body(body.params, nodes, self.uses(body.results))

    def inline(self, call: g.CallFunction, dims: set[Var]) -> list[g.Node]:
        """Returns the nodes of the callee, renamed, that replace a call."""
        callee = use_relations(inline_functions(call.function))
        inlined: list[g.Node] = []
        values, substitution = self.arguments(call, callee, dims, inlined)
        self.keep_relations(call, callee, values, substitution, inlined)
        renamer = Renamer(values, substitution, self.unique)
        for out, result in zip(call.outs, callee.results, strict=True):  # dims that the callee defines get the caller's variables
            for inner, outer in zip(g.annotation_exprs(result.annotation), g.annotation_exprs(out.annotation), strict=True):
                if isinstance(inner, Var) and isinstance(outer, Var) and inner not in substitution and outer not in dims:
                    renamer.dims[inner] = outer
                    dims.add(outer)
        for node in callee.nodes:
            new = renamer.node(node)
            inlined.append(new.with_(origin=tuple(dict.fromkeys((*call.origin, *new.origin)))))
            dims.update(node_defines(new))
        for out, result in zip(call.outs, renamer.uses(callee.results), strict=True):
            self.renamed[out] = self.cast(result, out.annotation, call, dims, inlined)
        return inlined

    def keep_relations(
        self, call: g.CallFunction, callee: g.Function, values: dict[g.Value, g.Value], substitution: dict[Var, Expr], found: list[g.Node]
    ) -> None:
        """Appends a match_cast of an argument that checks the callee's relations, on which its nodes rely, if they are not proven."""
        facts = facts_of(r.cond for r in g.relations(self.function))
        swapped = [(r, simplify(substitute(r.cond, substitution))) for r in g.relations(callee)]
        left = {condition: r for r, condition in swapped if not decide(condition, facts)}
        if not left:
            return
        param = min((p for p in callee.params if isinstance(p.annotation, g.Tensor)), key=g.is_state)
        of_call = {r.cond: r for r in call.requires}
        moved = {c: replace(r, cond=c, values=tuple(substitute(v, substitution) for v in r.values)) for c, r in left.items()}
        checks = tuple(of_call.get(c, r) for c, r in moved.items())
        old = values[param]
        out = g.Value(self.unique(old.name), old.annotation)
        found.append(g.MatchCast(outs=(out,), value=old, requires=checks, origin=call.origin, span=call.span))
        values[param] = out

    def arguments(
        self, call: g.CallFunction, callee: g.Function, dims: set[Var], found: list[g.Node]
    ) -> tuple[dict[g.Value, g.Value], dict[Var, Expr]]:
        """Returns the values of the callee's parameters and dims; appends match_casts to `found` for what must be checked."""
        substitution: dict[Var, Expr] = {}
        for p, a in zip(callee.params, call.args, strict=True):
            for dim, value in zip(g.annotation_exprs(p.annotation), g.annotation_exprs(a.annotation), strict=False):
                if isinstance(dim, Var) and dim not in substitution:
                    substitution[dim] = value if _meets(dim, value) else Renamer().fresh(dim)
        values: dict[g.Value, g.Value] = {}
        for p, a in zip(callee.params, call.args, strict=True):
            target = substitute_annotation(p.annotation, substitution)
            read = (
                g.Tensor(a.annotation.dtype, a.annotation.shape)
                if isinstance(a.annotation, g.Tensor) and not g.is_state(p)
                else a.annotation
            )
            values[p] = a if isinstance(target, g.Scalar) or target == read else self.cast(a, target, call, dims, found)
        return values, substitution

    def cast(self, value: g.Value, target: g.Annotation, call: g.CallFunction, dims: set[Var], found: list[g.Node]) -> g.Value:
        """Returns `value` under the annotation `target`, through a match_cast if it differs; checks keep the messages of the call."""
        if value.annotation == target:
            return value
        d = Deduction(call.function.name, (value,), span=call.span)
        defines = deduce_match(d, target, frozenset(dims))
        dims.update(defines)
        of_call = {r.cond: r for r in call.requires}
        out = g.Value(self.unique(value.name), target)
        checks = tuple(of_call.get(r.cond, r) for r in d.requires)
        found.append(g.MatchCast(outs=(out,), value=value, defines=defines, requires=checks, origin=call.origin, span=call.span))
        return out


def _meets(dim: Var, value: Expr) -> bool:
    """True if the value is proven to satisfy the contract of the dim."""
    d = Deduction("")
    try:
        d.contract(dim, value, "")
    except ShapeError:
        return False
    return not d.requires
