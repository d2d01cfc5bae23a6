"""Inline functions: pieces of loop programs, written in the loop language, that are expanded where a kernel or another one calls them.

A generator of kernels (a Python function that returns one) is cut into pieces with them, without a call at run time:

    @inline
    def less(a, b): return a < b or (b != b and a == a)   # one `return`: an expression

    @inline
    def clear(x, count):                                  # else statements
        for i in vector(count):
            x[i] = 0.0

    @compile_time
    def last_two(shape): return shape[-2:]                # Python code, which runs while the kernel is parsed

Arguments are passed by name: buffers, expressions (computed where they are used, not once), Python numbers, dtypes, tuples, and other
inline functions, so that one can be given the way to load an element. A `def` inside an inline function makes one that sees its loops and
buffers. An inline function sees the names of its Python scope, buffers among them. Without parameters, over the buffers of an operator, it
is the body of a loop program (`Inline.statements`).

What Python knows is decided while the function is expanded:

    if CAUSAL: ... else: ...                  only the branch that is taken is parsed; so are `a if CAUSAL else b`, `select`, `and`, `or`
    for half in (8, 4, 2, 1): ...             a loop over a Python tuple or range object is written out
    for i, j in grid(*OUTER, n): y[*i, j] = x[*i, 0]      the rank may be computed: `i` is a tuple of loop variables
    for i in grid(*OUTER, outermost="parallel"): ...      the kinds of the first and of the last loop (`innermost`), if there are loops
    with block("y", "SS", *i) as v: y[*v] = s[*()]        so may iterators of blocks; a scalar is a tensor of rank 0
    at = (x[i], x[j]); y[*at] = 0                         a tuple of values, each computed once
    t = alloc((*OUTER, 4), f32); OUTER[0]; OUTER[1:]      so may shapes; elements and slices of tuples
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from ..dtype import bool_, i64
from ..support.errors import counted
from ..support.resolve import ALLOWED_BUILTINS, Source, closure_of, source_of
from ..sym.expr import Add, And, Binary, Compare, Const, Eq, Expr, FloorDiv, FloorMod, Le, Lt, Mul, Ne, Not, Or, Sub, Var
from ..sym.parse import Open, Value
from .buffer import Buffer, Load
from .parse import LOOP_WORDS, KernelParser
from .scope import Binding, Expander, ScopedParser
from .stmt import Check, For, Iter, Let, Seq, Stmt, map_children, seq

SIMPLIFIED: dict[type[Binary], Callable[[Any, Any], Expr]] = {  # the operators of expressions fold constants and drop zeros and ones
    Add: operator.add, Sub: operator.sub, Mul: operator.mul, FloorDiv: operator.floordiv, FloorMod: operator.mod,
}  # fmt: skip
DECIDED: dict[type[Compare], Callable[[Any, Any], bool]] = {Lt: operator.lt, Le: operator.le, Eq: operator.eq, Ne: operator.ne}
KINDS = tuple(LOOP_WORDS.values())
_SOURCES: dict[CodeType, Source] = {}  # a generator defines the same functions again for each kernel: their trees are parsed once


class Inline(Expander):
    """A function in the loop language that is expanded in place where a kernel calls it.

    Arguments are passed by name. Conditions and loops over what Python knows are decided while it is expanded.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        assert isinstance(fn, FunctionType)
        self._fn = fn
        self._signature = inspect.signature(fn)
        if fn.__code__ not in _SOURCES:
            _SOURCES[fn.__code__] = source_of(fn)

    def expand(self, parser: ScopedParser, call: ast.Call) -> object:
        """Returns the statements or the expression for the arguments of a call."""
        return self._expanded(_bound(self._signature, parser, call).arguments, parser.repeats)

    def statements(self) -> Stmt:
        """Returns the expanded statements of a function without parameters, as the body of a loop program without source locations."""
        body = self._expanded({}, 0)
        assert isinstance(body, Stmt), f"`{self._fn.__name__}` is an expression"
        return _without_spans(body)

    def _expanded(self, args: Mapping[str, object], repeats: int) -> object:
        source = _SOURCES[self._fn.__code__]
        scope = ChainMap(closure_of(self._fn), self._fn.__globals__, ALLOWED_BUILTINS)
        parser = InlineParser(Source(source.file, source.lines, source.tree, scope))
        return parser.expansion(source.tree, args, repeats)


