"""Parser of kernels: turns the syntax tree of a Python function, or of a file's text, into a loop program without executing anything.

    parse_kernel(fn)                    # a Python function, with the names around it
    parse_module(text)["matmul"]        # a file as `print_func` writes it: imports are skipped, dims and kernels are read

The grammar of programs is in `stmt.py`, the words in `script.py`. Errors point at the user's line and column.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any

from ..dtype import ALL, DType, bool_, i64
from ..support.errors import Error, UnsupportedError, counted, is_are
from ..support.resolve import ALLOWED_BUILTINS, Source, source_of, span_of
from ..support.source import Span
from ..sym import script as scalar_script
from ..sym import spec
from ..sym.annotation import read_annotation
from ..sym.expr import TRUE, Const, Expr, Var
from ..sym.relations import parse_keywords
from ..sym.spec import TensorSpec
from . import script
from .attributes import NO_ATTRS, FuncAttrs, read_attrs
from .buffer import Buffer
from .parse_compute import ComputeParser
from .scope import Expander, kernel_of
from .stmt import Block, For, Func, If, Iter, Param, Region, Role, Seq, Stmt, While, seq

LOOP_WORDS = {"range": "serial", "serial": "serial", "parallel": "parallel", "vector": "vector", "unroll": "unroll"}
HEAD_WORDS = ("where", "reads", "writes", "annotate")  # they come first in a block


class KernelParser(ComputeParser):
    """Parses a Python function decorated as a kernel into a loop program."""

    # Sequences and control flow.

    def body(self, nodes: list[ast.stmt]) -> Stmt:
        """Parses a list of Python statements into one statement."""
        return seq(*(self.statement(n) for n in nodes))

    def statement(self, node: ast.stmt) -> Stmt:
        """Parses one statement; raises an error if kernels do not have it."""
        match node:
            case ast.Assign():
                return self.assign(node)
            case ast.AugAssign():
                return self.augmented(node)
            case ast.AnnAssign():
                return self.annotated(node)
            case ast.For():
                return self.loop(node)
            case ast.With():
                return self.with_(node)
            case ast.If():
                return self.if_(node)
            case ast.While():
                return self.while_(node)
            case ast.Expr():
                return self.expression(node)
            case ast.Pass():
                return Seq(())
        raise self.unsupported(node, f"a kernel has no `{_keyword(node)}` statement", help=_STATEMENT_HELP.get(type(node), ""))

    def expression(self, node: ast.Expr) -> Stmt:
        """Parses a statement that is an expression: a call, a name for an expression (`:=`), or a string literal used as a comment.

        Raises for any other expression, because it would do nothing.
        """
        call = node.value
        if isinstance(call, ast.Constant) and isinstance(call.value, str):
            return Seq(())
        if isinstance(call, ast.NamedExpr):  # (t := x[i] * 2.0): from here on, `t` stands for this expression
            self.bind(call.target, call.target.id, self.expr(call.value), "expression")
            return Seq(())
        if not isinstance(call, ast.Call):
            raise self.error(node, "this expression does nothing", help="assign it: x[i] = ... or t = ...")
        word = self.word(call)
        if word == "check":
            return self.check(node, call)
        if word == "compute":
            return self.compute_into(node, call)
        if word in HEAD_WORDS:
            raise self.error(node, f"`{word}` stands at the beginning of a block, before other statements")
        target = self.resolve(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else None
        callee = kernel_of(target)
        if callee is not None:
            return self.invoke(node, call, callee)
        if isinstance(target, Expander):
            expansion = target.expand(self, call)
            if isinstance(expansion, Stmt):
                return expansion
            raise self.error(node, "this expression does nothing", help="assign it: x[i] = ... or t = ...")
        self.value(call)  # an unknown call is an error there
        raise self.error(node, "this expression does nothing", help="assign it: x[i] = ... or t = ...")

    def if_(self, node: ast.If) -> Stmt:
        """Parses `if`, `elif`, `else`."""
        return self.branches(node, self.expr(node.test, bool_))

    def branches(self, node: ast.If, condition: Expr) -> Stmt:
        """Parses the branches of an `if`."""
        with self.scope():
            then = self.body(node.body)
        orelse = None
        if node.orelse:
            with self.scope():
                orelse = self.body(node.orelse)
        return If(condition, then, orelse, span=self.span(node))

    def while_(self, node: ast.While) -> Stmt:
        """Parses `while`."""
        self.no_else(node)
        condition = self.expr(node.test, bool_)
        with self.scope(repeated=True):
            return While(condition, self.body(node.body), span=self.span(node))

    def no_else(self, node: ast.For | ast.While) -> None:
        """Raises an error if a loop has an `else`."""
        if node.orelse:
            raise self.unsupported(node.orelse[0], "a loop has no `else`")

    def loop(self, node: ast.For) -> Stmt:
        """Parses `for i in range(n)` and the other kinds of loops; a loop has one or two bounds and no step.

        Raises an Error for other forms.
        """
        self.no_else(node)
        word = self.word(node.iter)
        if word != "grid" and word != "gpu" and word not in LOOP_WORDS:
            raise self.error(
                node.iter,
                f"a loop cannot run over `{ast.unparse(node.iter)}`",
                help="loops run over range(n), grid(n, m), parallel(n), vector(n), unroll(n) or gpu(axis, n)",
            )
        assert isinstance(node.iter, ast.Call)
        if word == "grid":
            return self.grid(node, node.iter)
        if not isinstance(node.target, ast.Name):
            raise self.error(node.target, f"a loop over `{word}` has one variable", help="grid(n, m) gives several")
        annotations = {} if word == "range" else self.annotations(node.iter)
        args = list(node.iter.args)
        kind = LOOP_WORDS.get(word, "")
        if word == "gpu":
            if not args:
                raise self.error(node.iter, "`gpu` takes an axis and the bounds", help='gpu("thread.x", n)')
            kind = f"gpu.{self.text(args.pop(0), 'axis')}"
        if word == "range":
            self.arguments(node.iter, -1)
        if len(args) not in (1, 2):
            help_ = "there is no step: loop over the number of steps and multiply" if len(args) == 3 else ""
            raise self.error(node.iter, f"`{word}` takes one or two bounds, not {len(args)}", help=help_)
        bounds = [self.index(a) for a in args]
        start = bounds[0] if len(bounds) == 2 else Const(0, i64)
        return self.nest(node, [(node.target, start, bounds[-1])], kind, annotations)

    def grid(self, node: ast.For, call: ast.Call) -> Stmt:
        """Parses `for i, j in grid(n, m)`. Raises an Error for other forms."""
        self.arguments(call, -1)
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        if len(targets) != len(call.args) or not targets:
            wanted = f"{counted(len(call.args), 'loop variable')} {is_are(len(call.args))} expected"
            raise self.error(node.target, f"{wanted} for `{ast.unparse(call)}`, not {len(targets)}")
        return self.nest(node, [(t, Const(0, i64), self.index(a)) for t, a in zip(targets, call.args, strict=True)], "serial", {})

    def nest(self, node: ast.For, loops: list[tuple[ast.expr, Expr, Expr]], kind: str, annotations: Mapping[str, Any]) -> Stmt:
        """Parses the body of a loop and builds the nest of loops around it, outermost first. Raises an Error for other forms."""
        ranges: list[tuple[Var, Expr, Expr]] = []
        with self.scope(repeated=True):
            for target, start, stop in loops:
                if not isinstance(target, ast.Name):
                    raise self.error(target, "a loop variable is a name")
                var = Var(target.id)
                self.bind(target, target.id, var, "loop variable")
                ranges.append((var, start, stop))
            result = self.body(node.body)
        for var, start, stop in reversed(ranges):
            result = For(var, start, stop, kind, result, annotations, span=self.span(node))
        return result

    def annotations(self, call: ast.Call) -> dict[str, Any]:
        """Parses keyword arguments as annotations: Python literals; `**{"a.b": 1}` for other keys; `grain` may be an expression.

        Raises an Error for other forms.
        """
        notes: dict[str, Any] = {}
        for k in call.keywords:
            try:
                value = ast.literal_eval(k.value)
            except ValueError:
                if k.arg == "grain":  # the only annotation that may depend on sizes
                    notes[k.arg] = self.index(k.value)
                    continue
                raise self.error(k.value, "an annotation is a literal: a number, a text, a tuple, a list, a dict") from None
            if k.arg is None and not (isinstance(value, dict) and all(isinstance(key, str) for key in value)):
                raise self.error(k.value, "`**` takes a dict whose keys are texts")
            notes.update({k.arg: value} if k.arg else value)
        return notes

    # Blocks.

    def with_(self, node: ast.With) -> Stmt:
        """Parses `with block(...)`; raises for any other `with`."""
        item = node.items[0]
        word = self.word(item.context_expr)
        if word == "init":
            raise self.error(item.context_expr, "`init` stands at the beginning of a block, before other statements")
        if word != "block" or len(node.items) != 1:
            raise self.unsupported(item.context_expr, "only `with block(...)` and `with init()` exist in a kernel")
        assert isinstance(item.context_expr, ast.Call)
        return self.block(node, item.context_expr, item.optional_vars)

    def block(self, node: ast.With, call: ast.Call, targets: ast.expr | None) -> Stmt:
        """Parses `with block("c", "SSR", i, j, k) as (vi, vj, vk):`; raises unless there are as many kinds as values and names."""
        self.arguments(call, -1)
        if not call.args:
            raise self.error(call, "a block has a name", help='block("name", "SR", i, k)')
        name = self.text(call.args[0], "the name of a block")
        kinds = self.text(call.args[1], "the kinds of iterators") if len(call.args) > 1 else ""
        for letter in kinds:
            if letter not in "SRO":
                help_ = "S is spatial, R reduction, O ordered"
                raise self.error(call.args[1], f'there is no kind of iterator "{letter}"', help=help_)
        values = [self.index(a) for a in call.args[2:]]
        names = targets.elts if isinstance(targets, ast.Tuple) else [targets] if targets is not None else []
        if len(kinds) != len(values):
            raise self.error(
                call,
                f'block `{name}` has {counted(len(kinds), "kind")} "{kinds}" for {counted(len(values), "value")}',
                help="one letter for each value",
            )
        if len(names) != len(values):
            raise self.error(targets or call, f"block `{name}` has {counted(len(values), 'iterator')}, {counted(len(names), 'name')} given")
        iters: list[Iter] = []
        self.blocks.append(name)
        with self.scope(repeated=True):
            for target, kind, value in zip(names, kinds, values, strict=True):
                if not isinstance(target, ast.Name):
                    raise self.error(target, "an iterator is a name")
                iters.append(Iter(Var(target.id), kind, value))  # type: ignore[arg-type]
                self.bind(target, target.id, iters[-1].var, "iterator")
            result = self.block_body(node, name, tuple(iters))
        self.blocks.pop()
        return result

    def block_body(self, node: ast.With, name: str, iters: tuple[Iter, ...]) -> Block:
        """Parses the head of a block (`where`, `reads`, `writes`, `annotate`), its init, and its body."""
        predicate: Expr = TRUE
        annotations: dict[str, Any] = {}
        init: Stmt | None = None
        regions: dict[str, tuple[Region, ...]] = {}
        rest = list(node.body)
        while rest:
            head = rest[0]
            call = head.value if isinstance(head, ast.Expr) else None
            word = self.word(call) if call is not None else ""
            if word in HEAD_WORDS and isinstance(call, ast.Call):
                if word == "where":
                    self.arguments(call, 1)
                    predicate = self.expr(call.args[0], bool_)
                elif word == "annotate":
                    annotations |= self.annotations(call)
                else:
                    self.arguments(call, -1)
                    regions[word] = tuple(self.region(a) for a in call.args)
            elif isinstance(head, ast.With) and self.word(head.items[0].context_expr) == "init" and init is None:
                self.reducing = {i.var for i in iters if i.kind != "S"}
                with self.scope():
                    init = self.body(head.body)
                self.reducing = set()
            else:
                break
            rest.pop(0)
        body = self.body(rest)
        return Block(name, iters, body, init, predicate, regions.get("reads"), regions.get("writes"), annotations, span=self.span(node))

    # The function.

    def kernel(self, attrs: FuncAttrs) -> Func:
        """Parses the whole function; raises for a return annotation, for defaults, and for parameters that kernels do not have."""
        tree = self.source.tree
        a = tree.args
        for bad in (*a.posonlyargs, *a.kwonlyargs, *([a.vararg] if a.vararg else []), *([a.kwarg] if a.kwarg else [])):
            raise self.unsupported(bad, "a kernel has plain parameters only", help="remove `*`, `/` and `**`")
        for default in a.defaults:
            raise self.unsupported(default, "a parameter of a kernel has no default")
        if tree.returns is not None and not (isinstance(tree.returns, ast.Constant) and tree.returns.value is None):
            help_ = "results are parameters: name: Out[f32, n]"
            raise self.error(tree.returns, "a kernel returns nothing: it is annotated with `-> None`", help=help_)
        params = self.parameters(a.args)
        draft = Func(tree.name, params, Seq(()), span=self.span(tree))
        self.symbols = frozenset(draft.symbols)
        return draft.with_(body=self.body(tree.body), attrs=attrs)

    def parameters(self, args: list[ast.arg]) -> tuple[Param, ...]:
        """Parses the parameters. Scalars are bound first, because an extent may use one. Raises an Error for other forms."""
        scalars: dict[str, Var] = {}
        for arg in args:
            if arg.annotation is None:
                help_ = f"for example {arg.arg}: Tensor[f32, n], or {arg.arg}: f32 for a scalar"
                raise self.error(arg, f"parameter `{arg.arg}` has no annotation", help=help_)
            if isinstance(arg.annotation, ast.Name | ast.Attribute):
                declared = read_annotation(self, arg.annotation)
                if isinstance(declared, DType):
                    scalars[arg.arg] = Var(arg.arg, self.dtype(arg.annotation))
                    self.bind(arg, arg.arg, scalars[arg.arg], "parameter", fixed=True)
        return tuple(Param(scalars[a.arg]) if a.arg in scalars else self.tensor(a) for a in args)

    def tensor(self, arg: ast.arg) -> Param:
        """Parses a tensor parameter, binds its name, and notes it as read-only if its role is "in".

        Raises if the annotation is no tensor's.
        """
        assert arg.annotation is not None
        declared = read_annotation(self, arg.annotation)
        if not isinstance(declared, TensorSpec):
            shown = ast.unparse(arg.annotation)
            raise self.error(
                arg.annotation, f"`{shown}` is no annotation of a parameter", help="for example Tensor[f32, n], Out[f32, n] or f32"
            )
        if declared.role == "state":
            raise self.error(arg.annotation, "a kernel has no state", help="annotate the parameter with InOut[...]")
        role: Role = declared.role
        buffer = Buffer(arg.arg, declared.dtype, declared.shape, declared.strides)
        self.bind(arg, arg.arg, buffer, "parameter", fixed=True)
        if role == "in":
            self.inputs.add(buffer)
        return Param(buffer, role)


def parse_kernel(fn: Callable[..., Any]) -> Func:
    """Parses a Python function into a loop program."""
    return KernelParser(source_of(fn)).kernel(NO_ATTRS)


# The names that a file of kernels may use without an import being executed.
_LANGUAGE: dict[str, object] = {
    **ALL,
    **{n: getattr(script, n) for n in script.__all__},
    **{n: getattr(scalar_script, n) for n in (*scalar_script.__all__, *scalar_script.LIKE_BUILTINS)},
    **{n: getattr(spec, n) for n in spec.__all__},
}


def parse_module(text: str, file: str = "<text>") -> dict[str, Func]:
    """Parses the kernels in a file's text, and returns them by name; the file is not executed.

    Graph functions in it are skipped. Raises for text that is not Python, and for other statements than imports, dims, constants and
    kernels.
    """
    lines = text.splitlines(keepends=True)
    try:
        tree = ast.parse(text)
    except SyntaxError as problem:
        line = lines[problem.lineno - 1] if problem.lineno and problem.lineno <= len(lines) else ""
        column = (problem.offset or 1) - 1
        raise Error(f"not Python: {problem.msg}", where=Span(file, problem.lineno or 1, column, column + 1, line)) from None
    names: dict[str, object] = {}
    scope = ChainMap(names, _LANGUAGE, ALLOWED_BUILTINS)
    kernels: dict[str, Func] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            if any(isinstance(d, ast.Name) and d.id == "function" for d in node.decorator_list):
                continue  # the text of a whole program contains graph functions too
            parser = KernelParser(Source(file, lines, node, scope))
            kernels[node.name] = names[node.name] = parser.kernel(_attrs(parser, node))
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = _constant(node, file, lines, scope)
        elif not isinstance(node, ast.Import | ast.ImportFrom) and not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            raise UnsupportedError("a file of kernels has imports, dims, constants and kernels only", where=span_of(node, file, lines))
    return kernels


def _attrs(parser: KernelParser, node: ast.FunctionDef) -> FuncAttrs:
    """Parses the attributes of the decorator, `@kernel(scheduled=True)`; raises if they are invalid."""
    values = {k: v for d in node.decorator_list if isinstance(d, ast.Call) for k, v in parser.annotations(d).items()}
    attrs = read_attrs(values, {a.arg for a in node.args.args})
    if isinstance(attrs, str):
        raise parser.error(node.decorator_list[0], attrs)
    return attrs


def _constant(node: ast.Assign, file: str, lines: list[str], scope: Mapping[str, object]) -> object:
    """Returns the dim of `n = dim("n", max=4096)`, or the literal of `width = 64`; raises for any other assignment."""
    value, where = node.value, span_of(node, file, lines)
    try:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and scope.get(value.func.id) is spec.dim:
            args = [ast.literal_eval(a) for a in value.args]
            return spec.dim(*args, **parse_keywords(value, scope))
        return ast.literal_eval(value)
    except (ValueError, TypeError):
        raise Error('only `n = dim("n", ...)` and literals are assigned in a file of kernels', where=where) from None
    except Error as problem:
        problem.places = [(where, "")]
        raise


def _keyword(node: ast.stmt) -> str:
    """The Python keyword of a statement, for error messages."""
    name = type(node).__name__.lower()
    return {"functiondef": "def", "classdef": "class", "asyncfor": "async for", "importfrom": "import", "trystar": "try"}.get(name, name)


_STATEMENT_HELP: dict[type[ast.stmt], str] = {
    ast.Return: "results are parameters: annotate one with Out[...] and store into it",
    ast.Assert: 'use check(condition, "message")',
    ast.Break: "give a while loop the condition",
    ast.Continue: "put the rest under an `if`",
    ast.FunctionDef: "define kernels next to each other and call one from the other",
    ast.Raise: 'use check(condition, "message")',
}
