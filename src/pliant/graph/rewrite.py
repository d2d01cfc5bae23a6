"""Rebuilding graph nodes: the tools of passes.

`Renamer`: values replaced, dims substituted, results given new names.

    r = Renamer(values={old: new}, dims={n: m * 2})
    r.node(node)        # the node over the new values; its outs are fresh values, which later nodes see

`Rewriter`: walks a function once, in order, bodies included, and asks a rule for each node what stands for its results.

    def rule(r: Rewriter, node: Node) -> Sequence[Value] | None:
        return [node.args[0]] if is_identity(node) else None       # None: the node stays
    Rewriter(function, rule).run()                                 # the same object where nothing changed
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
from ..sym.simplify import simplify
from .annotation import decide, substitute_annotation
from .deduce import Deduction
from .node import (
    Body,
    CallFunction,
    CallHost,
    CallLibrary,
    CallLoop,
    Const,
    Function,
    If,
    MatchCast,
    Node,
    Op,
    Require,
    Scalar,
    Tensor,
    Value,
    While,
    bodies,
    walk_nodes,
)
from .operators import TABLE, map_attrs, node_defines


class Renamer:
    """Maps values and dims while nodes are rebuilt one after the other; see the module."""

    def __init__(
        self, values: Mapping[Value, Value] | None = None, dims: Mapping[Var, Expr] | None = None, name: Callable[[str], str] = str
    ) -> None:
        self.values = dict(values or {})
        self.dims = dict(dims or {})
        self.name = name

    def use(self, value: Value) -> Value:
        """What stands for the value now."""
        return self.values.get(value, value)

    def uses(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """What stands for the values now."""
        return tuple(map(self.use, values))

    def expr(self, e: Expr) -> Expr:
        """The expression over the new dims."""
        return e if free_vars(e).isdisjoint(self.dims) else simplify(substitute(e, self.dims))

    def fresh(self, var: Var) -> Var:
        """The variable that stands for one that a rebuilt node defines: one chosen before, or a new one."""
        chosen = self.dims.get(var)
        if isinstance(chosen, Var):
            return chosen
        new = Dim(var.name, var.min, var.max, var.multiple_of) if isinstance(var, Dim) else Var(var.name, var.dtype)
        self.dims[var] = new
        return new

    def define(self, value: Value) -> Value:
        """A new value that stands for the old one from here on."""
        new = Value(self.name(value.name), substitute_annotation(value.annotation, self.dims))
        self.values[value] = new
        return new

    def require(self, r: Require) -> Require:
        """A run-time condition over the new dims."""
        return replace(r, cond=self.expr(r.cond), values=tuple(map(self.expr, r.values)))

    def function(self, f: Function) -> Function:
        """The function over the new dims, parameters included."""
        params = tuple(map(self.define, f.params))
        nodes = tuple(map(self.node, f.nodes))
        return f.with_(params=params, nodes=nodes, results=self.uses(f.results))

    def node(self, node: Node) -> Node:
        """The node over what stands for its values and dims, with fresh outs."""
        fields = self._fields(node)
        requires = tuple(r for r in map(self.require, node.requires) if not decide(r.cond))  # some are proven over the new dims
        outs = tuple(map(self.define, node.outs))
        if isinstance(node, Op) and any(isinstance(o.annotation, Scalar) for o in outs):  # its value may be known now
            found = TABLE[node.op].deduce(Deduction(node.op, fields["args"]), fields["attrs"])
            outs = tuple(Value(o.name, a) for o, a in zip(outs, found, strict=True))
            self.values.update(zip(node.outs, outs, strict=True))
        return replace(node, outs=outs, requires=requires, **fields)

    def _fields(self, node: Node) -> dict[str, Any]:
        match node:
            case Op():
                for var in node_defines(node):
                    self.fresh(var)
                return {"args": self.uses(node.args), "attrs": map_attrs(node.attrs, self.expr)}
            case CallLoop():
                args = tuple(self.use(a) if isinstance(a, Value) else self.expr(a) for a in node.args)
                return {"args": args, "dims": tuple(map(self.expr, node.dims))}
            case CallLibrary() | CallHost() | CallFunction():
                return {"args": self.uses(node.args)}
            case MatchCast():
                value = self.use(node.value)
                return {"value": value, "defines": tuple(map(self.fresh, node.defines))}
            case If():
                return {"cond": self.use(node.cond), "then": self.body(node.then), "orelse": self.body(node.orelse)}
            case While():
                return {"init": self.uses(node.init), "cond": self.body(node.cond), "body": self.body(node.body)}
        return {}

    def body(self, body: Body) -> Body:
        """A body over what stands for its values."""
        params = tuple(map(self.define, body.params))
        nodes = tuple(map(self.node, body.nodes))
        return Body(params, nodes, self.uses(body.results))


class Names:
    """Names for new values: each is given once in a function."""

    def __init__(self, function: Function) -> None:
        self.taken = {p.name for p in function.params}
        for n in walk_nodes(function.nodes):
            self.taken.update(o.name for o in n.outs)
            self.taken.update(p.name for b in bodies(n) for p in b.params)

    def new(self, hint: str) -> str:
        """`hint`, with a number behind it where the name is taken."""
        return unused_name(hint, self.taken)


class Rewriter:
    """Rebuilds a function by a rule; see the module.

    What a rule gives for a result has the result's annotation, so nothing after it changes. A run-time check of a node goes with
    the node: a rule that gives values of others has made sure that there is none, or hands it to a node that it makes.
    """

    def __init__(self, function: Function, rule: Callable[[Rewriter, Node], Sequence[Value] | None]) -> None:
        self.function = function
        self.rule = rule
        self.makers: dict[Value, Node] = {}  # of the values that are visible now, by the rewritten node
        self.values: dict[Value, Value] = {}
        self._names: Names | None = None
        self._nodes: list[Node] = []

    def run(self) -> Function:
        """The rewritten function; the same object where the rule changed nothing."""
        nodes = self._walk(self.function.nodes)
        if len(nodes) == len(self.function.nodes) and all(a is b for a, b in zip(nodes, self.function.nodes, strict=True)):
            return self.function
        return self.function.with_(nodes=nodes, results=self.uses(self.function.results))

    def use(self, value: Value) -> Value:
        """What stands for the value now."""
        return self.values.get(value, value)

    def uses(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """What stands for the values now."""
        return tuple(map(self.use, values))

    def op_of(self, value: Value, *names: str) -> Op | None:
        """The operator that makes the value, if it is one of these."""
        node = self.makers.get(value)
        return node if isinstance(node, Op) and node.op in names else None

    def array_of(self, value: Value) -> np.ndarray[Any, Any] | None:
        """The literal tensor that the value is."""
        node = self.makers.get(value)
        return node.array if isinstance(node, Const) else None

    # What rules make: nodes in place of another one.

    def op(self, name: str, args: Sequence[Value], attrs: Any, instead: Node, checks: Sequence[Require] = ()) -> tuple[Value, ...] | None:
        """The results of an operator in place of the node `instead`; the rule is applied to it too. None if it does not fit there.

        It keeps what `instead` and `checks` check.
        """
        made = self._made(name, args, attrs, instead, instead.outs[0].name)
        if made is None or any(a.annotation != o.annotation for a, o in zip(made.outs, instead.outs, strict=True)):
            return None
        kept = {r.cond: r for r in (*made.requires, *checks, *instead.requires)}
        return self._visit(replace(made, requires=tuple(kept.values())))

    def make(self, name: str, args: Sequence[Value], attrs: Any, near: Node) -> tuple[Value, ...] | None:
        """The results of an operator that a rule needs for what it makes of the node `near`; None if it is no program."""
        made = self._made(name, args, attrs, near, name)
        return None if made is None else self._visit(made)

    def _made(self, name: str, args: Sequence[Value], attrs: Any, near: Node, hint: str) -> Op | None:
        d = Deduction(name, tuple(args), span=near.span)
        try:
            annotations = TABLE[name].deduce(d, attrs)
        except ShapeError:
            return None
        outs = tuple(Value(self.name(hint), a) for a in annotations)
        return Op(outs=outs, op=name, args=tuple(args), attrs=attrs, requires=tuple(d.requires), origin=near.origin, span=near.span)

    def constant(self, array: np.ndarray[Any, Any], hint: str = "const", origin: tuple[str, ...] = (), span: Span | None = None) -> Value:
        """A new literal tensor."""
        array = np.array(array)
        array.setflags(write=False)
        out = Value(self.name(hint), Tensor(to_dtype(array.dtype), tuple(const(int(n)) for n in array.shape)))
        self._append(Const(outs=(out,), array=array, origin=origin, span=span))
        return out

    def name(self, hint: str) -> str:
        """A name that no value has."""
        self._names = self._names or Names(self.function)
        return self._names.new(hint)

    # The walk.

    def _walk(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        outer, self._nodes = self._nodes, []
        for node in nodes:
            for old, new in zip(node.outs, self._visit(self._over_new_values(node)), strict=True):
                if old is not new:
                    self.values[old] = new
        made, self._nodes = tuple(self._nodes), outer
        return made

    def _visit(self, node: Node) -> tuple[Value, ...]:
        before = len(self._nodes)
        found = self.rule(self, node)
        if found is None:
            del self._nodes[before:]  # what the rule has made in vain
            self._append(node)
            return node.outs
        for old, new in zip(node.outs, found, strict=True):
            if old.annotation != new.annotation:
                raise InternalError(f"a rule replaces `{old!r}` by `{new!r}`", where=node.span)
        return tuple(found)

    def _append(self, node: Node) -> None:
        self._nodes.append(node)
        self.makers.update((out, node) for out in node.outs)

    def _over_new_values(self, node: Node) -> Node:
        match node:
            case Op() | CallLibrary() | CallHost() | CallFunction():
                args = self.uses(node.args)
                return node if args == node.args else replace(node, args=args)
            case CallLoop():
                given = tuple(self.use(a) if isinstance(a, Value) else a for a in node.args)
                return node if given == node.args else replace(node, args=given)
            case MatchCast():
                value = self.use(node.value)
                return node if value is node.value else replace(node, value=value)
            case If():
                cond, then, orelse = self.use(node.cond), self._body(node.then), self._body(node.orelse)
                same = cond is node.cond and then is node.then and orelse is node.orelse
                return node if same else replace(node, cond=cond, then=then, orelse=orelse)
            case While():
                init, first, body = self.uses(node.init), self._body(node.cond), self._body(node.body)
                same = init == node.init and first is node.cond and body is node.body
                return node if same else replace(node, init=init, cond=first, body=body)
        return node

    def _body(self, body: Body) -> Body:
        nodes = self._walk(body.nodes)
        results = self.uses(body.results)
        return body if nodes == body.nodes and results == body.results else Body(body.params, nodes, results)


def map_nodes(function: Function, change: Callable[[Node], Node]) -> Function:
    """The function with every node changed, also inside bodies (inner before outer); the same object where none is."""

    def inside(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        made = tuple(change(over(n)) for n in nodes)
        return nodes if made == nodes else made

    def body(b: Body) -> Body:
        nodes = inside(b.nodes)
        return b if nodes is b.nodes else Body(b.params, nodes, b.results)

    def over(n: Node) -> Node:
        match n:
            case If():
                then, orelse = body(n.then), body(n.orelse)
                return n if then is n.then and orelse is n.orelse else replace(n, then=then, orelse=orelse)
            case While():
                cond, inner = body(n.cond), body(n.body)
                return n if cond is n.cond and inner is n.body else replace(n, cond=cond, body=inner)
        return n

    nodes = inside(function.nodes)
    return function if nodes is function.nodes else function.with_(nodes=nodes)