class LocalFunction(Expander):
    """A function inside an inline function: it sees the names around it, also those of loops and buffers."""

    def __init__(self, tree: ast.FunctionDef, around: InlineParser) -> None:
        self._tree, self._around = tree, around
        named = [inspect.Parameter(a.arg, inspect.Parameter.POSITIONAL_OR_KEYWORD) for a in tree.args.args]
        self._signature = inspect.Signature(named)

    def expand(self, parser: ScopedParser, call: ast.Call) -> object:
        """Returns the statements or the expression for the arguments of a call."""
        return self._around.expansion(self._tree, _bound(self._signature, parser, call).arguments, parser.repeats)


class CompileTime(Expander):
    """A Python function that runs while a kernel is parsed; its result replaces the call."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn
        self._signature = inspect.signature(fn)

    def expand(self, parser: ScopedParser, call: ast.Call) -> object:
        """Calls the Python function with the arguments of the call in the kernel; returns its result."""
        bound = _bound(self._signature, parser, call)
        return self._fn(*bound.args, **bound.kwargs)


def inline(fn: Callable[..., Any]) -> Any:
    """Decorator: makes an inline function of a function that is written in the loop language."""
    return Inline(fn)


def compile_time(fn: Callable[..., Any]) -> Any:
    """Decorator: lets kernels and inline functions call a Python function while they are parsed."""
    return CompileTime(fn)


class InlineParser(KernelParser):
    """Parses the body of an inline function at a call: conditions and loops over values that Python knows are expanded."""

    def expansion(self, tree: ast.FunctionDef, args: Mapping[str, object], repeats: int) -> object:
        """Parses the body of a function with its parameters bound to arguments: statements, or an expression if it ends with `return`.

        `repeats` is the number of loops and blocks around the call.
        """
        before, self.repeats = self.repeats, repeats
        try:
            with self.named(tree, args):
                if not isinstance(tree.body[-1], ast.Return):
                    return self.body(tree.body)
                return self.returned(tree.body[:-1], tree.body[-1])
        finally:
            self.repeats = before

    def returned(self, before: list[ast.stmt], last: ast.Return) -> object:
        """Parses the expression of a function, after a docstring and names for parts of it. Raises an Error for other forms."""
        for statement in before:
            if not isinstance(statement, ast.Expr):
                raise self.error(statement, "before the `return` of an inline function are only names for expressions", help="(t := a + b)")
            self.expression(statement)
        if last.value is None:
            raise self.error(last, "an inline function returns an expression, or has no `return`")
        return self.tuple_of(last.value) if isinstance(last.value, ast.Tuple) else self.value(last.value)

    def statement(self, node: ast.stmt) -> Stmt:
        """Parses a statement; a function defined inside becomes a name that is known to the end of the indented part, and no statement."""
        if not isinstance(node, ast.FunctionDef):
            return super().statement(node)
        self.bind_object(node, node.name, LocalFunction(node, self), "function")
        return Seq(())

    def bind_object(self, node: ast.AST, name: str, value: object, what: str) -> None:
        """Binds a name to any Python object, also over a name of the same spelling further out."""
        fixed = not isinstance(value, Expr) or self.independent((value,))
        self.scopes[-1][name] = Binding(value, what, self.span(node), len(self.blocks), fixed)

    # Conditions that Python knows.

    def if_(self, node: ast.If) -> Stmt:
        """Parses `if`; a constant condition takes its branch."""
        condition = self.expr(node.test, bool_)
        if not isinstance(condition, Const):
            return self.branches(node, condition)
        with self.scope():
            return self.body(node.body if condition.value else node.orelse)

    def select(self, node: ast.expr, test: ast.expr, body: ast.expr, orelse: ast.expr) -> Value:
        """Parses `a if c else b` and `select(c, a, b)`; a constant condition takes its arm."""
        condition = self.expr(test, bool_)
        if isinstance(condition, Const):
            return self.value(body if condition.value else orelse)
        return self.selected(node, condition, body, orelse)

    def unary(self, node: ast.expr, op: ast.unaryop, operand: ast.expr) -> Value:
        """Parses `-a`, `~a`, `not a`; `not` of a constant is a constant."""
        value = super().unary(node, op, operand)
        return Const(not value.args[0].value, bool_) if isinstance(value, Not) and isinstance(value.args[0], Const) else value

    def value(self, node: ast.expr) -> Value:
        """Parses an expression; constants among the operands of `and` and `or` decide or vanish."""
        if not isinstance(node, ast.BoolOp):
            return super().value(node)
        join, decides = (And, False) if isinstance(node.op, ast.And) else (Or, True)
        result: Expr = Const(not decides, bool_)
        for operand in node.values:
            e = self.expr(operand, bool_)
            if isinstance(e, Const):
                if bool(e.value) is decides:
                    return e
            else:
                result = e if isinstance(result, Const) else join(result, e)
        return result

    def arithmetic(self, node: ast.expr, cls: type[Binary], a: Expr, b: Expr) -> Expr:
        """Builds `cls(a, b)`; arithmetic of i64 (indices and extents) folds constants, and drops zeros and ones."""
        return SIMPLIFIED[cls](a, b) if a.dtype is i64 and cls in SIMPLIFIED else super().arithmetic(node, cls, a, b)

    def _compare(self, node: ast.Compare, cls: type[Compare], exchanged: bool, sides: list[ast.expr], values: list[Value]) -> Expr:
        """Builds one comparison; one of known integers is decided. `exchanged` swaps the operands, as for `>`."""
        result = super()._compare(node, cls, exchanged, sides, values)
        a, b = result.args
        known = isinstance(a, Const) and isinstance(b, Const) and a.dtype is i64
        return Const(DECIDED[type(result)](a.value, b.value), bool_) if known else result  # type: ignore[attr-defined, index]

    # Loops that are written out, and loops of any number of dims.

    def loop(self, node: ast.For) -> Stmt:
        """Parses a loop; one over a Python tuple, list or range is written out, one copy of the body for each value."""
        if isinstance(node.iter, ast.Tuple | ast.Name | ast.Attribute) or self.expander(node.iter):
            values = argument(self, node.iter)
            if isinstance(values, tuple | list | range):
                return self.written_out(node, tuple(values))
        return super().loop(node)

    def written_out(self, node: ast.For, values: tuple[object, ...]) -> Stmt:
        """Expands the body of a loop once for each value. Raises an Error for other forms."""
        self.no_else(node)
        several = isinstance(node.target, ast.Tuple)
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        body: list[Stmt] = []
        for value in values:
            parts = value if several and isinstance(value, tuple) else (value,)
            if len(names) != len(targets) or len(parts) != len(names):
                raise self.error(node.target, f"`{ast.unparse(node.target)}` are no names for {counted(len(parts), 'value')}")
            with self.named(node, dict(zip(names, parts, strict=True))):
                body.append(self.body(node.body))
        return seq(*body)

    def grid(self, node: ast.For, call: ast.Call) -> Stmt:
        """Parses nested loops; the variables of the loops of a `*shape` are one tuple. Raises an Error for other forms."""
        kinds = {k.arg: self.text(k.value, "kind of loop", KINDS) for k in call.keywords}
        if not kinds.keys() <= {"outermost", "innermost"}:
            raise self.error(call, "`grid` has the keywords `outermost` and `innermost`")
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        extents = [self.indices([a]) for a in call.args]
        with self.scope(repeated=True):
            loops = self.variables(call.args, extents, targets, "loop variable")
            result = self.body(node.body)
        last = len(loops) - 1
        for depth, (var, extent) in reversed(list(enumerate(loops))):
            kind = kinds.get("outermost") if depth == 0 else None
            kind = kind or (kinds.get("innermost") if depth == last else None) or "serial"
            result = For(var, Const(0, i64), extent, kind, result, span=self.span(node))
        return result

    def block(self, node: ast.With, call: ast.Call, targets: ast.expr | None) -> Stmt:
        """Parses a block; the iterators for a `*values` are bound to one name, as a tuple. Raises an Error for other forms."""
        if not any(isinstance(a, ast.Starred) for a in call.args):
            return super().block(node, call, targets)
        name, kinds = self.text(call.args[0], "the name of a block"), self.text(call.args[1], "the kinds of iterators")
        names = targets.elts if isinstance(targets, ast.Tuple) else [targets] if targets is not None else []
        values = [self.indices([a]) for a in call.args[2:]]  # outside of the block
        self.blocks.append(name)
        with self.scope(repeated=True):
            iterators = self.variables(call.args[2:], values, names, "iterator")
            if len(kinds) != len(iterators):
                raise self.error(call, f'block `{name}` has the kinds "{kinds}" for {counted(len(iterators), "iterator")}')
            iters = tuple(Iter(var, kind, value) for kind, (var, value) in zip(kinds, iterators, strict=True))  # type: ignore[arg-type]
            result = self.block_body(node, name, iters)
        self.blocks.pop()
        return result

    def variables(
        self, nodes: list[ast.expr], values: list[tuple[Expr, ...]], targets: list[ast.expr], what: str
    ) -> list[tuple[Var, Expr]]:
        """Binds names to new variables, one for each value, or to a tuple of them for a `*tuple`; returns the variables and values.

        Raises an Error for other forms.
        """
        if len(targets) != len(nodes):
            raise self.error(targets[0], f"{counted(len(targets), 'name')} for {counted(len(nodes), what)}")
        pairs: list[tuple[Var, Expr]] = []
        for target, node, own in zip(targets, nodes, values, strict=True):
            if not isinstance(target, ast.Name):
                raise self.error(target, f"the name of the {what} is expected here")
            each = [Var(target.id if len(own) == 1 else f"{target.id}{k}") for k in range(len(own))]
            pairs += zip(each, own, strict=True)
            if isinstance(node, ast.Starred):
                self.bind_object(target, target.id, tuple(each), what)
            else:
                self.bind(target, target.id, each[0], what)
        return pairs

    @contextmanager
    def named(self, node: ast.AST, values: Mapping[str, object]) -> Iterator[None]:
        """A scope in which names mean Python objects."""
        with self.scope():
            for name, value in values.items():
                self.bind_object(node, name, value, "parameter")
            yield

    # Indices, shapes and values with `*`.

    def define(self, node: ast.Assign, target: ast.Name, value: ast.expr) -> Stmt:
        """Parses the definition of a name; for a tuple of values, a let for each, and the name means the tuple of the variables."""
        values = argument(self, value) if isinstance(value, ast.Tuple) or self.expander(value) else None
        if not isinstance(values, tuple):
            return super().define(node, target, value)
        variables = [Var(f"{target.id}{k}", e.dtype) for k, e in enumerate(values)]
        self.bind_object(target, target.id, tuple(variables), "value")
        return seq(*(Let(v, e, span=self.span(node)) for v, e in zip(variables, values, strict=True)))

    def subscript(self, node: ast.Subscript) -> Value:
        """Parses an element of a tensor, or of a tuple that Python knows; a scalar with no index is itself."""
        part = _part(self, node)
        if part is not None:
            return part if isinstance(part, Expr) else self.literal(node, part)
        owner = self.resolve(node.value) if isinstance(node.value, ast.Name | ast.Attribute) else None
        if isinstance(owner, Expr) and isinstance(node.slice, ast.Tuple) and not self.indices(node.slice.elts):
            return owner
        return super().subscript(node)

    def place(self, node: ast.expr) -> Load:
        """Parses `x[*i, j]` into a load; raises if the number of indices is not the tensor's rank."""
        items = node.slice.elts if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) else []
        if not any(isinstance(i, ast.Starred) for i in items):
            return super().place(node)
        assert isinstance(node, ast.Subscript)
        buffer, indices = self.buffer(node.value), self.indices(items)
        if len(indices) != buffer.ndim:
            raise self.error(node, f"`{buffer.name}` has {buffer.ndim} dims, {len(indices)} indices are given", facts=[f"`{buffer}`"])
        return Load(buffer, indices)

    def in_range(self, node: ast.expr, buffer: Buffer, index: Expr, extent: Expr) -> None:
        """Accepts every index; the base class rejects constant ones out of range.

        A function may be expanded for an extent with which some of its code never runs.
        """

    def shape(self, node: ast.expr) -> tuple[Expr, ...]:
        """Parses a shape: a tuple of extents, one extent, or a tuple that Python knows; `*t` may stand for the extents of one."""
        if isinstance(node, ast.Tuple):
            return self.indices(node.elts)
        starred = ast.copy_location(ast.Starred(node), node)
        return self.indices([starred]) if isinstance(argument(self, node), tuple) else (self.index(node),)

    def indices(self, nodes: list[ast.expr]) -> tuple[Expr, ...]:
        """Parses indices or extents; `*t` stands for the elements of a tuple."""
        result: list[Expr] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                result.extend(Const(e, i64) if isinstance(e, int) else e for e in self.tuple_of(node.value))
            else:
                result.append(self.index(node))
        return tuple(result)

    def tuple_of(self, node: ast.expr) -> tuple[Any, ...]:
        """Parses a tuple: one that is written, one with a name, or what a compile-time function returns.

        Raises an Error for other forms.
        """
        value = argument(self, node)
        if not isinstance(value, tuple | list | range):
            raise self.error(node, f"`{ast.unparse(node)}` is no tuple")
        return tuple(value)

    def check(self, node: ast.Expr, call: ast.Call) -> Stmt:
        """Parses a check; `*t` may stand for its condition, message and values."""
        if not any(isinstance(a, ast.Starred) for a in call.args):
            return super().check(node, call)
        condition, message, *values = _arguments(self, call.args)
        assert isinstance(condition, Expr) and isinstance(message, str)
        return Check(condition, message, tuple(v for v in values if isinstance(v, Expr)), span=self.span(node))

    def expander(self, node: ast.expr) -> bool:
        """True for a call that is expanded in place."""
        return (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and isinstance(self.resolve(node.func), Expander)
        )

    def text(self, node: ast.expr, what: str, known: tuple[str, ...] = ()) -> str:
        """Parses a text, which Python may know: the name of a block, a message."""
        value = self.resolve(node) if isinstance(node, ast.Name | ast.Attribute) else None
        return value if isinstance(value, str) and (not known or value in known) else super().text(node, what, known)


