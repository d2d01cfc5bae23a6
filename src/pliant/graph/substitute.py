"""Graph programs with variables of their annotations, attributes and dims replaced by expressions.

substitute(f, {n: const(8)})        Tensor[f32, n, 64]  ->  Tensor[f32, 8, 64], everywhere
"""

from __future__ import annotations

from collections.abc import Sequence

from ..sym.expr import Expr, Var
from ..sym.expr import substitute as substitute_expr
from . import node as g
from .ops.table import map_attrs


def substitute(function: g.Function, values: dict[Var, Expr]) -> g.Function:
    """`function` with variables replaced, parameters included."""
    return Substitution(values).function(function)


class Substitution:
    """A walk over a function in order; `values` may grow on the way."""

    def __init__(self, values: dict[Var, Expr]) -> None:
        self.values = values
        self.renewed: dict[g.Value, g.Value] = {}

    def function(self, f: g.Function) -> g.Function:
        """The function with variables replaced; the same object when nothing changes."""
        params = tuple(self.define(p) for p in f.params)
        nodes = tuple(self.node(n) for n in f.nodes)
        if params == f.params and nodes == f.nodes:
            return f
        return f.with_(params=params, nodes=nodes, results=tuple(self.value(v) for v in f.results))

    def node(self, n: g.Node) -> g.Node:
        """One node; the same object when nothing changes."""
        requires = tuple(self.require(r) for r in n.requires)
        outs = tuple(self.define(v) for v in n.outs)
        if requires != n.requires or outs != n.outs:
            n = n.with_(requires=requires, outs=outs)
        match n:
            case g.Op():
                return self.changed(n, args=self.all(n.args), attrs=map_attrs(n.attrs, self.expr))
            case g.CallFunction() | g.CallLibrary() | g.CallHost():
                return self.changed(n, args=self.all(n.args))
            case g.CallLoop():
                args = tuple(self.value(a) if isinstance(a, g.Value) else self.expr(a) for a in n.args)
                return self.changed(n, args=args, dims=tuple(self.expr(e) for e in n.dims))
            case g.MatchCast():
                return self.changed(n, value=self.value(n.value), defines=tuple(v for v in n.defines if v not in self.values))
            case g.If():
                return self.changed(n, cond=self.value(n.cond), then=self.body(n.then), orelse=self.body(n.orelse))
            case g.While():
                return self.changed(n, init=self.all(n.init), cond=self.body(n.cond), body=self.body(n.body))
        return n

    @staticmethod
    def changed(n: g.Node, **fields: object) -> g.Node:
        """`n` with these fields, itself when they are what it has."""
        return n if all(getattr(n, name) == value for name, value in fields.items()) else n.with_(**fields)

    def body(self, b: g.Body) -> g.Body:
        """The nodes of an `If` or a `While`."""
        params = tuple(self.define(v) for v in b.params)
        nodes = tuple(self.node(n) for n in b.nodes)
        results = self.all(b.results)
        return b if (params, nodes, results) == (b.params, b.nodes, b.results) else g.Body(params, nodes, results)

    def require(self, r: g.Require) -> g.Require:
        """A run-time condition."""
        cond, values = self.expr(r.cond), tuple(self.expr(e) for e in r.values)
        return r if cond is r.cond and values == r.values else g.Require(cond, r.message, values, r.help, r.span)

    def expr(self, e: Expr) -> Expr:
        """An expression over dims."""
        return substitute_expr(e, self.values)

    def annotation(self, a: g.Annotation) -> g.Annotation:
        """An annotation."""
        match a:
            case g.Tensor():
                return g.Tensor(a.dtype, tuple(self.expr(e) for e in a.shape), a.state)
            case g.Shape():
                return g.Shape(tuple(self.expr(e) for e in a.values))
            case g.Scalar() if a.value is not None:
                return g.Scalar(a.dtype, self.expr(a.value))
            case g.Tuple():
                return g.Tuple(tuple(self.annotation(x) for x in a.items))
        return a

    def define(self, v: g.Value) -> g.Value:
        """A value where it is defined: itself, or a new one under the new annotation."""
        annotation = self.annotation(v.annotation)
        new = v if annotation == v.annotation else g.Value(v.name, annotation)
        self.renewed[v] = new
        return new

    def value(self, v: g.Value) -> g.Value:
        """A value where it is used."""
        return self.renewed.get(v, v)

    def all(self, values: Sequence[g.Value]) -> tuple[g.Value, ...]:
        """Values where they are used."""
        return tuple(self.value(v) for v in values)
