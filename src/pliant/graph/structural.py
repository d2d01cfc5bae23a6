"""Structural equality of graph functions: `same`, `assert_same`, `structural_hash`.

A function is turned into a canonical form: nested tuples of strings and numbers, in which values and dims are numbered in order of
definition. Names of values, spans and origins are ignored; names of functions, parameters and dims, and contracts of dims count.

    assert_same(f, parse(print(f)))      # AssertionError: nodes[3].attrs: 2 is not 1
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from ..dtype import DType
from ..support.mapped import mapped_pages
from ..sym.expr import Dim, Expr, Var
from ..sym.text import text
from . import node as g

_LARGE = 1 << 20  # bytes of a literal whose pages are given back after reading: fewer are not worth the call

Form = Any  # nested tuples of (label, form), texts and numbers


def canonical(function: g.Function, literal: Callable[[np.ndarray[Any, Any]], Form] | None = None) -> Form:
    """Returns the canonical form of a function: equal for functions that differ only in names of values and in spans.

    `literal` gives the form of a literal tensor; by default that is `array_form`, which covers its values.
    """
    return _Canonical(literal or array_form).function(function)


def same(a: g.Function, b: g.Function) -> bool:
    """True if the two have the same structure: they differ at most in names of values and in spans."""
    return bool(canonical(a) == canonical(b))


def assert_same(a: g.Function, b: g.Function) -> None:
    """Raises an AssertionError that names the first place where two functions differ; does nothing if they do not."""
    difference = _difference(canonical(a), canonical(b), a.name)
    if difference is not None:
        raise AssertionError(difference)


def structural_hash(function: g.Function) -> str:
    """A hash of the structure: equal for functions that `same` considers equal."""
    return hashlib.sha256(repr(canonical(function)).encode()).hexdigest()


def _difference(a: Form, b: Form, path: str) -> str | None:
    """The first place where two forms differ, as a message; None if they are equal."""
    if a == b:
        return None
    if isinstance(a, tuple) and isinstance(b, tuple):
        for k, (x, y) in enumerate(zip(a, b, strict=False)):
            if _labeled(x) and _labeled(y) and x[0] == y[0]:
                difference = _difference(x[1], y[1], f"{path}.{x[0]}")
            else:
                difference = _difference(x, y, f"{path}[{k}]")
            if difference is not None:
                return difference
        return f"{path}: {len(b)} items, not {len(a)}"
    return f"{path}: {b!r} is not {a!r}"


def _labeled(form: Form) -> bool:
    """True for a pair of a field name and a form."""
    return isinstance(form, tuple) and len(form) == 2 and isinstance(form[0], str) and form[0].isidentifier()


class _Canonical:
    """Builds the canonical form; numbers values and dims in the order of their first appearance."""

    def __init__(self, literal: Callable[[np.ndarray[Any, Any]], Form]) -> None:
        self.literal = literal
        self.values: dict[g.Value, int] = {}
        self.dims: dict[Expr, str] = {}
        self.texts: dict[Expr, str] = {}  # a cache: the same few sizes occur in most annotations

    def function(self, f: g.Function) -> Form:
        params = tuple((p.name, self.define(p)) for p in f.params)
        nodes = tuple(self.node(n) for n in f.nodes)
        relations = tuple(self.expr(r.cond) for r in g.relations(f))
        results = tuple(self.use(r) for r in f.results)
        form = (("name", f.name), ("params", params), ("nodes", nodes), ("results", results))
        return (*form, ("relations", relations)) if relations else form

    def define(self, value: g.Value) -> Form:
        self.values[value] = len(self.values)
        return self.annotation(value.annotation)

    def use(self, value: g.Value) -> int:
        return self.values.get(value, -1)

    def expr(self, e: Expr) -> str:
        printed = self.texts.get(e)
        if printed is None:
            printed = self.texts[e] = text(e, None, self._name)
        return printed

    def _name(self, e: Expr) -> str:
        """The canonical name of a variable: its number in order of appearance, its name and its contract."""
        if e not in self.dims:
            contract = f" in {e.min}..{e.max}/{e.multiple_of}" if isinstance(e, Dim) else ""
            self.dims[e] = f"#{len(self.dims)}{e.name if isinstance(e, Var) else e.payload}{contract}"
        return self.dims[e]

    def annotation(self, a: g.Annotation) -> Form:
        kind = f"{type(a).__name__} {getattr(a, 'dtype', '')} {getattr(a, 'state', '')}"
        return (kind, tuple(self.expr(e) for e in g.annotation_exprs(a)), tuple(self.expr(e) for e in g.stride_exprs(a)))

    def attr(self, value: Any) -> Form:
        if isinstance(value, Expr):
            return self.expr(value)
        if isinstance(value, tuple):
            return tuple(self.attr(v) for v in value)
        return str(value) if isinstance(value, DType) else value

    def node(self, node: g.Node) -> Form:
        what = self.content(node)
        outs = tuple(self.define(o) for o in node.outs)
        return (("kind", type(node).__name__), *what, ("outs", outs), ("requires", tuple(self.expr(r.cond) for r in node.requires)))

    def content(self, node: g.Node) -> tuple[Form, ...]:
        """Returns the canonical form of a node's fields, without its outs."""
        match node:
            case g.Const():
                return (("array", self.literal(node.array)),)
            case g.Op():
                attrs = () if node.attrs is None else tuple((f.name, self.attr(getattr(node.attrs, f.name))) for f in fields(node.attrs))
                return (("op", node.op), ("args", self.args(node.args)), ("attrs", attrs))
            case g.CallLoop():
                return (("callee", callee_form(node.callee)), ("args", self.args(node.args)), ("dims", tuple(map(self.expr, node.dims))))
            case g.CallLibrary():
                return (("symbol", node.symbol), ("args", self.args(node.args)))
            case g.CallHost():
                return (("fn", getattr(node.fn, "__name__", repr(node.fn))), ("args", self.args(node.args)))
            case g.CallFunction():
                return (("function", _Canonical(self.literal).function(node.function)), ("args", self.args(node.args)))
            case g.MatchCast():
                return (("value", self.use(node.value)), ("defines", tuple(map(self._name, node.defines))))
            case g.If():
                return (("cond", self.use(node.cond)), ("then", self.body(node.then)), ("orelse", self.body(node.orelse)))
            case g.While():
                return (("init", self.args(node.init)), ("cond", self.body(node.cond)), ("body", self.body(node.body)))
        raise AssertionError(type(node).__name__)

    def args(self, args: tuple[g.Value | Expr, ...]) -> Form:
        return tuple(self.use(a) if isinstance(a, g.Value) else self.expr(a) for a in args)

    def body(self, body: g.Body) -> Form:
        params = tuple(self.define(p) for p in body.params)
        nodes = tuple(self.node(n) for n in body.nodes)
        return (("params", params), ("nodes", nodes), ("results", tuple(self.use(r) for r in body.results)))


def array_form(array: np.ndarray[Any, Any]) -> Form:
    """Returns the canonical form of a literal tensor: dtype, shape and hash of the bits.

    Gives the pages of a large one back to the system if it is a view of a mapped file.
    """
    form = (str(array.dtype), array.shape, hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest())
    if array.nbytes >= _LARGE and (release := mapped_pages([array])) is not None:
        release()  # the weights of a model are in a mapped file, which would be in memory as a whole otherwise
    return form


def callee_form(callee: g.Callee) -> Form:
    """Returns the canonical form of a loop program: name and signature, not the body."""
    names = _Canonical(array_form)

    def texts(dims: tuple[Expr, ...] | None) -> Form:
        return None if dims is None else tuple(map(names.expr, dims))

    params = tuple((p.name, str(p.dtype), p.role, texts(p.shape), texts(p.strides)) for p in callee.params)
    return (callee.name, params)