def argument(parser: ScopedParser, node: ast.expr) -> object:
    """Returns the object of an argument: what a name means, a text, a tuple, a Python number, or an expression."""
    if isinstance(node, ast.Name | ast.Attribute):
        return parser.resolve(node)
    if isinstance(node, ast.Constant) and isinstance(node.value, str | None):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(_arguments(parser, node.elts))
    if isinstance(node, ast.Subscript):
        part = _part(parser, node)
        if part is not None:
            return part
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        function = parser.resolve(node.func)
        if isinstance(function, Expander):
            expansion = function.expand(parser, node)
            return _closed(expansion) if isinstance(expansion, Open) else expansion
    value = parser.value(node)
    return _closed(value) if isinstance(value, Open) else value


def _part(parser: ScopedParser, node: ast.Subscript) -> object:
    """Returns an element or a slice of a tuple, at indices that Python knows; None if what is subscripted is no tuple.

    Raises an Error for other forms.
    """
    owner = parser.resolve(node.value) if isinstance(node.value, ast.Name | ast.Attribute) else None
    if not isinstance(owner, tuple | list | range):
        return None

    def number(index: ast.expr | None) -> Any:
        value = None if index is None else argument(parser, index)
        if index is not None and not isinstance(value, int):
            raise parser.error(index, f"`{ast.unparse(index)}` is not known here", help="tuples are indexed by Python numbers")
        return value

    try:
        if isinstance(node.slice, ast.Slice):
            return tuple(owner)[number(node.slice.lower) : number(node.slice.upper) : number(node.slice.step)]
        return owner[number(node.slice)]
    except IndexError:
        raise parser.error(node, f"`{ast.unparse(node.value)}` has {len(owner)} elements") from None


