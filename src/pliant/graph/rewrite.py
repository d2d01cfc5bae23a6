"""Rebuilding graph nodes: values replaced, dims substituted, results given new names. The tool of passes.

r = Renamer(values={old: new}, dims={n: m * 2})
r.node(node)        # the node over the new values; its outs are fresh values, which later nodes see
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..sym.expr import Dim, Expr, Var, free_vars, substitute
from ..sym.simplify import simplify
from .annotation import decide, substitute_annotation
from .deduce import Deduction
from .node import (
    Body,
    CallFunction,
    CallHost,
    CallLibrary,
    CallLoop,
    Function,
    If,
    MatchCast,
    Node,
    Op,
    Require,
    Scalar,
    Value,
    While,
)
from .operators import TABLE, map_attrs


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
