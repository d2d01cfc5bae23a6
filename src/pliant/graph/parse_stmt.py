"""Parses the statements of graph functions: turns assignments, branches and loops of the Python syntax tree into SSA nodes.

Assigning a name again creates a new value. After an `if`, a name that both branches assign is a result of the `If`. A `while` carries
the names that exist before it and are assigned in it. `while True: …; if not c: break; …` is the general (printed) form of a loop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..support.errors import Error, ShapeError, UnsupportedError, counted
from ..support.resolve import Source
from ..sym.expr import Expr, Var
from . import opset as ops
from .annotation import Fit, defined_vars, subsumes
from .builder import Builder
from .join_shapes import cut, differing_axes, joined_shape, padded
from .node import (
    Annotation,
    Function,
    Scalar,
    Tuple,
    Value,
    annotation_exprs,
    bodies,
    is_state,
    made,
    node_args,
    stride_exprs,
    walk_nodes,
)
from .parse_expr import Expressions, Unusable
from .parse_for import PYTHON_ITERATORS, bind, rounds


class Statements(Expressions):
    """Parses the statements of one Python function into a graph function."""

    def __init__(self, source: Source) -> None:
        tree = source.tree
        scope: Mapping[str, object] = {"tuple": tuple, **PYTHON_ITERATORS, **source.scope}
        super().__init__(Source(source.file, source.lines, tree, scope), Builder(tree.name, span=source.span(tree)))
        self.given: frozenset[Var] = frozenset()  # the dims that the parameters define

    def function(self) -> Function:
        """Parses the whole function; returns the graph function.

        Raises if it does not end with `return`, or if a new state is dropped.
        """
        tree = self.source.tree
        returns = self.annotation(tree.returns) if tree.returns is not None else None
        self._params(tree.args)
        body = tree.body
        if not isinstance(body[-1], ast.Return):
            inner = next(_returns(body), None)
            if inner is not None:
                raise self._early_return(inner)
            raise self.error(tree, f"`{tree.name}` returns nothing", help="end it with `return`")
        self.block(body[:-1])
        last = body[-1]
        assert isinstance(last, ast.Return)
        results = self._results(last, returns)
        self.builder.span = self.source.span(last)
        self.builder.spans = {}
        names = _result_names(last, len(results))
        function = self.located(last, lambda: self.builder.finish(results, {"outputs": names}))
        assert isinstance(function, Function)
        self._no_dropped_state(function)
        return function

    # Parameters and results.

    def _params(self, args: ast.arguments) -> None:
        """Parses the parameters; raises for defaults, `*args` and missing annotations."""
        for extra in (args.vararg, args.kwarg):
            if extra is not None:
                raise self.error(extra, f"`{extra.arg}` stands for any number of parameters", help="name each parameter")
        if args.defaults or any(args.kw_defaults):
            default = (args.defaults + [d for d in args.kw_defaults if d])[0]
            raise self.error(default, "parameters have no defaults", help="leave it out, or write the number into the body")
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
        written: list[tuple[ast.arg, Annotation]] = []
        for arg in every:
            if arg.annotation is None:
                raise self.error(arg, f"parameter `{arg.arg}` has no annotation", help=f"for example {arg.arg}: Tensor[f32, n, 64]")
            annotation = self.annotation(arg.annotation)
            written.append((arg, annotation))
        for arg, annotation in written:  # only now: as in Python, annotations are resolved without the parameter names
            self.names[arg.arg] = self.builder.param(arg.arg, annotation)
        self.given = frozenset(defined_vars(annotation for _, annotation in written))
        for arg, annotation in written:
            assert arg.annotation is not None
            self.builder.check_dims((*annotation_exprs(annotation), *stride_exprs(annotation)), self.source.span(arg.annotation))

    def _results(self, node: ast.Return, returns: Annotation | None) -> list[Value]:
        """Returns the returned values, checked against the return annotation; raises if their number or annotations differ."""
        if node.value is None:
            raise self.error(node, "`return` without a value", help="return a tensor or several")
        parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        items = [self.evaluate(p) for p in parts]
        if len(items) == 1 and isinstance(items[0], tuple):
            items, parts = list(items[0]), [node.value] * len(items[0])
        expected = list(returns.items) if isinstance(returns, Tuple) else [returns] * 1 if returns is not None else [None] * len(items)
        values = [
            self.value(p, item, e if isinstance(e, Scalar) else None)
            for p, item, e in zip(parts, items, expected + [None] * len(items), strict=False)
        ]
        if len(expected) != len(values):
            tree = self.source.tree
            raise self.error(
                tree.returns or node,
                f"the return annotation has {len(expected)} item{'s' * (len(expected) != 1)}, the function returns {len(values)}",
                help=f"it returns tuple[{', '.join(str(v.annotation) for v in values)}]",
            )
        return [v if e is None else self._check_result(node, p, v, e) for p, v, e in zip(parts, values, expected, strict=True)]

    def _check_result(self, node: ast.Return, part: ast.expr, value: Value, expected: Annotation) -> Value:
        """Returns one result; raises unless it fits its annotation. If only run time can decide, a match_cast checks it."""
        pairs = zip(annotation_exprs(expected), annotation_exprs(value.annotation), strict=False)
        # A dim that only a run tells may get its name here: Tensor[f32, u] where the result has a new dim.
        named = {e for e, f in pairs if isinstance(e, Var) and isinstance(f, Var) and f not in self.given and e not in self.builder.dims}
        left = [e for e in annotation_exprs(expected) if e not in named]
        self.builder.check_dims(left, self.source.span(self.source.tree.returns or node))
        match = subsumes(expected, value.annotation)
        if match.fit is Fit.HOLDS:
            return value
        if match.fit is Fit.CHECK:
            promise = f"the result is promised as {expected}"
            checked = self.run(part, lambda: self.builder.match_cast(value, expected, promise), [(part, value)], value.name)
            assert isinstance(checked, Value)
            return checked
        returns = self.source.tree.returns
        raise ShapeError(
            "the function does not return what its annotation says",
            where=self.source.span(part),
            note="this is returned",
            notes=[(self.source.span(returns), "this is promised")] if returns is not None else (),
            facts=[f"`{ast.unparse(part)}` is {value.annotation}", f"the annotation says {expected}", match.reason],
            help="correct the annotation or the result",
        )

    def _no_dropped_state(self, function: Function) -> None:
        """Raises if a new state is neither used nor returned: the update would be lost."""
        used: set[Value] = set(function.results)
        nodes = list(walk_nodes(function.nodes))
        for node in nodes:
            used.update(node_args(node))
            for body in bodies(node):
                used.update(body.results)
        for node in nodes:
            for out in node.outs:
                if is_state(out) and out not in used:
                    raise Error(
                        f"the new state `{out.name}` is dropped",
                        where=node.span,
                        note="updated here",
                        help="return it, so that the caller has the new state",
                    )

    # Statements.

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Parses statements in order."""
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Parses one statement; raises if graph functions do not have it."""
        match node:
            case ast.Assign([target], value):
                self._assign(target, value)
            case ast.AnnAssign(ast.Name() as target, annotation, ast.expr() as value):
                self._assign(target, value)
                self._check_annotation(target, annotation)
            case ast.AugAssign(ast.Name() as target, op, value):
                load = ast.copy_location(ast.Name(target.id, ast.Load()), target)
                self._assign(target, ast.copy_location(ast.BinOp(load, op, value), node))
            case ast.If():
                self._if(node)
            case ast.While():
                self._while(node)
            case ast.For():
                self._for(node)
            case ast.Expr(ast.Constant(str())) | ast.Pass():
                pass
            case ast.Expr(ast.Call(ast.Attribute(ast.Name("ops"), "require"))):
                self.evaluate(node.value)
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [item])) if isinstance(self.names.get(name), list):
                help_ = f"make a new list: {name} = {name} + [{ast.unparse(item)}]"
                raise self.error(node, "lists are not changed in place", help=help_)
            case ast.Expr(value):
                raise self.error(value, "the result of this expression is not used", help="graph functions have no side effects: assign it")
            case ast.Return():
                raise self._early_return(node)
            case _:
                raise self._unsupported(node)

    def _early_return(self, node: ast.Return) -> Error:
        """Returns the error for a `return` before the end of the function."""
        help_ = "assign the result in both branches, and return it after them"
        return self.error(node, "`return` stands at the end of a function only", help=help_)

    def _unsupported(self, node: ast.stmt) -> Error:
        """Returns the error for a Python statement that graph functions do not have."""
        name = {ast.With: "`with`", ast.Try: "`try`", ast.FunctionDef: "a nested function", ast.Assert: "`assert`"}
        unrolled = "`for` is unrolled: write what it skips under an `if` whose condition is known when the function is read"
        help_ = {
            ast.Break: unrolled,
            ast.Continue: unrolled,
            ast.Assert: "match_cast checks shapes at run time",
            ast.FunctionDef: "define it outside, decorated with @function",
        }
        shown = name.get(type(node), f"`{ast.unparse(node).splitlines()[0]}`")
        return UnsupportedError(f"{shown} is not part of graph functions", where=self.source.span(node), help=help_.get(type(node), ""))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        """Parses an assignment to a name or to several names.

        Raises an Error for other targets, and if the numbers of names and values differ.
        """
        if isinstance(target, ast.Name):
            self.names[target.id] = self.evaluate(value, target.id)
            return
        if not isinstance(target, ast.Tuple | ast.List) or not all(isinstance(t, ast.Name) for t in target.elts):
            raise self.error(target, "only names can be assigned", help="tensors are not changed in place; make a new one")
        names = [t.id for t in target.elts if isinstance(t, ast.Name)]
        if isinstance(value, ast.Tuple) and len(value.elts) == len(names):
            results: Any = [self.evaluate(v, n) for n, v in zip(names, value.elts, strict=True)]
        else:
            results = self.evaluate(value, ",".join(names))
        if not isinstance(results, tuple | list):
            raise self.error(target, f"{counted(len(names), 'name')} for one value")
        if len(results) != len(names):
            raise self.error(target, f"{counted(len(names), 'name')} for {counted(len(results), 'value')}")
        self.names.update(zip(names, results, strict=True))

    def _check_annotation(self, target: ast.Name, node: ast.expr) -> None:
        """Makes the assigned name a graph value; raises if it does not provably have the annotation that is written for it."""
        expected = self.annotation(node)
        value = self.value(target, self.names[target.id], expected)
        self.names[target.id] = value
        match = subsumes(expected, value.annotation)
        if match.fit is not Fit.HOLDS:
            raise ShapeError(
                f"`{target.id}` is not what its annotation says",
                where=self.source.span(node),
                facts=[f"it is {value.annotation}", *([match.reason] if match.reason else [])],
                help="match_cast asserts what is known only at run time" if match.fit is Fit.CHECK else "",
            )

    # Branches.

    def _condition(self, node: ast.expr) -> Value | bool:
        """Evaluates a condition: a bool if it is known at compile time, otherwise a value."""
        cond = self.evaluate(node, "cond")
        return cond if isinstance(cond, bool) else self.value(node, cond)

    def _if(self, node: ast.If) -> None:
        """Parses an `if`: both branches become bodies, and the names that they assign become results.

        If the condition is known when the function is read, only the taken branch is parsed. A tensor whose extents differ between the
        branches is padded to the larger ones, and cut to a new dim after the `if`.
        """
        cond = self._condition(node.test)
        if isinstance(cond, bool):  # known at compile time: only the taken branch is parsed
            self.block(node.body if cond else node.orelse)
            return
        before = dict(self.names)
        self.builder.open()
        self.block(node.body)
        then_names, then = self.names, self.builder.pause()
        self.names = dict(before)
        self.builder.open()
        self.block(node.orelse)
        else_names, orelse = self.names, self.builder.pause()
        self.names = dict(before)
        stored = _stored([*node.body, *node.orelse])
        same = [n for n in stored if then_names.get(n) is else_names.get(n) and not isinstance(then_names.get(n), Value)]
        self.names.update({n: then_names[n] for n in same})
        changed = [n for n in stored if n not in same]
        merged = [n for n in changed if self._mergeable(n, node, then_names, else_names)]
        shapes = {n: shape for n in merged if (shape := self._joined(then_names[n], else_names[n])) is not None}
        self.builder.resume(then)
        then_body = self.builder.close(self._branch_results(node, merged, then_names, else_names, shapes))
        self.builder.resume(orelse)
        else_body = self.builder.close(self._branch_results(node, merged, else_names, then_names, shapes))
        axes = {n: differing_axes(then_names[n], else_names[n]) for n in shapes}
        hints = [*(f"{n}_all" if n in shapes else n for n in merged), *(f"{n}_extent" for n in shapes for _ in axes[n])]
        outs = self.run(node, lambda: self.builder.if_(cond, then_body, else_body), [(node.test, cond)], ",".join(hints))
        self.names.update(zip(merged, outs, strict=False))
        extents = list(outs[len(merged) :])
        for n in shapes:
            own, extents = extents[: len(axes[n])], extents[len(axes[n]) :]
            self.names[n] = self.run(node, lambda n=n, own=own: cut(self.names[n], own, axes[n]), [], n)  # type: ignore[misc]

    def _joined(self, a: Any, b: Any) -> tuple[Expr, ...] | None:
        """Returns the shape that holds the results of both branches.

        None if these are no tensors, agree already, or differ in more than extents.
        """
        if not isinstance(a, Value) or not isinstance(b, Value) or _agree(a.annotation, b.annotation):
            return None
        return joined_shape(self.builder, a, b)

    def _branch_results(
        self, node: ast.If, merged: Sequence[str], own: dict[str, Any], other: dict[str, Any], shapes: Mapping[str, tuple[Expr, ...]]
    ) -> list[Value]:
        """Returns the results of one branch: values of the merged names, then extents.

        A name of `shapes` gets its value padded to that shape, and its real extents follow, along the axes in which the branches differ.
        """
        values: list[Value] = []
        extents: list[Value] = []
        for name in merged:
            if name not in shapes:
                values.append(self.value(node, own[name]))
                continue
            make = self.run(node, lambda n=name: padded(self.builder, own[n], other[n], shapes[n]), [], f"{name}_all")  # type: ignore[misc]
            values.append(make[0])
            extents += make[1]
        return values + extents

    def _mergeable(self, name: str, node: ast.If, then: dict[str, Any], orelse: dict[str, Any]) -> bool:
        """True if a name can be a result of the branches; otherwise it is marked unusable after them."""
        a, b = then.get(name), orelse.get(name)
        here = self.source.span(node)
        if a is None or b is None or isinstance(a, Unusable) or isinstance(b, Unusable):
            which = "first" if b is None else "second"
            help_ = f"assign `{name}` in both branches, or before them"
            self.names[name] = Unusable(f"`{name}` is assigned in the {which} branch only", ((here, "these branches"),), (), help_)
            return False
        kinds = Value | Expr | bool | int | float
        if not isinstance(a, kinds) or not isinstance(b, kinds):
            self.names[name] = Unusable(f"`{name}` is no tensor, and differs between the branches", ((here, "these branches"),))
            return False
        if isinstance(a, Value) and isinstance(b, Value) and not _agree(a.annotation, b.annotation) and self._joined(a, b) is None:
            facts = (f"in the first branch it is {a.annotation}", f"in the second branch it is {b.annotation}")
            help_ = "both branches must give the same dtype and number of dims; match_cast can assert a common shape"
            self.names[name] = Unusable(f"the branches disagree about `{name}`", ((here, "these branches"),), facts, help_)
            return False
        return True

    # Loops.

    def _for(self, node: ast.For) -> None:
        """Parses a `for`: its body once for each item that it goes through (`parse_for.py`). Raises an Error for other forms."""
        if node.orelse:
            raise self.error(node.orelse[0], "`for` has no `else` here")
        for item in rounds(self, node.iter):
            bind(self, node.target, item)
            self.block(node.body)

    def _while(self, node: ast.While) -> None:
        """Parses a `while`: the names that its body assigns and that exist before it become loop-carried values.

        Raises an Error for other forms.
        """
        if node.orelse:
            raise self.error(node.orelse[0], "`while` has no `else` here")
        head, test, negated, rest = self._loop_parts(node)
        carried = [n for n in _stored(rest) if n in self.names and not isinstance(self.names[n], Unusable)]
        init = [self.value(node, self.names[n]) for n in carried]
        annotations = [Scalar(v.annotation.dtype) if isinstance(v.annotation, Scalar) else made(v.annotation) for v in init]
        before = dict(self.names)

        def enter() -> None:
            params = [self.builder.carried(n, a) for n, a in zip(carried, annotations, strict=True)]
            self.builder.open(params, loop=True)
            self.names = before | dict(zip(carried, params, strict=True))

        enter()
        self.block(head)
        condition = self._condition(test)
        cond = self.value(test, condition)
        if negated:
            cond = self.run(test, lambda: ops.logical_not(cond), [(test, cond)], "cond")
        cond_body, consumed = self.builder.close([cond])
        if consumed:
            raise self.error(test, "the condition of a loop consumes state", help="update state in the body")
        inner = [n for n in _stored(head) if n not in carried]
        enter()
        why = "is computed for the loop's condition only"
        self.names.update({n: Unusable(f"`{n}` {why}", ((self.source.span(test), "this condition"),)) for n in inner})
        self.block(rest)
        results = [self.value(node, self.names[n], a) for n, a in zip(carried, annotations, strict=True)]
        body, _ = self.builder.close(results)
        self.names = before
        outs = self.run(node, lambda: self.builder.while_(init, cond_body, body), [], ",".join(carried))
        for n in [*_stored(rest), *inner]:
            if n not in before:
                self.names[n] = Unusable(
                    f"`{n}` is assigned only inside the loop",
                    ((self.source.span(node), "this loop"),),
                    (),
                    f"assign `{n}` before the loop, which may run zero times",
                )
        self.names.update(zip(carried, outs, strict=True))

    def _loop_parts(self, node: ast.While) -> tuple[list[ast.stmt], ast.expr, bool, list[ast.stmt]]:
        """Splits a loop into the statements before the condition, the condition, True if it ends the loop (a negated one), and the rest.

        Raises if the loop has no condition: `while True` without a `break` under an `if`.
        """
        if not (isinstance(node.test, ast.Constant) and node.test.value is True):
            return [], node.test, False, node.body
        for k, statement in enumerate(node.body):
            if isinstance(statement, ast.If) and len(statement.body) == 1 and isinstance(statement.body[0], ast.Break):
                test = statement.test
                if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
                    return node.body[:k], test.operand, False, node.body[k + 1 :]
                return node.body[:k], test, True, node.body[k + 1 :]
        raise self.error(node, "this loop does not end", help="write `while condition:`, or `if not condition: break` inside")


def _result_names(node: ast.Return, count: int) -> tuple[str, ...]:
    """The names of the results: those of the returned variables; `result` or `result_0`, … for other expressions."""
    parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * count
    one = count == 1
    named = [p.id if isinstance(p, ast.Name) and (one or isinstance(node.value, ast.Tuple)) else "" for p in parts]
    return tuple(name or ("result" if one else f"result_{k}") for k, name in enumerate(named))


def _agree(a: Annotation, b: Annotation) -> bool:
    """True if a name can have either annotation after branches; values of scalars may differ."""
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        return a.dtype is b.dtype
    return subsumes(made(a), made(b)).fit is Fit.HOLDS


def _stored(statements: Sequence[ast.stmt]) -> list[str]:
    """Returns the names that the statements assign, each once, in order."""
    names = (n.id for s in statements for n in _walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return list(dict.fromkeys(names))


def _returns(statements: Sequence[ast.stmt]) -> Iterator[ast.Return]:
    """The `return` statements, including those inside branches and loops but not those of nested functions."""
    for s in statements:
        if isinstance(s, ast.Return):
            yield s
        elif isinstance(s, ast.If | ast.While | ast.For):
            yield from _returns([*s.body, *s.orelse])


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yields every syntax node in source order (`ast.walk` goes breadth first), without comprehensions, whose names are their own."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ListComp):
            yield from _walk(child)
