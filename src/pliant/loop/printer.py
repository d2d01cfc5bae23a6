"""Printer of loop programs as importable Python files; `parse_module` reads them back to a structurally equal program.

    print_func(f)        # imports, dims with their ranges, callees first, then the function

Names are made legal and unique: names in scope at the same time differ, siblings may share one. Literals have no explicit dtype where the
context implies it. Perfectly nested serial loops from 0 are printed as one `grid`. In long expressions, shared subexpressions get names,
`(t := x[i] * 2.0)`: such a name is an abbreviation, so the expression is still computed where the name is used.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..dtype import ALL, DType, bool_, f32, i64
from ..support.errors import InternalError
from ..support.names import unused_name
from ..support.postorder import postorder
from ..support.resolve import ALLOWED_BUILTINS
from ..sym import script as scalar_script
from ..sym import spec
from ..sym.expr import DIM_MAX, TRUE, Add, And, Cast, Const, Dim, Expr, Fma, Max, Min, Or, Var, free_vars
from ..sym.text import text
from ..sym.walk import fold_up, walk
from . import script
from . import stmt as S
from .buffer import Buffer, Load
from .parse_stmt import match_dims, reduction_of

WIDTH = 120  # columns of the printed file
LONG = 80  # an expression with more operations than this gets names for subexpressions
# Names that a printed program must not use for its own.
RESERVED = {*keyword.kwlist, *keyword.softkwlist, *ALL, *ALLOWED_BUILTINS, "kernel", "_"}
RESERVED |= {*script.__all__, *scalar_script.__all__, *scalar_script.LIKE_BUILTINS, *spec.__all__}


def print_func(func: S.Func) -> str:
    """Returns the function and its callees as the text of a Python file."""
    return _File().render(func)


def callees(func: S.Func) -> list[S.Func]:
    """The functions that `func` calls, directly and indirectly, callees before callers."""
    return postorder(func, lambda f: [s.func for s in S.walk_stmts(f.body) if isinstance(s, S.Call)])[:-1]


class _File:
    """The state of printing one file: the names given to its dims and functions."""

    def __init__(self) -> None:
        self.taken: set[str] = set(RESERVED)
        self.dims: dict[Var, str] = {}
        self.functions: dict[S.Func, str] = {}

    def render(self, func: S.Func) -> str:
        """Returns the text of the whole file: dims, callees, then the function."""
        every = [*callees(func), func]
        self.functions[func] = self.unique(func.name, self.taken)  # first, so that the main function keeps its name
        for f in every[:-1]:
            self.functions[f] = self.unique(f.name, self.taken)
        for f in every:
            for s in f.symbols:
                if s not in self.dims:
                    self.dims[s] = self.unique(s.name, self.taken)
        dims = "".join(f"{self.declare(s, n)}\n" for s, n in self.dims.items())
        rest = ("\n" if dims else "") + dims + "".join("\n\n" + "\n".join(_Printer(self, f).function()) + "\n" for f in every)
        return _imports(rest) + "\n" + rest

    def declare(self, symbol: Var, name: str) -> str:
        """Returns the declaration of a dim as text: `n = dim("n", max=4096)`; bounds with their defaults are left out."""
        parts = [f'"{legal(symbol.name)}"']
        if isinstance(symbol, Dim):
            bounds = (("min", symbol.min, 0), ("max", symbol.max, DIM_MAX), ("multiple_of", symbol.multiple_of, 1))
            parts += [f"{key}={value}" for key, value, usual in bounds if value != usual]
        return f"{name} = dim({', '.join(parts)})"

    @staticmethod
    def unique(name: str, taken: set[str]) -> str:
        """`name` made legal, with a number appended if it is taken; reserves the result."""
        return unused_name(legal(name), taken)


def _imports(rest: str) -> str:
    """Returns the import line for the words that the file uses, sorted as linters require."""
    used = {n.id for n in ast.walk(ast.parse(rest)) if isinstance(n, ast.Name)}
    words = sorted(used & RESERVED - set(ALLOWED_BUILTINS), key=lambda w: (not w[0].isupper(), w))
    line = f"from pliant import {', '.join(words)}"
    return line if len(line) <= WIDTH else "from pliant import (\n" + "".join(f"    {w},\n" for w in words) + ")"


def legal(name: str) -> str:
    """Returns `name` changed to a valid Python identifier."""
    identifier = re.sub(r"\W", "_", name) or "_"
    return f"v{identifier}" if identifier[0].isdigit() or not identifier.strip("_") else identifier


class _Printer:
    """Prints one function. `self.names` holds the names in scope; a name is free again at the end of its scope."""

    def __init__(self, file: _File, func: S.Func) -> None:
        self.file = file
        self.func = func
        self.taken = set(file.taken)
        self.names: dict[Var | Buffer, str] = dict(file.dims)  # type: ignore[arg-type]
        self.definitions: list[str] = []  # of names for subexpressions of the current statement
        self.naming = True

    def name(self, value: Var | Buffer) -> str:
        """Returns a new, unused name for a variable or buffer, under which it is printed from here on."""
        unique = self.file.unique(value.name, self.taken)
        self.names[value] = unique
        return unique

    def dtype(self, d: DType) -> str:
        """A dtype's name; bool is `bool_`, the name that type checkers know for tensors of bools."""
        return "bool_" if d is bool_ else d.name

    # Expressions.

    def expr(self, e: Expr, expect: DType | None = None) -> str:
        """Returns an expression as text, in a context where bare literals have the dtype `expect`; a long one with names for its parts."""
        return text(self.named(e) if self.naming and _tree_size(e) > LONG else e, expect, self.leaf)

    def named(self, e: Expr) -> Expr:
        """Returns `e` with names for its large or repeated subexpressions; appends their definitions to `definitions`.

        They are printed before the statement. Expanded functions need it: the text of `pow` in f64 would have 17,797,748,919 operations
        instead of 227.
        """
        uses = Counter(a for node in walk(e) for a in node.args)
        short: dict[Expr, Expr] = {}  # node -> its form in terms of names
        size: dict[Expr, int] = {}
        stack = [e]
        while stack:
            node = stack[-1]
            missing = [a for a in node.args if a not in short]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if node in short:
                continue
            short[node] = node.with_args(tuple(short[a] for a in node.args)) if node.args else node
            size[node] = 1 + sum(size[a] for a in node.args)
            if node is not e and ((uses[node] > 1 and size[node] > 3) or size[node] > LONG // 2):
                definition = text(short[node], None, self.leaf)
                name = Var("t", node.dtype)
                self.definitions.append(f"({self.name(name)} := {definition})")
                short[node], size[node] = name, 1
        return short[e]

    def leaf(self, e: Expr) -> str:
        """Returns the text of a variable or a load."""
        if isinstance(e, Load):
            return f"{self.use(e.buffer)}[{self.indices(e.indices)}]"
        return self.use(e)  # type: ignore[arg-type]

    def use(self, value: Var | Buffer) -> str:
        """The name of a variable or buffer in scope; others (in a broken program) are printed with a mark."""
        return self.names.get(value) or f"{legal(value.name)}__not_in_scope"

    def index(self, e: Expr) -> str:
        """Returns the text of an expression in a context of i64, where casts from other integers are implied."""
        if isinstance(e, Cast) and e.dtype is i64 and e.args[0].dtype.is_int and e.args[0].dtype is not i64:
            return self.expr(e.args[0])
        return self.expr(e, i64)

    def indices(self, indices: tuple[Expr, ...]) -> str:
        """Returns the text inside a subscript."""
        return ", ".join(self.index(i) for i in indices) if indices else "()"

    def tuple(self, values: Iterable[Expr]) -> str:
        """Returns the text of a tuple of extents."""
        parts = [self.index(v) for v in values]
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"

    # Functions.

    def function(self) -> list[str]:
        """Returns the lines of the whole function."""
        names = [(p, self.name(p.value)) for p in self.func.params]
        params = [f"{name}: {self.annotation(p)}" for p, name in names]
        attrs = self.keywords(dict(self.func.attrs.items()))
        decorator = f"@kernel({attrs})" if attrs else "@kernel"
        head = f"def {self.file.functions[self.func]}("
        line = f"{head}{', '.join(params)}) -> None:"
        lines = [line] if len(line) <= WIDTH else [head, *(f"    {p}," for p in params), ") -> None:"]
        return [decorator, *lines, *self.body(self.func.body)]

    def annotation(self, param: S.Param) -> str:
        """Returns the text of a parameter's annotation, such as `Tensor[f32, n]`."""
        value = param.value
        if isinstance(value, Var):
            return self.dtype(value.dtype)
        parts = [self.dtype(value.dtype), *(self.index(e) for e in value.shape)]
        if value.strides is not None:
            parts.append(f"strides({', '.join(self.index(e) for e in value.strides)})")
        return f"{spec.MARKERS[param.role]}[{', '.join(parts)}]"

    @staticmethod
    def keywords(values: Mapping[str, Any]) -> str:
        """Returns annotations as the text of keyword arguments."""
        parts = []
        for key, value in values.items():
            plain = key.isidentifier() and not keyword.iskeyword(key)
            parts.append(f"{key}={_literal(value)}" if plain else f"**{{{_quoted(key)}: {_literal(value)}}}")
        return ", ".join(parts)

    # Statements.

    def body(self, s: S.Stmt | None) -> list[str]:
        """Returns the indented lines of a statement in a scope of its own; `pass` if there is none."""
        taken, names = set(self.taken), dict(self.names)
        lines = [f"    {line}" for line in self.stmt(s)] if s is not None else []
        self.taken, self.names = taken, names
        return lines or ["    pass"]

    def stmt(self, s: S.Stmt) -> list[str]:
        """Returns the lines of a statement, after the definitions of names for its subexpressions."""
        outside, self.definitions = self.definitions, []
        lines = self.lines_of(s)
        lines, self.definitions = [*self.definitions, *lines], outside
        return lines

    def lines_of(self, s: S.Stmt) -> list[str]:
        """Returns the lines of a statement itself."""
        match s:
            case S.Seq():
                return [line for inner in s.body for line in self.stmt(inner)]
            case S.For():
                return self.loop(s)
            case S.Block():
                return self.block(s)
            case S.Store():
                return [self.store(s)]
            case S.Reduce():
                return self.reduce(s)
            case S.Let():
                value = self.expr(s.value, s.value.dtype if s.value.dtype in (i64, f32) else None)
                return [f"{self.name(s.var)} = {value}"]
            case S.Alloc():
                return [self.alloc(s)]
            case S.View():
                return [self.view(s)]
            case S.If():
                return self.if_(s)
            case S.While():
                return [f"while {self.expr(s.cond)}:", *self.body(s.body)]
            case S.Call():
                return [self.call(s)]
            case S.Check():
                return [self.check(s)]
        raise InternalError(f"no statement: {type(s).__name__}")

    def loop(self, s: S.For) -> list[str]:
        """Returns the lines of a loop; perfectly nested plain loops become one `grid`."""
        nest = [s]
        if _plain(s):
            inner = s.body
            while isinstance(inner, S.For) and _plain(inner) and free_vars(inner.stop).isdisjoint(f.var for f in nest):
                nest.append(inner)
                inner = inner.body
        stops = ", ".join(self.index(f.stop) for f in nest)
        if len(nest) > 1:
            over = f"grid({stops})"
        else:
            bounds = stops if isinstance(s.start, Const) and s.start.value == 0 else f"{self.index(s.start)}, {stops}"
            word = "range" if s.kind == "serial" and not s.annotations else s.kind
            if s.kind.startswith("gpu."):
                word, bounds = "gpu", f'"{s.kind[4:]}", {bounds}'
            grain = s.annotations.get("grain")
            if isinstance(grain, Expr):
                notes = ", ".join([self.keywords({k: v for k, v in s.annotations.items() if v is not grain}), f"grain={self.index(grain)}"])
                notes = notes.removeprefix(", ")
            else:
                notes = self.keywords(s.annotations)
            over = f"{word}({bounds}{', ' + notes if notes else ''})"
        taken, names = set(self.taken), dict(self.names)
        targets = ", ".join(self.name(f.var) for f in nest)
        lines = [f"for {targets} in {over}:", *self.body(nest[-1].body)]
        self.taken, self.names = taken, names
        return lines

    def block(self, s: S.Block) -> list[str]:
        """Returns the lines of a block: its head, its init, and its body."""
        kinds = "".join(i.kind for i in s.iters)
        values = "".join(f", {self.index(i.value)}" for i in s.iters)
        shown = f', "{kinds}"{values}' if s.iters else ""
        head = f"with block({_quoted(s.name)}{shown})"
        taken, names = set(self.taken), dict(self.names)
        targets = ", ".join(self.name(i.var) for i in s.iters)
        target = "" if not s.iters else f" as {targets}" if len(s.iters) == 1 else f" as ({targets})"
        inner: list[str] = []
        self.naming = False  # definitions would be printed before the block, where its iterators are not in scope
        if s.predicate is not TRUE:
            inner.append(f"where({self.expr(s.predicate)})")
        for word, regions in (("reads", s.reads), ("writes", s.writes)):
            if regions is not None:
                inner.append(f"{word}({', '.join(self.region(r) for r in regions)})")
        self.naming = True
        if s.annotations:
            inner.append(f"annotate({self.keywords(s.annotations)})")
        if s.init is not None:
            inner += ["with init():", *self.body(s.init)]
        rest = self.body(s.body)
        self.taken, self.names = taken, names
        if inner and rest == ["    pass"]:
            rest = []
        return [f"{head}{target}:", *(f"    {line}" for line in inner), *rest]

    def region(self, r: S.Region) -> str:
        """Returns the text of a region: `a[vi, 0:128]`."""
        parts = []
        for start, extent in zip(r.starts, r.extents, strict=True):
            if isinstance(extent, Const) and extent.value == 1:
                parts.append(self.index(start))
            elif isinstance(start, Const) and (start.value == 0 or isinstance(extent, Const)):
                stop = Const(start.value + extent.value, i64) if isinstance(extent, Const) else extent
                parts.append(f"{self.index(start)}:{self.expr(stop, i64)}")
            else:
                parts.append(f"{self.expr(start, i64)} : {self.expr(Add(start, extent), i64)}")
        return f"{self.use(r.buffer)}[{', '.join(parts) or '()'}]"

    def store(self, s: S.Store) -> str:
        """Returns the text of a store; with a unary `+` if it would be parsed as a reduction."""
        place = Load(s.buffer, s.indices)
        value = self.expr(s.value, place.dtype)
        return f"{self.leaf(place)} = {value if reduction_of(place, s.value) is None else f'+({value})'}"

    def reduce(self, s: S.Reduce) -> list[str]:
        """Returns the lines of a reduction, in the shortest form that is parsed as one."""
        c, target = s.combiner, s.targets[0]
        if c.name not in S.NAMED_COMBINERS:
            return self.combine(s)
        place = self.leaf(target)
        if c.name in ("add", "mul"):
            return [f"{place} {'+=' if c.name == 'add' else '*='} {self.expr(s.values[0], target.dtype)}"]
        node = {"min": Min, "max": Max, "and": And, "or": Or}.get(c.name)
        value = Fma(s.values[0], s.values[1], target) if node is None else node(target, s.values[0])
        return [f"{place} = {self.expr(value, target.dtype)}"]

    def combine(self, s: S.Reduce) -> list[str]:
        """Returns the lines of `a[i], b[i] = combine(lambda ...)`, several if it is long."""
        targets = [self.leaf(t) for t in s.targets]
        values = [self.expr(v, t.dtype) for v, t in zip(s.values, s.targets, strict=True)]
        taken, names = self.taken, dict(self.names)
        self.taken = set(self.file.taken)  # only its own arguments are in scope in a combiner
        args = ", ".join(self.name(v) for v in (*s.combiner.left, *s.combiner.right))
        self.naming = False
        results = [self.expr(e, t.dtype) for e, t in zip(s.combiner.result, s.targets, strict=True)]
        self.taken, self.names, self.naming = taken, names, True
        result, again, value = (f"({', '.join(x)})" if len(x) > 1 else x[0] for x in (results, targets, values))
        parts = [f"lambda {args}: {result}", again, value]
        head = f"{', '.join(targets)} = combine("
        line = f"{head}{', '.join(parts)})"
        return [line] if len(line) <= WIDTH - 20 else [head, *(f"    {p}," for p in parts), ")"]

    def alloc(self, s: S.Alloc) -> str:
        """Returns the text `t = alloc((n, 16), f32, scope="stack")`, and gives the buffer its name."""
        b = s.buffer
        parts = [self.tuple(b.shape), self.dtype(b.dtype)]
        if b.scope != "workspace":
            parts.append(f'scope="{b.scope}"')
        if b.strides is not None:
            parts.append(f"strides={self.tuple(b.strides)}")
        return f"{self.name(b)} = alloc({', '.join(parts)})"

    def view(self, s: S.View) -> str:
        """Returns the text `t = view(x[i, 0], (m, 64))`, and gives the buffer its name."""
        b = s.buffer
        parts = [self.leaf(Load(s.source, s.start)), self.tuple(b.shape)]
        if b.strides is not None:
            parts.append(f"strides={self.tuple(b.strides)}")
        if b.dtype is not s.source.dtype:
            parts.append(f"dtype={self.dtype(b.dtype)}")
        return f"{self.name(b)} = view({', '.join(parts)})"

    def if_(self, s: S.If) -> list[str]:
        """Returns the lines of an `if`, with `elif` if the other side is an `if` too."""
        lines = [f"if {self.expr(s.cond)}:", *self.body(s.then)]
        if isinstance(s.orelse, S.If):
            inner = self.if_(s.orelse)
            return [*lines, f"el{inner[0]}", *inner[1:]]
        return lines if s.orelse is None else [*lines, "else:", *self.body(s.orelse)]

    def call(self, s: S.Call) -> str:
        """Returns the text of a call; dims are omitted where they follow from the arguments."""
        parts = []
        for arg, param in zip(s.args, s.func.params, strict=True):
            parts.append(self.use(arg) if isinstance(arg, Buffer) else self.expr(arg, param.value.dtype))
        implied = match_dims(s.func, s.args)
        if tuple(implied.get(v) for v in s.func.symbols) != s.dims:
            parts.append(f"dims={self.tuple(s.dims)}")
        return f"{self.file.functions[s.func]}({', '.join(parts)})"

    def check(self, s: S.Check) -> str:
        """Returns the text of a run-time check."""
        parts = [self.expr(s.cond), _quoted(s.message), *(self.index(v) for v in s.values)]
        parts += [f"help={_quoted(s.help)}"] if s.help else []
        parts += [f'kind="{s.kind}"'] if s.kind != "check" else []
        return f"check({', '.join(parts)})"


def _plain(s: S.For) -> bool:
    """True if a loop can be part of a `grid`: serial, from 0, without annotations."""
    return s.kind == "serial" and not s.annotations and isinstance(s.start, Const) and s.start.value == 0


def _tree_size(e: Expr) -> int:
    """The number of operations in the text of `e`, with shared subexpressions written out each time (memoized)."""
    return int(fold_up(e, "tree", lambda node, below: 1 + sum(below)))


def _literal(value: object) -> str:
    """Returns the text of a Python literal: a number, text, bool, None, tuple, list or dict; raises InternalError for anything else."""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in value.items())}}}"
    if value is None or type(value) in (int, float, bool):
        return repr(value)
    raise InternalError(f"an annotation is not a literal: {value!r}")


def _quoted(s: str) -> str:
    """Returns a string literal in double quotes, as formatters prefer."""
    return json.dumps(s, ensure_ascii=False)
