"""The verifier of graph functions: checks the rules of `node.py` after each pass. A violation is a bug in Pliant, not in the program.

- Every value is defined once, and before its uses, in the same body or an enclosing one.
- Every variable is defined (as a whole dim of a parameter, by a match_cast, by a call that returns a new one) before an annotation,
  attribute, dim or condition uses it.
- State is consumed at most once and not used afterwards; both branches consume the same state or return it; loops carry the state
  that they consume.
- Every annotation equals the deduced one, and every run-time check that deduction requires is made: by the node, or implied by an
  earlier match_cast in the same body or an enclosing one.
- Called functions have distinct names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..support.errors import Error, InternalError
from ..sym.expr import Eq, Expr, Var, free_vars
from ..sym.facts import EMPTY, Facts
from ..sym.relations import facts_of
from . import node as g
from .annotation import ONE, annotation_vars, decide, defined_vars, map_dims, substitute_annotation
from .deduce import Deduction, check_condition, deduce_call, deduce_function, deduce_match, join
from .op_table import TABLE, node_defines, updated_state
from .operators import attr_exprs


def verify(function: g.Function) -> None:
    """Raises an InternalError at the first violation in the function or in a function that it calls, or if two have one name."""
    from .printer import called_functions

    names: set[str] = set()
    for f in called_functions(function):
        if f.name in names:
            raise InternalError(f"two functions are named `{f.name}`", where=f.span)
        names.add(f.name)
        _Verifier(f).run()


class _Scope:
    """The state of verification in a body: visible values and dims, consumed state, and facts."""

    def __init__(self, outer: _Scope | None = None, loop: bool = False) -> None:
        self.outer = outer
        self.loop = loop
        self.own: set[g.Value] = set()
        self.values: set[g.Value] = set(outer.values) if outer else set()
        self.dims: set[Var] = set(outer.dims) if outer else set()
        self.consumed: set[g.Value] = set(outer.consumed) if outer else set()
        self.facts: Facts = outer.facts if outer else EMPTY  # the conditions that earlier match_casts have checked


class _Verifier:
    """Verifies one graph function: SSA, dims, state, and annotations as deduction gives them."""

    def __init__(self, function: g.Function) -> None:
        self.function = function
        self.defined: set[g.Value] = set()
        self.facts = facts_of(r.cond for r in g.relations(function))  # every call checks them first

    def fail(self, what: str, node: g.Node | None = None, facts: Sequence[str] = ()) -> InternalError:
        """Returns the InternalError for a violation, with the node and the function."""
        shown = [f"in function `{self.function.name}`", *([f"at {', '.join(map(repr, node.outs))}"] if node else []), *facts]
        return InternalError(what, where=node.span if node else self.function.span, facts=shown)

    def run(self) -> None:
        f = self.function
        scope = _Scope()
        scope.dims.update(defined_vars(p.annotation for p in f.params))
        self.known([r.cond for r in g.relations(f)], scope, None)
        scope.facts = self.facts
        for p in f.params:
            self.define(p, scope, None)
        self.nodes(f.nodes, scope)
        for r in f.results:
            self.use(r, scope, None)

    # Values, dims, state.

    def define(self, value: g.Value, scope: _Scope, node: g.Node | None) -> None:
        """Records the definition of a value; raises if it is defined twice or its annotation uses an undefined dim."""
        if value in self.defined:
            raise self.fail(f"`{value.name}` is defined twice", node)
        self.defined.add(value)
        self.known((*g.annotation_exprs(value.annotation), *g.stride_exprs(value.annotation)), scope, node)
        scope.values.add(value)
        scope.own.add(value)

    def known(self, expressions: Iterable[Expr], scope: _Scope, node: g.Node | None) -> None:
        """Raises if an expression uses a dim that is not defined in the scope."""
        for e in expressions:
            for var in free_vars(e):
                if var not in scope.dims:
                    raise self.fail(f"dim `{var.name}` is used before it is defined", node, [f"in {e}"])

    def use(self, value: g.Value, scope: _Scope, node: g.Node | None) -> None:
        """Raises if a value is not defined here or is consumed state."""
        if value not in scope.values:
            raise self.fail(f"`{value.name}` is used where it is not defined", node)
        if value in scope.consumed:
            raise self.fail(f"state `{value.name}` is used after it was consumed", node)

    def consume(self, value: g.Value, scope: _Scope, node: g.Node) -> None:
        """Records that a node consumes state; raises if the value is no state, or inside a loop that does not carry it."""
        if not g.is_state(value):
            raise self.fail(f"`{value.name}` is consumed and is no state", node)
        inner: _Scope | None = scope
        while inner is not None and value not in inner.own:
            if inner.loop:
                raise self.fail(f"state `{value.name}` is consumed in every round of a loop", node)
            inner = inner.outer
        scope.consumed.add(value)

    # Nodes.

    def nodes(self, nodes: Sequence[g.Node], scope: _Scope) -> None:
        for node in nodes:
            self.node(node, scope)

    def node(self, node: g.Node, scope: _Scope) -> None:
        """Raises an InternalError if a node breaks a rule; records its effects on the scope."""
        args = g.node_args(node)
        for a in args:
            self.use(a, scope, node)
        if isinstance(node, g.Op) and node.op not in TABLE:
            raise self.fail(f"there is no operator `{node.op}`", node)
        consumed = consumes(node)
        for value in consumed:
            if sum(a is value for a in args) > 1:
                raise self.fail(f"state `{value.name}` is consumed and used again by the same node", node)
        if isinstance(node, g.Op):
            defines = node_defines(node)
            self.known([e for e in attr_exprs(node.attrs) if e not in defines], scope, node)
            for var in defines:
                if var in scope.dims:
                    raise self.fail(f"dim `{var.name}` is defined twice", node)
            scope.dims.update(defines)
        if isinstance(node, g.CallLoop):
            self.known([*node.dims, *(a for a in node.args if isinstance(a, Expr))], scope, node)
        for r in node.requires:
            self.known([r.cond, *r.values], scope, node)
        try:
            annotations, requires = self.deduce(node, scope)
        except InternalError:
            raise
        except Error as error:
            raise self.fail(f"deduction fails: {error.what}", node, error.facts) from error
        for value in consumed:
            self.consume(value, scope, node)
        self.compare(node, annotations, requires, scope.facts)
        if isinstance(node, g.MatchCast):
            for r in node.requires:
                scope.facts = scope.facts.with_condition(r.cond)
        for out in node.outs:
            self.define(out, scope, node)

    def deduce(self, node: g.Node, scope: _Scope) -> tuple[Sequence[g.Annotation], Sequence[Expr]]:
        """Deduces the node again: returns the annotations of its outs and its run-time conditions.

        Raises if the node itself is malformed.
        """
        d = Deduction("match_cast", g.node_args(node), self.facts, span=node.span)
        match node:
            case g.Op():
                op = TABLE[node.op]
                least, most = op.arity
                if len(node.args) < least or (most is not None and len(node.args) > most):
                    raise self.fail(f"`{node.op}` has {len(node.args)} arguments", node)
                d.what = node.op
                return op.deduce(d, node.attrs), [r.cond for r in d.requires]
            case g.CallLoop():
                return self.call_loop(node, d)
            case g.CallFunction():
                d.what = node.function.name
                results = deduce_function(d, node.function)
                scope.dims.update(v for v in defined_vars(o.annotation for o in node.outs) if v not in scope.dims)
                return _unified(results, node.outs, scope.dims), [r.cond for r in d.requires]
            case g.MatchCast():
                target = node.outs[0].annotation
                defines = deduce_match(d, target, frozenset(scope.dims))
                if set(defines) != set(node.defines):
                    raise self.fail("a match_cast defines other variables than it says", node)
                scope.dims.update(defines)
                return [target], [r.cond for r in d.requires]
            case g.If():
                return self.if_(node, scope), []
            case g.While():
                return self.while_(node, scope), []
            case g.Const():
                shape = tuple(int(n) for n in node.array.shape)
                a = node.outs[0].annotation
                if not isinstance(a, g.Tensor) or a.dtype.numpy() != node.array.dtype or tuple(map(str, a.shape)) != tuple(map(str, shape)):
                    raise self.fail("a literal is not what its annotation says", node)
        return [o.annotation for o in node.outs], []

    def call_loop(self, node: g.CallLoop, d: Deduction) -> tuple[Sequence[g.Annotation], Sequence[Expr]]:
        """Deduces a call of a loop program again; returns the annotations of its results, and the run-time conditions that it needs.

        Raises an InternalError for a wrong number of arguments.
        """
        params = [p for p in node.callee.params if p.role != "out"]
        if len(params) != len(node.args):
            raise self.fail(f"`{node.callee.name}` has {len(node.args)} arguments, not {len(params)}", node)
        d.args = tuple(a if isinstance(a, g.Value) else g.Value("", g.Scalar(a.dtype, a)) for a in node.args)
        d.what = node.callee.name
        outs, _ = deduce_call(d, node.callee, node.dims)
        return outs, [r.cond for r in d.requires]

    def if_(self, node: g.If, scope: _Scope) -> list[g.Annotation]:
        """Verifies the branches of an `If`, and returns the annotations of its results.

        Raises if they consume different state or differ in results.
        """
        check_condition(node.cond, node.span)
        inner = [self.body(b, _Scope(scope), node) for b in (node.then, node.orelse)]
        gone = [{v for v in s.consumed if v not in s.own and v not in scope.consumed} for s in inner]
        gone = [states | set(g.passed_state(b)) for states, b in zip(gone, (node.then, node.orelse), strict=True)]
        if gone[0] != gone[1]:
            raise self.fail("the branches consume different state", node)
        if not len(node.then.results) == len(node.orelse.results) == len(node.outs):
            raise self.fail("the branches have different numbers of results", node)
        scope.consumed.update(gone[0])
        return [join(a, b, node.span) for a, b in zip(node.then.results, node.orelse.results, strict=True)]

    def while_(self, node: g.While, scope: _Scope) -> list[g.Annotation]:
        """Verifies the bodies of a `While`, and returns the annotations of its results; raises if a carried value changes."""
        if not len(node.init) == len(node.outs) == len(node.cond.params) == len(node.body.params) == len(node.body.results):
            raise self.fail("a loop carries different numbers of values", node)
        if len(node.cond.results) != 1:
            raise self.fail("the condition of a loop has one result", node)
        if self.body(node.cond, _Scope(scope, loop=True), node).consumed - scope.consumed:
            raise self.fail("the condition of a loop consumes state", node)
        self.body(node.body, _Scope(scope, loop=True), node)
        check_condition(node.cond.results[0], node.span)
        for init, out, c, p, r in zip(node.init, node.outs, node.cond.params, node.body.params, node.body.results, strict=True):
            for value in (init, out, c, r):
                if not _equal(_forgotten(p.annotation), _forgotten(value.annotation)):
                    raise self.fail(f"`{p.name}` changes from round to round of a loop", node, [f"{p.annotation}", f"{value.annotation}"])
        return [p.annotation for p in node.body.params]

    def body(self, body: g.Body, scope: _Scope, node: g.Node) -> _Scope:
        """Verifies a body in a new scope; returns the scope."""
        for p in body.params:
            self.define(p, scope, node)
        self.nodes(body.nodes, scope)
        for r in body.results:
            self.use(r, scope, node)
        return scope

    def compare(self, node: g.Node, annotations: Sequence[g.Annotation], requires: Sequence[Expr], facts: Facts) -> None:
        """Raises if the annotations of a node differ from the deduced ones, or a run-time check is missing."""
        if len(annotations) != len(node.outs):
            raise self.fail(f"a node has {len(node.outs)} results, deduction gives {len(annotations)}", node)
        for out, a in zip(node.outs, annotations, strict=True):
            if not _equal(out.annotation, a, facts):
                raise self.fail(f"`{out.name}` is annotated {out.annotation}, deduction gives {a}", node)
        have = {r.cond for r in node.requires}
        for condition in requires:
            if condition in have:
                continue
            for c in have:  # the missing check may follow from those that the node makes
                facts = facts.with_condition(c)
            if not decide(condition, facts):
                raise self.fail("a run-time check is missing", node, [f"{condition}"])


def consumes(node: g.Node) -> list[g.Value]:
    """Returns the state that a node itself consumes, without that of its bodies."""
    match node:
        case g.CallLoop():
            params = [p for p in node.callee.params if p.role != "out"]
            return [a for p, a in zip(params, node.args, strict=False) if p.role == "inout" and isinstance(a, g.Value)]
        case g.CallFunction():
            return [a for p, a in zip(node.function.params, node.args, strict=False) if g.is_state(p)]
        case g.MatchCast():
            return [node.value] if g.is_state(node.value) and g.is_state(node.outs[0]) else []
        case g.While():
            return [a for a in node.init if g.is_state(a)]
    state = updated_state(node)
    return [] if state is None else [state]


def _forgotten(a: g.Annotation) -> g.Annotation:
    """The annotation of a loop-carried value: without the value of a scalar and without strides."""
    return g.Scalar(a.dtype) if isinstance(a, g.Scalar) else g.made(a)


def _equal(a: g.Annotation, b: g.Annotation, facts: Facts = EMPTY) -> bool:
    """True if `a` equals `b`, or their dims are proven equal; `a` may omit the value of a scalar."""
    if a == b:
        return True
    if isinstance(a, g.Scalar) and isinstance(b, g.Scalar) and a.value is None:
        return a.dtype is b.dtype
    if map_dims(a, lambda e: ONE) != map_dims(b, lambda e: ONE):
        return False
    pairs = [(x, y) for part in (g.annotation_exprs, g.stride_exprs) for x, y in zip(part(a), part(b), strict=True)]
    return all(x is y or decide(Eq(x, y), facts) for x, y in pairs)


def _unified(found: Sequence[g.Annotation], outs: Sequence[g.Value], known: set[Var]) -> list[g.Annotation]:
    """The result annotations of a call, with its newly defined variables renamed to those of the node's outs."""
    names: dict[Var, Expr] = {}
    for a, out in zip(found, outs, strict=False):
        for x, y in zip(g.annotation_exprs(a), g.annotation_exprs(out.annotation), strict=False):
            if isinstance(x, Var) and isinstance(y, Var) and x not in known:
                names.setdefault(x, y)
    return [substitute_annotation(a, names) if annotation_vars(a) & names.keys() else a for a in found]