def _closed(value: Open) -> object:
    return value.number if value.number is not None else value.build(value.default)


def _arguments(parser: ScopedParser, nodes: list[ast.expr]) -> Iterator[object]:
    for node in nodes:
        if isinstance(node, ast.Starred):
            values = argument(parser, node.value)
            if not isinstance(values, tuple | list):
                raise parser.error(node, f"`{ast.unparse(node.value)}` is no tuple")
            yield from values
        else:
            yield argument(parser, node)


def _bound(signature: inspect.Signature, parser: ScopedParser, call: ast.Call) -> inspect.BoundArguments:
    """Returns the arguments of a call bound to the parameters that they are for; raises if they do not fit the signature."""
    args = list(_arguments(parser, call.args))
    named = {k.arg: argument(parser, k.value) for k in call.keywords if k.arg is not None}
    try:
        bound = signature.bind(*args, **named)
    except TypeError as problem:
        raise parser.error(call, f"`{ast.unparse(call.func)}`: {problem}") from None
    bound.apply_defaults()
    return bound


def _without_spans(s: Stmt) -> Stmt:
    """Returns the statements without source locations: a template is no place that a user should be shown."""
    s = map_children(s, _without_spans)
    return s.with_(span=None) if not isinstance(s, Seq) and s.span is not None else s
