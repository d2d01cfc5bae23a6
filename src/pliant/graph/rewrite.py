"""Infrastructure for graph passes: `Renamer` clones nodes, `Rewriter` applies rewrite rules.

`Renamer` replaces values, substitutes dims and gives results new names.

    r = Renamer(values={old: new}, dims={n: m * 2})
    r.node(node)        # the node over the new values; its outs are fresh values, which later nodes see

`Rewriter` walks a function once, in order, including bodies, and asks a rule for the replacement of each node's results.

    def rule(r: Rewriter, node: Node) -> Sequence[Value] | None:
        return [node.args[0]] if is_identity(node) else None       # None: the node stays
    Rewriter(function, rule).run()                                 # the same object if nothing changed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..dtype import dtype as to_dtype
from ..support.errors import InternalError, ShapeError
from ..support.names import unused_name
from ..support.source import Span
from ..sym.expr import Dim, Expr, Var, const, free_vars, substitute
from ..sym.relations import relation_text
from ..sym.simplify import simplify
from . import node as g
from .annotation import decide, substitute_annotation
from .deduce import Deduction
from .op_table import TABLE, node_defines
from .operators import map_attrs


class Renamer:
    """Clones nodes one after the other: replaces values, substitutes dims, and gives results new values, which later nodes see."""

    def __init__(
        self, values: Mapping[g.Value, g.Value] | None = None, dims: Mapping[Var, Expr] | None = None, name: Callable[[str], str] = str
    ) -> None:
        self.values = dict(values or {})
        self.dims = dict(dims or {})
        self.name = name

    def use(self, value: g.Value) -> g.Value:
        """Returns the replacement of a value, or the value itself if it has none."""
        return self.values.get(value, value)

    def uses(self, values: Sequence[g.Value]) -> tuple[g.Value, ...]:
        """Returns the replacements of several values."""
        return tuple(map(self.use, values))

    def expr(self, e: Expr) -> Expr:
        """Returns the expression with the dims substituted, and simplified if it has one of them."""
        return e if free_vars(e).isdisjoint(self.dims) else simplify(substitute(e, self.dims))

    def fresh(self, var: Var) -> Var:
        """The new variable for one that a cloned node defines: the one that `dims` prescribes, or a fresh one."""
        chosen = self.dims.get(var)
        if isinstance(chosen, Var):
            return chosen
        new = Dim(var.name, var.min, var.max, var.multiple_of) if isinstance(var, Dim) else Var(var.name, var.dtype)
        self.dims[var] = new
        return new

    def define(self, value: g.Value) -> g.Value:
        """Creates and returns a new value that replaces the old one from here on."""
        new = g.Value(self.name(value.name), substitute_annotation(value.annotation, self.dims))
        self.values[value] = new
        return new

    def require(self, r: g.Require) -> g.Require:
        """Returns the run-time condition with the dims substituted."""
        return replace(r, cond=self.expr(r.cond), values=tuple(map(self.expr, r.values)))

    def function(self, f: g.Function) -> g.Function:
        """Returns a clone of the function with the dims substituted, also in its parameters."""
        params = tuple(map(self.define, f.params))
        nodes = tuple(map(self.node, f.nodes))
        return f.with_(params=params, nodes=nodes, results=self.uses(f.results), attrs=self.attrs(f))

    def attrs(self, f: g.Function) -> Mapping[str, Any]:
        """The attributes of the function with the dims of its relations substituted; raises if one cannot hold any more."""
        if not g.relations(f):
            return f.attrs
        left = []
        for r in g.relations(f):
            condition = r.cond.with_args(tuple(map(self.expr, r.cond.args)))  # the comparison stays as the user wrote it
            answer = decide(condition)
            if answer is False:
                raise ShapeError(f"`{relation_text(r.cond)}` is declared, and cannot hold: {relation_text(condition)}")
            left += [g.relation(condition)] if answer is None else []
        return {**f.attrs, "relations": tuple(left)}

    def node(self, node: g.Node) -> g.Node:
        """Returns a clone of the node over the replaced values and dims, with fresh outs.

        Requirements that the new dims prove are left out, and the symbolic values of scalar results are deduced again.
        """
        fields = self._fields(node)
        requires = tuple(r for r in map(self.require, node.requires) if not decide(r.cond))  # drops what the new dims prove
        outs = tuple(map(self.define, node.outs))
        if isinstance(node, g.Op) and any(isinstance(o.annotation, g.Scalar) for o in outs):  # its symbolic value may be known now
            annotations = TABLE[node.op].deduce(Deduction(node.op, fields["args"]), fields["attrs"])
            outs = tuple(g.Value(o.name, a) for o, a in zip(outs, annotations, strict=True))
            self.values.update(zip(node.outs, outs, strict=True))
        return replace(node, outs=outs, requires=requires, **fields)

    def _fields(self, node: g.Node) -> dict[str, Any]:
        """Returns the fields of the cloned node that hold values or dims, mapped."""
        match node:
            case g.Op():
                for var in node_defines(node):
                    self.fresh(var)
                return {"args": self.uses(node.args), "attrs": map_attrs(node.attrs, self.expr)}
            case g.CallLoop():
                args = tuple(self.use(a) if isinstance(a, g.Value) else self.expr(a) for a in node.args)
                return {"args": args, "dims": tuple(map(self.expr, node.dims))}
            case g.CallLibrary() | g.CallHost() | g.CallFunction():
                return {"args": self.uses(node.args)}
            case g.MatchCast():
                value = self.use(node.value)
                return {"value": value, "defines": tuple(map(self.fresh, node.defines))}
            case g.If():
                return {"cond": self.use(node.cond), "then": self.body(node.then), "orelse": self.body(node.orelse)}
            case g.While():
                return {"init": self.uses(node.init), "cond": self.body(node.cond), "body": self.body(node.body)}
        return {}

    def body(self, body: g.Body) -> g.Body:
        """Returns a clone of a body over the replaced values."""
        params = tuple(map(self.define, body.params))
        nodes = tuple(map(self.node, body.nodes))
        return g.Body(params, nodes, self.uses(body.results))


class Names:
    """Makes unique names for new values of a function."""

    def __init__(self, function: g.Function) -> None:
        self.taken = {p.name for p in function.params}
        for n in g.walk_nodes(function.nodes):
            self.taken.update(o.name for o in n.outs)
            self.taken.update(p.name for b in g.bodies(n) for p in b.params)

    def new(self, hint: str) -> str:
        """A name that is not used yet: `hint`, with a numeric suffix if it is taken."""
        return unused_name(hint, self.taken)


class Rewriter:
    """Rewrites a function by a rule, which returns the replacements of a node's results, or None if the node stays.

    It walks the function once, in order, including bodies. A replacement has the annotation of the value that it replaces, so later nodes
    stay valid. A removed node takes its run-time checks with it: a rule may return existing values only for a node without checks, or must
    move the checks to a node it creates.
    """

    def __init__(self, function: g.Function, rule: Callable[[Rewriter, g.Node], Sequence[g.Value] | None]) -> None:
        self.function = function
        self.rule = rule
        self.makers: dict[g.Value, g.Node] = {}  # the (rewritten) node that defines each value visible so far
        self.values: dict[g.Value, g.Value] = {}
        self._names: Names | None = None
        self._nodes: list[g.Node] = []

    def run(self) -> g.Function:
        """Returns the rewritten function; the same object if the rule changed nothing."""
        nodes = self._walk(self.function.nodes)
        if len(nodes) == len(self.function.nodes) and all(a is b for a, b in zip(nodes, self.function.nodes, strict=True)):
            return self.function
        return self.function.with_(nodes=nodes, results=self.uses(self.function.results))

    def use(self, value: g.Value) -> g.Value:
        """Returns the replacement of a value, or the value itself if it has none."""
        return self.values.get(value, value)

    def uses(self, values: Sequence[g.Value]) -> tuple[g.Value, ...]:
        """Returns the replacements of several values."""
        return tuple(map(self.use, values))

    def op_of(self, value: g.Value, *names: str) -> g.Op | None:
        """The operator node that defines the value, if it is one of `names`, else None."""
        node = self.makers.get(value)
        return node if isinstance(node, g.Op) and node.op in names else None

    def array_of(self, value: g.Value) -> np.ndarray[Any, Any] | None:
        """Returns the array of the value if it is a literal, else None."""
        node = self.makers.get(value)
        return node.array if isinstance(node, g.Const) else None

    # Called by rules: create replacement nodes.

    def op(
        self, name: str, args: Sequence[g.Value], attrs: Any, instead: g.Node, checks: Sequence[g.Require] = ()
    ) -> tuple[g.Value, ...] | None:
        """Replaces the node `instead` by an operator, applies the rule to it too, and returns its results.

        The new node makes the run-time checks of `instead` and `checks`. None if deduction fails or gives other annotations.
        """
        node = self._made(name, args, attrs, instead, instead.outs[0].name)
        if node is None or any(a.annotation != o.annotation for a, o in zip(node.outs, instead.outs, strict=True)):
            return None
        requires = {r.cond: r for r in (*node.requires, *checks, *instead.requires)}
        return self._visit(replace(node, requires=tuple(requires.values())))

    def make(self, name: str, args: Sequence[g.Value], attrs: Any, near: g.Node) -> tuple[g.Value, ...] | None:
        """Creates an auxiliary operator for the replacement of the node `near`, applies the rule to it too, and returns its results.

        None if deduction fails.
        """
        node = self._made(name, args, attrs, near, name)
        return None if node is None else self._visit(node)

    def _made(self, name: str, args: Sequence[g.Value], attrs: Any, near: g.Node, hint: str) -> g.Op | None:
        """Returns a new operator node with deduced annotations; None if deduction fails."""
        d = Deduction(name, tuple(args), span=near.span)
        try:
            annotations = TABLE[name].deduce(d, attrs)
        except ShapeError:
            return None
        outs = tuple(g.Value(self.name(hint), a) for a in annotations)
        return g.Op(outs=outs, op=name, args=tuple(args), attrs=attrs, requires=tuple(d.requires), origin=near.origin, span=near.span)

    def constant(self, array: np.ndarray[Any, Any], hint: str = "const", origin: tuple[str, ...] = (), span: Span | None = None) -> g.Value:
        """Appends a literal tensor; returns its value."""
        array = np.array(array, order="C")  # code reads literals in rows, and a transposed array would keep its order
        array.setflags(write=False)
        out = g.Value(self.name(hint), g.Tensor(to_dtype(array.dtype), tuple(const(int(n)) for n in array.shape)))
        self._append(g.Const(outs=(out,), array=array, origin=origin, span=span))
        return out

    def name(self, hint: str) -> str:
        """Returns a value name that the function does not use yet."""
        self._names = self._names or Names(self.function)
        return self._names.new(hint)

    # The walk.

    def _walk(self, nodes: Sequence[g.Node]) -> tuple[g.Node, ...]:
        """Returns the rewritten nodes of a body."""
        outer, self._nodes = self._nodes, []
        for node in nodes:
            for old, new in zip(node.outs, self._visit(self._over_new_values(node)), strict=True):
                if old is not new:
                    self.values[old] = new
        rewritten, self._nodes = tuple(self._nodes), outer
        return rewritten

    def _visit(self, node: g.Node) -> tuple[g.Value, ...]:
        """Applies the rule to a node; returns the values that replace its results, or its own after appending the node.

        Raises InternalError if a replacement has another annotation.
        """
        before = len(self._nodes)
        replacements = self.rule(self, node)
        if replacements is None:
            del self._nodes[before:]  # nodes that the rule created before it gave up
            self._append(node)
            return node.outs
        for old, new in zip(node.outs, replacements, strict=True):
            if old.annotation != new.annotation:
                raise InternalError(f"a rule replaces `{old!r}` by `{new!r}`", where=node.span)
        return tuple(replacements)

    def _append(self, node: g.Node) -> None:
        """Adds a node to the body being rewritten."""
        self._nodes.append(node)
        self.makers.update((out, node) for out in node.outs)

    def _over_new_values(self, node: g.Node) -> g.Node:
        """The node over the replaced values, with its bodies rewritten; the same object if nothing changed."""
        match node:
            case g.Op() | g.CallLibrary() | g.CallHost() | g.CallFunction():
                args = self.uses(node.args)
                return node if args == node.args else replace(node, args=args)
            case g.CallLoop():
                mixed = tuple(self.use(a) if isinstance(a, g.Value) else a for a in node.args)
                return node if mixed == node.args else replace(node, args=mixed)
            case g.MatchCast():
                value = self.use(node.value)
                return node if value is node.value else replace(node, value=value)
            case g.If():
                cond, then, orelse = self.use(node.cond), self._body(node.then), self._body(node.orelse)
                same = cond is node.cond and then is node.then and orelse is node.orelse
                return node if same else replace(node, cond=cond, then=then, orelse=orelse)
            case g.While():
                init, first, body = self.uses(node.init), self._body(node.cond), self._body(node.body)
                same = init == node.init and first is node.cond and body is node.body
                return node if same else replace(node, init=init, cond=first, body=body)
        return node

    def _body(self, body: g.Body) -> g.Body:
        """Returns a body with its nodes rewritten."""
        nodes = self._walk(body.nodes)
        results = self.uses(body.results)
        return body if nodes == body.nodes and results == body.results else g.Body(body.params, nodes, results)


def map_nodes(function: g.Function, change: Callable[[g.Node], g.Node]) -> g.Function:
    """Applies `change` to every node, also inside bodies (inner before outer); returns the same object if none changed."""

    def inside(nodes: tuple[g.Node, ...]) -> tuple[g.Node, ...]:
        changed = tuple(change(over(n)) for n in nodes)
        return nodes if changed == nodes else changed

    def body(b: g.Body) -> g.Body:
        nodes = inside(b.nodes)
        return b if nodes is b.nodes else g.Body(b.params, nodes, b.results)

    def over(n: g.Node) -> g.Node:
        match n:
            case g.If():
                then, orelse = body(n.then), body(n.orelse)
                return n if then is n.then and orelse is n.orelse else replace(n, then=then, orelse=orelse)
            case g.While():
                cond, inner = body(n.cond), body(n.body)
                return n if cond is n.cond and inner is n.body else replace(n, cond=cond, body=inner)
        return n

    nodes = inside(function.nodes)
    return function if nodes is function.nodes else function.with_(nodes=nodes)
